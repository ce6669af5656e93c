"""Routes in the request and answer shapes of vLLM, SGLang, TEI, llama.cpp, OpenAI and Anthropic.

`tokenize` answers /tokenize and /detokenize, `token_count` /tokenize/count, `apply_template`
/apply-template, `render` requests that hold a prompt or a chat, and `probes` requests for health,
version and models; `common` has the code that these routes share.
`chat_prompt` turns a chat into text by the vocabulary's template; `templates/` converts messages
and runs the templates in separate processes.
`section_cache` keeps the ids of sections of chats, for the next turn of a conversation.
`media_estimate` estimates the ids of images and documents.

Called by HTTP clients of those systems; the application registers the routes.

Ids are those of the native calls. A template is code that a client uploaded: it never runs in a
process that answers requests.
"""
