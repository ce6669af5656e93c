"""Other systems' routes: vLLM, TEI, OpenAI, Anthropic; chat templates."""
