"""Chats as ids: the service beside FastAPI with `apply_chat_template` and Hugging Face tokenizers.

`chats` makes the requests of public texts; `plain_server` is what users write without the service;
`reference` gives the ids of transformers in an interpreter that has it; `__main__` proves the ids
and measures both servers in turns. `conversations` measures next turns and a steady rate, beside
vLLM's renderer.
"""
