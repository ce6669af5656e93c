"""tiktoken's rank files and Mistral's tekken.json."""
