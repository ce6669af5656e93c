"""Chats: their text is the template's, and the mask is what the assistant wrote."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from service.cli.parser import main
from service.corpus.documents import Documents
from service.corpus.reading.chats import ChatRenderer, chat_documents
from service.corpus.reading.line_blocks import LineBlock
from vocabularies import builtin

TURNS = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
BLOCKS = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}</{{ m.role }}>{% endgeneration %}{% else %}{{ m.content }}"
    "</{{ m.role }}>{% endif %}{% endfor %}"
)
FORGETFUL = "{{ messages[-1].content }}"
USER = {"role": "user", "content": "Grüße 🙂"}
ANSWER = {"role": "assistant", "content": "Hello é"}


def read(template: str, *records: Any, is_masked: bool = True) -> Documents:
    data = b"\n".join(r if isinstance(r, bytes) else orjson.dumps(r) for r in records)
    block = LineBlock(np.frombuffer(bytearray(data), np.uint8), 0, len(data), len(data))
    renderer = ChatRenderer(template, {"bos_token": "[B]"}, is_masked)
    return chat_documents(block, "messages", renderer)


def learned(documents: Documents) -> list[tuple[str, str]]:
    """Return the text of each chat, and what is learned of it."""
    assert documents.masks is not None
    found = []
    for begin, end in pairwise(documents.offsets.tolist()):
        text, mask = documents.data[begin:end], documents.masks[begin:end]
        found.append((text.tobytes().decode(), text[mask != 0].tobytes().decode()))
    return found


@pytest.mark.parametrize("template", [TURNS, BLOCKS])
def test_the_assistants_words_are_learned(template: str) -> None:
    chat = {"messages": [USER, ANSWER, USER, {**ANSWER, "content": "Bye"}, USER]}
    ((text, words),) = learned(read(template, chat))
    turn = "<user>Grüße 🙂</user>"
    answers = "<assistant>Hello é</assistant>", "<assistant>Bye</assistant>"
    assert text == f"[B]{turn}{answers[0]}{turn}{answers[1]}{turn}"
    assert words == "Hello é</assistant>Bye</assistant>"


@pytest.mark.parametrize("tag", ["{%generation%}", "{%- generation -%}", "{% generation%}"])
def test_generation_blocks_are_found_however_they_are_written(tag: str) -> None:
    chat = {"messages": [USER, ANSWER]}
    expected = learned(read(BLOCKS, chat))
    template = BLOCKS.replace("{% generation %}", tag)
    template = template.replace("{% endgeneration %}", "{%endgeneration%}")
    assert learned(read(template, chat)) == expected


def test_a_text_that_names_a_generation_block_is_none() -> None:
    template = TURNS + "{# {% generation %} #}"
    chat = {"messages": [USER, ANSWER]}
    assert learned(read(template, chat)) == learned(read(TURNS, chat))


def test_a_template_that_keeps_no_message_apart_has_no_mask() -> None:
    chat = {"messages": [USER, ANSWER, USER]}
    assert [r.code for r in read(FORGETFUL, chat).rejects] == ["no_mask"]
    assert learned(read(FORGETFUL, chat, is_masked=False)) == [("Grüße 🙂", "")]


def test_records_that_are_no_chats() -> None:
    records = [b"{", b"[]", {"x": 1}, {"messages": "text"}, {"messages": [1]}, {"messages": [USER]}]
    documents = read(TURNS, *records)
    codes = ["invalid_json", "not_an_object", "not_a_chat", "not_a_chat", "not_a_chat"]
    assert [reject.code for reject in documents.rejects] == codes
    assert len(documents.places) == 1
    other = read(TURNS, {"messages": [USER, {"role": "user", "content": 5}]}).rejects[0]
    assert (other.code, other.where) == ("not_a_chat", "/messages/1/content")
    refused = read("{{ raise_exception('no users') }}", {"messages": [USER]})
    assert refused.rejects[0].message == "TemplateError: no users"
    with pytest.raises(ValueError, match="chat template"):
        ChatRenderer("{% if %}", {}, True)


def test_shards_with_a_mask(tmp_path: Path) -> None:
    path, template = tmp_path / "chats.jsonl", tmp_path / "template.jinja"
    path.write_bytes(orjson.dumps({"messages": [USER, ANSWER]}) + b"\n")
    template.write_text(TURNS)
    command = ["corpus", str(path), "-v", "gpt2", "--chats", "--chat-template", str(template)]
    command += ["--loss-mask", "--format", "datatrove", "--append-eod", "--quiet"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    ids = np.fromfile(tmp_path / "out" / "shard_00000_00000.ds", np.uint16)
    mask = np.fromfile(tmp_path / "out" / "shard_00000_00000.ds.loss", np.bool_)
    tokens = builtin.load("gpt2").tokens
    words = b"".join(tokens[i] or b"" for i in ids[mask].tolist())
    assert words.decode() == "Hello é</assistant><|endoftext|>"
    assert main([*command, "--format", "megatron", "--out", str(tmp_path / "no")]) == 2
