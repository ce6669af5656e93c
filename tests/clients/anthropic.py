"""What Anthropic's own client gets from a running service. Arguments as of openai.py."""

import sys

sys.path.pop(0)  # This folder, whose files have the clients' names.

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none")
messages = [{"role": "user", "content": "Hello, world"}]
counted = client.messages.count_tokens(model="chat", messages=messages)
assert counted.input_tokens == int(sys.argv[2])
more = client.messages.count_tokens(model="chat", messages=messages, system="Be kind.")
assert more.input_tokens > counted.input_tokens
tool = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
call = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
result = {"type": "tool_result", "tool_use_id": "c1", "content": "Hello, world"}
used = [*messages, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
with_result = client.messages.count_tokens(model="chat", messages=used, tools=[tool])
assert with_result.input_tokens > counted.input_tokens
try:
    client.messages.count_tokens(model="nothing", messages=messages)
except anthropic.NotFoundError as error:
    assert "no vocabulary" in str(error)
else:
    raise AssertionError("not refused")
print("all as expected")
