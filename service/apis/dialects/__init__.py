"""Routes in the request and answer formats of vLLM, SGLang, TEI, llama.cpp, OpenAI and Anthropic.

`tokenize` answers /tokenize and /detokenize, `token_count` /tokenize/count, and `apply_template`
/apply-template. `render` converts prompts and chats to ids or counts their ids, and `derender`
converts generated ids to answers; `sampling` and `generated_logprobs` belong to these two. `probes`
answers requests for health, version and models. `common` contains the steps that all routes share.
`chat_prompt` converts a chat to text with the vocabulary's template; `templates/` converts messages
and runs the templates in separate processes. `section_cache` stores the ids of sections of chats,
for later requests of the same conversation. `media_estimate` estimates the ids of images and
documents.

The application registers these routes for the clients of those systems.

The ids are those of the native calls. A template is code that a client uploaded: it never runs in a
process that answers requests.
"""
