"""Valid vocabularies of every format as uploads, and some that are archives."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from tests.fuzz.inputs.messages import BOUNDARY, CANARY, Body, Message, Part
from tests.support.inputs.tokenizer_documents import (
    ABC,
    BYTE_LEVEL,
    added,
    document,
    encoded,
    rank_file,
)
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

MULTIPART = b"multipart/form-data"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{{ tools | tojson }}"
)
CONFIG = {"chat_template": TEMPLATE, "bos_token": "[CLS]", "model_max_length": 512, "tag": CANARY}


def chat_upload() -> Message:
    """Make the upload of the vocabulary `chat`, which has a template."""
    (made,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
    return _upload("chat", _file("tokenizer.json", made), _file("tokenizer_config.json", CONFIG))


def _file(name: str, body: Any) -> Part:
    return Part(name.encode(), body if isinstance(body, bytes) else json.dumps(body).encode())


def _upload(name: str, *parts: Part, query: str = "") -> Message:
    headers = ((b"content-type", MULTIPART + b"; boundary=" + BOUNDARY),)
    path = f"/v1/vocabularies/{name}?replace=true{query}"
    return Message("PUT", path, headers, (b"",), "multipart", parts=parts)


def _one(body: bytes, query: str = "", kind: Body = "json", encoding: str = "") -> Message:
    path = f"/v1/vocabularies/mine?replace=true{query}"
    return Message("PUT", path, (), (body,), kind, encoding)


def uploads() -> Iterator[Message]:
    """Yield every upload."""
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, CANARY: 3, "a": 4, "##b": 5, "ab": 6}
    letters = {letter: place for place, letter in enumerate("ACGTN")}
    pair = ["A C", "G T", "AC GT"]
    bpe = letters | {"AC": 5, "GT": 6, "ACGT": 7, "<s>": 8, CANARY: 9}
    split = {"type": "Split", "pattern": {"Regex": "\\d{1,3}|\\s+"}, "behavior": "Isolated"}
    steps = {"type": "Sequence", "pretokenizers": [split | {"invert": False}, BYTE_LEVEL]}
    replace = {"type": "Replace", "pattern": {"String": "U"}, "content": "T"}
    normal = {"type": "Sequence", "normalizers": [{"type": "NFC"}, replace, {"type": "Lowercase"}]}
    yield _one(encoded(ABC))
    yield _one(encoded(document(bpe, pair, added_tokens=[added("<s>", 8), added(CANARY, 9)])))
    yield _one(encoded(document(bpe, pair, normalizer=normal, unk_token="N", fuse_unk=True)))
    yield _one(
        encoded(document(bpe, pair, byte_level=True, pre_tokenizer=steps, ignore_merges=True))
    )
    inside = {"a": 0, "##é": 1, "aé": 2, "##b": 3, CANARY: 4}
    yield _one(encoded(document(inside, ["a ##é"], continuing_subword_prefix="##")))
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    llama = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, blank]}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    spoken = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    fallback = {"▁": 0, "a": 1, "<0x41>": 2, "▁a": 3, CANARY: 4}
    yield _one(
        encoded(document(fallback, ["▁ a"], byte_fallback=True, normalizer=llama, decoder=spoken))
    )
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": words}
    wordpiece |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 20}
    specials = [added("[CLS]", 1), added("[SEP]", 2)]
    yield _one(
        encoded(
            document(
                {},
                [],
                model=wordpiece,
                added_tokens=specials,
                pre_tokenizer={"type": "BertPreTokenizer"},
            )
        )
    )
    unigram = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0.0], [CANARY, -2.5], ["a", -1.0]],
    }
    yield _one(encoded(document({}, [], model=unigram)))
    level = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": words}
    yield _one(encoded(document({}, [], model=level, pre_tokenizer={"type": "Whitespace"})))
    merges = _file("merges.txt", b"#version: 0.2\nA C\nG T\nAC GT\n")
    yield _upload("mine", _file("vocab.json", bpe), merges, query="&pretokenizer=none")
    config = CONFIG | {"chat_template": [{"name": "default", "template": TEMPLATE}]}
    yield _upload(
        "mine", _file("tokenizer.json", encoded(ABC)), _file("tokenizer_config.json", config)
    )
    yield _upload("chat", *chat_upload().parts)
    ranks = rank_file([*(bytes([byte]) for byte in range(256)), b"ab", b"abc", CANARY.encode()])
    tokens = "&special_tokens=" + '{"<|end|>":300}'.replace('"', "%22")
    yield _one(ranks, f"&pretokenizer=gpt2{tokens}", "lines")
    for name, formats in (
        ("dnabert1_3mer", ("vocab.txt", "kmer", "canonical", "tokenizer.json")),
        ("hyenadna", ("vocab.json", "kmer", "canonical")),
        ("gpn", ("canonical", "tokenizer.json")),
    ):
        for format in formats:
            yield from _written(name, format)
    yield _one(gzip.compress(encoded(ABC), mtime=0), kind="bytes")
    yield _one(b"PK\x03\x04" + encoded(ABC), kind="bytes")
    yield _one(b"\x80\x04\x95" + CANARY.encode(), kind="bytes")


def _written(name: str, format: str) -> Iterator[Message]:
    try:
        (content,) = write_vocabulary(load(name), format).values()
    except ValueError:
        return
    if len(content) < 20_000:
        kind: Body = "json" if content[:1] == b"{" else "lines"
        yield _one(content, f"&format={format}", kind)
