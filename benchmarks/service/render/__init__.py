"""Times chats to ids: the service beside FastAPI with transformers and Hugging Face tokenizers.

`chats` makes the requests of public texts; `plain_server` is a server without warptok;
`reference` gives the ids of transformers in an interpreter that has it; `__main__` proves the ids
and measures both servers in turns. `conversations` measures next turns and a steady rate, beside
vLLM's renderer.
"""
