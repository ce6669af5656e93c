"""What OpenAI's own client gets from a running service. Arguments: its address, and how many ids
the chat has that test_clients.py made.
"""

import sys

sys.path.pop(0)  # This folder, whose files have the clients' names.

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none")
assert "gpt2" in [model.id for model in client.models.list()]
assert client.models.retrieve("gpt2").object == "model"
counted = client.responses.input_tokens.count(model="gpt2", input="Hello, world")
assert counted.input_tokens == 3
messages = [{"role": "user", "content": "Hello, world"}]
counted = client.responses.input_tokens.count(model="chat", input=messages)
assert counted.input_tokens == int(sys.argv[2])
call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
result = {"type": "function_call_output", "call_id": "c1", "output": "Hello, world"}
used = client.responses.input_tokens.count(model="chat", input=[*messages, call, result])
assert used.input_tokens > counted.input_tokens
try:
    client.responses.input_tokens.count(model="nothing", input="x")
except openai.NotFoundError as error:
    assert "no vocabulary" in str(error)
else:
    raise AssertionError("not refused")
print("all as expected")
