"""Prints digests of the ids that transformers and Hugging Face tokenizers give chats.

    python -m benchmarks.service.render.reference FOLDER < CHATS > DIGESTS

Each line of stdin is the body of a request. Each line of stdout has the number of its ids and the
SHA-256 of the ids as little-endian int32, as JSON. It needs transformers, and nothing of warptok.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def parse_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert the arguments of calls from JSON, as templates expect them, and vLLM does."""
    converted = []
    for message in messages:
        if calls := message.get("tool_calls"):
            parsed = []
            for call in calls:
                function = call["function"]
                arguments = json.loads(function["arguments"])
                parsed.append({**call, "function": {**function, "arguments": arguments}})
            message = {**message, "tool_calls": parsed}
        converted.append(message)
    return converted


def digest(ids: list[int]) -> list[Any]:
    """Return the number of ids and their SHA-256."""
    return [len(ids), hashlib.sha256(np.array(ids, "<i4").tobytes()).hexdigest()]


def main() -> None:
    """Answer each line of stdin."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, __version__

    folder = Path(sys.argv[1])
    template = AutoTokenizer.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    print(json.dumps({"transformers": __version__}))
    for line in sys.stdin:
        chat = json.loads(line)
        text = template.apply_chat_template(
            parse_arguments(chat["messages"]),
            tools=chat.get("tools"),
            add_generation_prompt=True,
            tokenize=False,
        )
        print(json.dumps(digest(tokenizer.encode(text, add_special_tokens=False).ids)))


if __name__ == "__main__":
    main()
