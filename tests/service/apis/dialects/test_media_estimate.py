"""Images and documents are refused, or with `estimate_media` counted by the stated estimate."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from service.apis.dialects.media_estimate import count_image_ids, count_pages, find_size
from service.engines.cpu.engine import CpuEngine
from tests.service.apis.dialects.calls import CHAT, post, upload
from tests.support.app_client import serving
from tests.support.waiting import run

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 600, 500)
GIF = b"GIF89a" + struct.pack("<HH", 600, 500)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 500, 600)
WEBP = (
    b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 600, 500),
    b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 599 | 499 << 14),
    b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x57\x02\x00\xf3\x01\x00",
)
PDF = b"%PDF-1.4 << /Type /Pages /Count 2 >> << /Type /Page >> <</Type/Page/Parent 1 0 R>>"
PACKED = b"%PDF-1.5 << /Type /ObjStm /Length 9 >>\nstream\n" + zlib.compress(PDF) + b"\nendstream"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("image", [PNG, GIF, JPEG, *WEBP])
def test_the_size_of_an_image_is_in_its_begin(image):
    assert find_size(image) == (600, 500)
    assert count_image_ids(encoded(image)) == 400
    for end in range(len(image)):
        assert find_size(image[:end]) in (None, (600, 500))


def test_large_and_unknown_images_have_the_most_ids():
    assert count_image_ids(encoded(GIF[:6] + struct.pack("<HH", 9999, 9999))) == 1600
    for data in ("", "no base64", encoded(b"BM of another kind"), encoded(b"\xff\xd8\xff")):
        assert count_image_ids(data) == 1600


def test_pages_are_counted_in_packed_objects_too():
    assert count_pages(encoded(PDF)) == count_pages(encoded(PACKED)) == 2
    assert count_pages(encoded(b"%PDF-1.7 unreadable")) == 1


IMAGE = {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}
MEDIA = [
    ({"type": "image", "source": IMAGE}, 1, 0, 400),
    ({"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}, 1, 0, 1600),
    ({"type": "document", "source": IMAGE | {"data": encoded(PDF)}}, 0, 1, 6000),
    ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, 0, 1, 3000),
    (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(PNG)}"}},
        1,
        0,
        400,
    ),
    ({"type": "input_image", "image_url": f"data:image/png;base64,{encoded(PNG)}"}, 1, 0, 400),
    ({"type": "input_image", "file_id": "file_1"}, 1, 0, 1600),
    (
        {"type": "input_file", "file_data": f"data:application/pdf;base64,{encoded(PDF)}"},
        0,
        1,
        6000,
    ),
]
ANTHROPIC, RESPONSES = "/v1/messages/count_tokens", "/v1/responses/input_tokens"


def message(*parts) -> list[dict[str, object]]:
    return [{"role": "user", "content": [{"type": "text", "text": CHAT[0]["content"]}, *parts]}]


def test_counts_have_the_estimate_and_say_so():
    async def scenario():
        async with serving(CpuEngine(), estimate_media=True) as (client, _):
            await upload(client)
            for path, field in ((ANTHROPIC, "messages"), (RESPONSES, "input")):
                plain = (await post(client, path, model="chat", **{field: message()})).json()
                assert "estimated" not in plain
                for part, images, documents, tokens in MEDIA:
                    got = (await post(client, path, model="chat", **{field: message(part)})).json()
                    assert got["input_tokens"] == plain["input_tokens"] + tokens, part
                    described = {"images": images, "documents": documents, "tokens": tokens}
                    assert got["estimated"] == described
            text = {"type": "document", "source": {"type": "text", "data": "Some words."}}
            got = (await post(client, ANTHROPIC, model="chat", messages=message(text))).json()
            words = {"type": "text", "text": "Some words."}
            same = (await post(client, ANTHROPIC, model="chat", messages=message(words))).json()
            assert got["input_tokens"] == same["input_tokens"]
            assert got["estimated"] == {"images": 0, "documents": 1, "tokens": 0}
            result = {"type": "tool_result", "tool_use_id": "a", "content": [MEDIA[0][0]]}
            got = (await post(client, ANTHROPIC, model="chat", messages=message(result))).json()
            assert got["estimated"]["images"] == 1
            plain = (await post(client, "/tokenize/count", model="chat", messages=message())).json()
            chat = message(MEDIA[4][0])
            got = (await post(client, "/tokenize/count", model="chat", messages=chat)).json()
            assert (got["count"], got["estimated"]["images"]) == (plain["count"] + 400, 1)
            for path in ("/tokenize", "/v1/chat/completions/render"):
                refused = await post(client, path, model="chat", messages=message(MEDIA[4][0]))
                assert refused.status_code == 400

    run(scenario)


def test_without_the_setting_media_are_refused():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            await upload(client)
            for path, field in ((ANTHROPIC, "messages"), (RESPONSES, "input")):
                for part, *_ in MEDIA:
                    got = await post(client, path, model="chat", **{field: message(part)})
                    assert got.status_code == 400

    run(scenario)
