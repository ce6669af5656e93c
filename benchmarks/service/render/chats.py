"""Makes chats of public texts: a system message, tools, and several turns with tool calls.

The sizes spread around a median, as those of a conversation that grows do. Nothing here tokenizes:
a length in ids is met by a number of characters, and the benchmark reports the ids that there are.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = (
    "code_python_stdlib.txt",
    "wikitext2_test.raw.txt",
    "code_js_lodash.txt",
    "pride_and_prejudice.txt",
    "debian_reference_de.txt",
    "code_c_headers.txt",
)
"""The texts, of which a tool's results and the users' messages are parts."""
CHARACTERS_AN_ID = 4.0  # Of these texts, with the vocabularies of 2024 and later.
SPREAD = (0.6, 0.8, 0.9, 1.0, 1.0, 1.1, 1.25, 1.6)
"""The lengths of chats, as shares of the median."""
PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The path of the file, from the root."},
        "lines": {"type": "array", "items": {"type": "integer"}, "description": "First and last."},
    },
    "required": ["path"],
}
TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()} of the project's repository.",
            "parameters": PARAMETERS,
        },
    }
    for name in ("read_file", "list_folder", "search_text", "run_tests")
)


def make_chats(folder: Path, num_ids: int, num_chats: int, seed: int = 1) -> list[dict[str, Any]]:
    """Make the bodies of requests, with `num_ids` ids in the median.

    Args:
        folder: the folder with FILES.
        num_ids: the median length.
        num_chats: the number of chats, each of other parts of the texts.
        seed: for the choice of the parts.
    """
    chance = random.Random(seed)
    texts = [(folder / name).read_text(encoding="utf-8") for name in FILES]
    chats = []
    for number in range(num_chats):
        size = int(num_ids * CHARACTERS_AN_ID * SPREAD[number % len(SPREAD)])
        chats.append({"messages": list(_make_messages(texts, size, chance)), "tools": TOOLS})
    return chats


def _make_messages(texts: list[str], size: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Make turns of a user's question, a call, its result, and an answer, until `size` is met."""
    yield {"role": "system", "content": "You help with a large repository. Be exact and brief."}
    size -= 2_000  # What the template writes of the tools.
    number = 0
    while size > 0:
        number += 1
        question = _cut(texts, min(size, chance.randint(80, 600)), chance)
        result = _cut(texts, min(size, chance.randint(1_000, 24_000)), chance)
        answer = _cut(texts, min(size, chance.randint(200, 2_000)), chance)
        call = {"path": f"src/part_{number}.py", "lines": [number, 40 * number]}
        function = {"name": "read_file", "arguments": json.dumps(call)}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        yield {"role": "user", "content": question}
        yield {"role": "assistant", "content": "", "tool_calls": calls}
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": result}
        yield {"role": "assistant", "content": answer}
        size -= len(question) + len(result) + len(answer)
    yield {"role": "user", "content": "What follows from this? Name the places."}


def _cut(texts: list[str], size: int, chance: random.Random) -> str:
    text = chance.choice(texts)
    begin = chance.randrange(max(1, len(text) - size))
    return text[begin : begin + size]
