"""Valid messages made wrong: bytes, JSON values, lines, forms, paths, headers, encodings.

A changed message depends on nothing but the random numbers that it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.fuzz.inputs.messages import Message, Part
from tests.fuzz.texts import nasty_bytes, nasty_text

NUMBERS = [0, 1, -1, 7, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -(2**31), -(2**63) - 1]
ODD_VALUES: list[Any] = [None, True, False, "", " ", "x" * 300, [], {}, [[]], [{}], {"": ""}, 0.5]
ODD_VALUES += [
    1e308,
    -0.0,
    "\x00",
    "\u2028",
    "gpt2",
    "gpn",
    "mine",
    "chat",
    "none",
    "../x",
    "match",
]
ODD_VALUES += ["left", "longest", "bytes", "int32", "<mask>", "[UNK]", "ACGT", *NUMBERS]
ODD_TEXTS = [
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"NaN",
    b"Infinity",
    b"1e999",
    b'"\\ud800"',
    b"\x00",
    b",",
]
ODD_TEXTS += [
    b"9" * 400,
    b"9" * 5000,
    b"[" * 300,
    b'{"a":' * 300,
    b"-",
    b'"',
    b"/* */",
    b"\r\n",
    b"'",
    b"\\u0000",
]
ODD_LINES = [b">", b"@", b"+", b"", b";", b">" + b"n" * 999, b"#version: 0.2", b"a b c", b"AA== 0"]
ODD_LINES += [
    b"QQ== -1",
    b"QQ== 99999999999",
    b"=",
    b"\xff\xff",
    b" ",
    b"\t",
    b"ACGT" * 99,
    b"[PAD]",
]
ENCODINGS = ["", "gzip", "deflate", "zstd"]
HEADERS = [
    (b"content-encoding", b"gzip"),
    (b"content-encoding", b"zstd"),
    (b"content-encoding", b"br, gzip"),
    (b"content-encoding", b"deflate"),
    (b"content-type", b"application/json"),
    (b"content-type", b"multipart/form-data"),
    (b"content-type", b"multipart/form-data; boundary=" + b"x" * 300),
    (b"content-type", b"text/plain; charset=utf-16"),
    (b"content-type", b"application/vnd.apache.arrow.stream"),
    (b"content-type", b"\xff\xfe"),
    (b"x-request-timeout-ms", b"1000000000000"),
    (b"x-request-timeout-ms", b"-1"),
    (b"x-request-timeout-ms", b"\xb2"),
    (b"inference-header-content-length", b"99999999999999999999"),
    (b"inference-header-content-length", b"0"),
    (b"inference-header-content-length", b"\xb2"),
    (b"content-length", b"18446744073709551616"),
    (b"content-length", b"\xb9"),
    (b"content-length", b"0"),
    (b"accept", b"application/octet-stream"),
    (b"authorization", b"Bearer \xff"),
    (b"traceparent", b"00-zz-1-2"),
]
FILE_NAMES = [
    b"",
    b"vocab.json",
    b"merges.txt",
    b"tokenizer.json",
    b"tokenizer_config.json",
    b"..",
    b"/",
]
FILE_NAMES += [
    b"../../etc/passwd",
    b"a\\b",
    b"vocab.txt",
    b"x.tiktoken",
    b"\xff",
    b"\x00",
    b"a" * 999,
]
FILE_NAMES += [b'a"; x="', b"vocab_config.json", b"a\r\nb", b"C:\\vocab.json", b"%2e%2e"]
ENDS = ["/", "//", "%2f", "%00", "%ff", "/..", ";", ".decode"]
MAX_BYTES = 50_000


def changed(rng: Random, message: Message, others: Sequence[Message]) -> Message:
    """Change one or several things in a message."""
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5, 8])):
        message = _once(rng, message, others)
    return message


def _once(rng: Random, message: Message, others: Sequence[Message]) -> Message:
    kind = rng.randrange(20)
    if message.method == "gRPC":
        return _of_grpc(rng, message, others)
    if kind == 0:
        return replace(message, path=_path(rng, message.path))
    if kind == 1:
        return replace(message, headers=_headers(rng, message.headers))
    if kind == 2:
        return replace(message, encoding=rng.choice(ENCODINGS))
    if kind == 3:
        other = rng.choice(others)
        return replace(message, bodies=other.bodies, parts=other.parts, body=other.body)
    if kind == 4 and message.encoding:
        return _wrapped_wrong(rng, message)
    if message.parts:
        return replace(message, parts=_files(rng, message.parts, others))
    body = MUTATORS.get(message.body, _bytes)(rng, message.bodies[0], rng.choice(others).bodies[0])
    return replace(message, bodies=(body[:MAX_BYTES],))


def _of_grpc(rng: Random, message: Message, others: Sequence[Message]) -> Message:
    """Change fields, or repeat, drop or replace messages of a stream."""
    bodies = list(message.bodies)
    place = rng.randrange(len(bodies))
    match rng.randrange(8):
        case 0:
            bodies.insert(place, rng.choice(bodies))
        case 1 if len(bodies) > 1:
            del bodies[place]
        case 2:
            bodies[place] = rng.choice(rng.choice(others).bodies)
        case 3:
            bodies[place] = _field(rng, bodies[place])
        case _:
            bodies[place] = _bytes(rng, bodies[place], rng.choice(others).bodies[0])[:MAX_BYTES]
    return replace(message, bodies=tuple(bodies[:20]))


def _field(rng: Random, body: bytes) -> bytes:
    """Add a field with a small number, any wire type and an odd value."""
    number, kind = rng.randint(1, 17), rng.choice([0, 2, 2, 2, 5, 1])
    value = rng.choice([_varint(rng.choice(NUMBERS) % 2**64), b"\xff" * 12])
    if kind == 2:
        content = rng.choice([b"", b"\xff", b"gpn", b"mine", b"A" * 99, bytes(rng.randrange(40))])
        value = _varint(len(content)) + content
    return body + _varint(number << 3 | kind) + (bytes(4 * (6 - kind)) if kind in (1, 5) else value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bytes(rng: Random, body: bytes, other: bytes) -> bytes:
    """Change bytes without knowing their format."""
    data = bytearray(body)
    place = rng.randrange(len(data) + 1)
    end = min(len(data), place + rng.choice([1, 2, 4, 8, 30, 200]))
    match rng.randrange(12):
        case 0 if place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        case 1 if place < len(data):
            data[place] = rng.choice([0, 1, 127, 128, 254, 255, rng.randrange(256)])
        case 2:
            del data[place:end]
        case 3:
            data[place:place] = data[place:end] * rng.choice([1, 2, 20])
        case 4:
            del data[place:]
        case 5:
            data[place:place] = rng.randbytes(rng.randrange(9))
        case 6:
            width = rng.choice([1, 2, 4, 8])
            number = (rng.choice(NUMBERS) + rng.randrange(-1, 2)) % 2 ** (8 * width)
            data[place : place + width] = number.to_bytes(width, rng.choice(["little", "big"]))
        case 7:
            begin = rng.randrange(len(other) + 1)
            data[place:end] = other[begin : begin + rng.randrange(100)]
        case 8:
            data[place:place] = rng.choice(ODD_TEXTS)
        case 9:
            data[place:place] = nasty_text(rng, max_pieces=3).encode()
        case 10:
            return nasty_bytes(rng, nasty_text(rng, max_pieces=4))
        case _:
            begin = rng.randrange(len(data) + 1)
            data[place:end], data[begin : begin + 8] = data[begin : begin + 8], data[place:end]
    return bytes(data)


def _json(rng: Random, body: bytes, other: bytes) -> bytes:
    """Exchange, remove, repeat or rename a JSON value; sometimes change only its bytes."""
    if rng.randrange(5) == 0:
        return _bytes(rng, body, other)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _bytes(rng, body, other)
    places = [*_places(value, 0)]
    if not places:
        return json.dumps(rng.choice(ODD_VALUES)).encode()
    holder, key = rng.choice(places)
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]] * rng.choice([1, 2, 50])
        case 2 if isinstance(holder, dict):
            holder[rng.choice([key + " ", key.upper(), "", "vocabulary", "é"])] = holder[key]
        case 3:
            source, name = rng.choice(places)
            holder[key] = source[name] if name in source or isinstance(source, list) else None
        case 4:
            holder[key] = nasty_text(rng, max_pieces=4)
        case _:
            holder[key] = rng.choice(ODD_VALUES)
    try:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(errors="replace")
    except (ValueError, RecursionError):  # A value inside of itself.
        return body


def _places(value: Any, depth: int) -> list[tuple[Any, Any]]:
    """List the places of a document: the container and the key."""
    if not isinstance(value, dict | list) or depth > 12:
        return []
    keys = [*value] if isinstance(value, dict) else [*range(len(value))]
    return [(value, key) for key in keys[:200]] + [
        place for key in keys[:50] for place in _places(value[key], depth + 1)
    ]


def _lines(rng: Random, body: bytes, other: bytes) -> bytes:
    if rng.randrange(3) == 0:
        return _bytes(rng, body, other)
    lines = body.split(b"\n")
    place = rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            del lines[place]
        case 1:
            lines.insert(place, rng.choice(lines))
        case 2:
            lines.insert(place, rng.choice(ODD_LINES))
        case 3:
            lines[place] = rng.choice(ODD_LINES)
        case _:
            lines[place] = nasty_text(rng, max_pieces=3).encode()
    return b"\n".join(lines)


def _tensors(rng: Random, body: bytes, other: bytes) -> bytes:
    """Change mostly the JSON head, whose length is then wrong; sometimes keep its length."""
    end = body.rfind(b"}") + 1
    if rng.randrange(2) and end:
        head = _json(rng, body[:end], other)
        return head.ljust(end)[:end] + body[end:] if rng.randrange(3) else head + body[end:]
    return _bytes(rng, body, other)


def _files(rng: Random, parts: Sequence[Part], others: Sequence[Message]) -> tuple[Part, ...]:
    files = list(parts)
    place = rng.randrange(len(files))
    file = files[place]
    match rng.randrange(6):
        case 0:
            files[place] = replace(file, name=rng.choice(FILE_NAMES))
        case 1 if len(files) > 1:
            del files[place]
        case 2:
            files += [replace(file, name=rng.choice(FILE_NAMES))] * rng.choice([1, 2, 12])
        case 3:
            files[place] = replace(file, body=rng.choice(others).bodies[0])
        case _:
            files[place] = replace(file, body=_json(rng, file.body, rng.choice(others).bodies[0]))
    return tuple(files)


def _path(rng: Random, path: str) -> str:
    place, _, query = path.partition("?")
    match rng.randrange(7):
        case 0:
            name, value = rng.choice(QUERY)
            return f"{path}{'&' if query else '?'}{name}={value}"
        case 1 if query:
            pairs = query.split("&")
            del pairs[rng.randrange(len(pairs))]
            return f"{place}?{'&'.join(pairs)}"
        case 2 if query:
            pairs = query.split("&")
            chosen = rng.randrange(len(pairs))
            pairs[chosen] = f"{pairs[chosen].partition('=')[0]}={rng.choice(QUERY)[1]}"
            return f"{place}?{'&'.join(pairs)}"
        case 3:
            return f"{place}{rng.choice(ENDS)}?{query}"
        case 4:
            pieces = place.split("/")
            pieces[rng.randrange(len(pieces))] = rng.choice(
                ["", "..", "gpn", "%ff", "9", "a" * 300]
            )
            return "/".join(pieces) + f"?{query}"
        case _:
            return f"{place}?{query}&{'%ff' if rng.randrange(2) else 'a=b&a=b'}"


QUERY_VALUES = {
    "vocabulary": ("gpn", "mine", "mtdna6", "", "none", "%ff", "a" * 99),
    "dtype": ("uint8", "uint16", "int64"),
    "max_length": ("0", "-1", "3", "99999999999999999999", "1e3", "%b2"),
    "window": ("1", "0", "1048576", "7", "-1"),
    "stride": ("1", "3", "9223372036854775808"),
    "format": ("auto", "tiktoken", "vocab.txt", "kmer", "canonical", "x"),
    "special_tokens": ("{}", "[", "{%22a%22:-1}", '{"<s>":99999999999999}'),
    "id_offset": ("1", "-1", "4000000", "99999999999999999999"),
    "pretokenizer": ("gpt2", "none", "llama3", "x", ""),
    "circular": ("true",),
    "reverse_complement": ("true",),
    "return_tokens": ("true",),
    "replace": ("true",),
    "special": ("refuse", "plain", "x"),
    "return_offsets": ("utf16", "bytes", "codepoints"),
    "model": ("gpn",),
    "if_digest": ("sha256:0",),
}
QUERY = [(name, value) for name, values in QUERY_VALUES.items() for value in values]


def _headers(
    rng: Random, headers: tuple[tuple[bytes, bytes], ...]
) -> tuple[tuple[bytes, bytes], ...]:
    kept = list(headers)
    if kept and rng.randrange(3) == 0:
        del kept[rng.randrange(len(kept))]
    return (*kept, rng.choice(HEADERS))


def _wrapped_wrong(rng: Random, message: Message) -> Message:
    """Change the compressed bytes."""
    body = _bytes(rng, message.content, b"\x1f\x8b\x08\x00" * 3)
    header = (b"content-encoding", message.encoding.encode())
    headers = (*message.headers, header)
    return replace(message, headers=headers, bodies=(body,), parts=(), encoding="", body="bytes")


MUTATORS: dict[str, Callable[[Random, bytes, bytes], bytes]] = {
    "json": _json,
    "lines": _lines,
    "tensors": _tensors,
}
