"""Renders chats by transformers, for tests/clients/test_chat_templates.py to compare.

Arguments: a JSON file with templates, chats and the names of special tokens, and a file for the
answer: for each template the text of each chat, or null where the template refuses it. Messages get
the form that vLLM gives to transformers, in parts, joined, and as they are.
"""

import sys

sys.path.pop(0)  # This folder, whose files have the clients' names.

import copy
import json
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast


def convert(messages: list, form: str) -> list:
    """Convert messages as vLLM does before it renders them by transformers."""
    for message in messages:
        content = message.get("content")
        is_text = form == "joined" or message["role"] == "tool"
        if isinstance(content, list) and is_text:
            message["content"] = "\n".join(part["text"] for part in content if part["text"])
        if isinstance(content, str) and form == "parts" and not is_text:
            message["content"] = [{"type": "text", "text": content}]
        if content is None:
            message["content"] = [] if form == "parts" and not is_text else ""
        for call in message.get("tool_calls") or []:
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
    return messages


def render(tokenizer: PreTrainedTokenizerFast, template: str, chat: dict, form: str) -> object:
    chat = copy.deepcopy(chat)
    messages = convert(chat.pop("messages"), form)
    chat.setdefault("add_generation_prompt", True)
    variables = chat.pop("chat_template_kwargs", {})
    try:
        return tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, **variables, **chat
        )
    except Exception:
        return None


def main(cases: str, answer: str) -> None:
    case = json.loads(Path(cases).read_text())
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({}, "x")), **case["names"]
    )
    texts = {
        template: {
            name: [render(tokenizer, source, chat, form) for form in ("parts", "joined", "given")]
            for name, chat in case["chats"].items()
        }
        for template, source in case["templates"].items()
    }
    Path(answer).write_text(json.dumps(texts))
    print("all as expected")


main(*sys.argv[1:])
