"""Ids that an engine has generated, as one answer and as a stream whose state the client holds."""

from __future__ import annotations

import json

import pytest

from service.engines.cpu.engine import CpuEngine
from tests.service.apis.dialects.calls import ids_of
from tests.support.app_client import serving
from tests.support.waiting import run

ENGINE = CpuEngine()
CHAT, COMPLETION = "/v1/chat/completions/derender", "/v1/completions/derender"
TEXT = "Hello, wörld! 👩‍🚀 北京 <|endoftext|>done"
END = 50256
# Begins each word with a sign that becomes a space, unless the text begins with it: Llama-2's way.
METASPACE = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 4,
            "content": "<s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
    "post_processor": None,
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
    "model": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["▁b", -1.0], ["c", -1.0]],
    },
}


def answer(ids, **fields):
    return {"request_id": "r-1", "choices": [{"index": 0, "token_ids": ids, **fields}]}


async def post(client, path, status=200, **body):
    got = await client.post(path, json={"model": "gpt2", **body})
    assert got.status_code == status, got.text
    return got.json()


def test_one_answer_to_a_chat():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            ids = await ids_of(client, TEXT)
            body = {
                "generate_response": answer(ids, finish_reason="length")
                | {"kv_transfer_params": {"a": 1}},
                "prompt_tokens": 7,
            }
            got = await post(client, CHAT, **body)
            assert (got["id"], got["object"], got["model"]) == ("r-1", "chat.completion", "gpt2")
            (choice,) = got["choices"]
            assert choice["message"]["content"] == TEXT.replace("<|endoftext|>", "")
            assert choice["message"]["role"] == "assistant"
            assert choice["message"]["tool_calls"] == []
            assert choice["finish_reason"] == "length"
            usage = {"prompt_tokens": 7, "completion_tokens": len(ids)}
            usage |= {"total_tokens": 7 + len(ids), "prompt_tokens_details": None}
            assert got["usage"] == usage
            assert got["kv_transfer_params"] == {"a": 1}
            body["chat_request"] = {"messages": [], "skip_special_tokens": False}
            got = await post(client, CHAT, **body)
            assert got["choices"][0]["message"]["content"] == TEXT

    run(scenario)


def test_the_answers_to_several_prompts():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            first, second = await ids_of(client, "one"), await ids_of(client, " two three")
            two = answer(first)
            two["choices"].append({"index": 1, "token_ids": second, "finish_reason": None})
            responses = [two, answer(second) | {"request_id": "r-2"}]
            got = await post(client, COMPLETION, generate_responses=responses, prompt_tokens=[3, 4])
            assert (got["id"], got["object"]) == ("r-1", "text_completion")
            texts = [(each["index"], each["text"]) for each in got["choices"]]
            assert texts == [(0, "one"), (1, " two three"), (2, " two three")]
            reasons = [each["finish_reason"] for each in got["choices"]]
            assert reasons == ["stop", None, "stop"]
            assert got["usage"]["total_tokens"] == 7 + len(first) + 2 * len(second)
            assert got["kv_transfer_params"] is None

    run(scenario)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("path", [CHAT, COMPLETION])
def test_a_stream_gives_the_text_of_one_answer_whatever_its_parts(path, size):
    """Characters of several ids come whole; the state is small, whatever the length."""

    async def scenario():
        async with serving(ENGINE) as (client, _):
            ids = await ids_of(client, TEXT * 3)
            text, state, roles = "", None, []
            for begin in range(0, len(ids), size):
                part = ids[begin : begin + size]
                reason = "stop" if begin + size >= len(ids) else None
                got = await post(
                    client,
                    path,
                    stream=True,
                    generate_chunk=answer(part, finish_reason=reason),
                    stream_state=state,
                )
                state = got["stream_state"]
                assert len(json.dumps(state)) < 400
                (choice,) = got["chunk"]["choices"]
                assert choice["finish_reason"] == reason
                piece = choice["delta"].get("content", "") if path == CHAT else choice["text"]
                assert "\ufffd" not in piece
                text += piece
                roles.append(choice.get("delta", {}).get("role"))
            assert text == (TEXT * 3).replace("<|endoftext|>", "")
            assert roles[0] == ("assistant" if path == CHAT else None)
            assert not any(roles[1:])
            last = {"request_id": "r-1", "choices": [], "usage": {"completion_tokens": 9}}
            got = await post(
                client, path, stream=True, generate_chunk=last, stream_state=state, prompt_tokens=4
            )
            assert got["chunk"]["choices"] == []
            assert got["chunk"]["usage"]["total_tokens"] == 13
            assert got["stream_state"] == state

    run(scenario)


def test_the_end_of_a_stream_writes_what_is_left():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            ids = (await ids_of(client, "👩"))[:-1]
            got = await post(client, CHAT, stream=True, generate_chunk=answer(ids))
            assert got["chunk"]["choices"][0]["delta"] == {"role": "assistant"}
            end = answer([], finish_reason="length")
            state = got["stream_state"]
            got = await post(client, CHAT, stream=True, generate_chunk=end, stream_state=state)
            assert got["chunk"]["choices"][0]["delta"] == {"content": "\ufffd"}
            whole = await post(client, CHAT, generate_response=answer(ids))
            assert whole["choices"][0]["message"]["content"] == "\ufffd"

    run(scenario)


@pytest.mark.parametrize("size", [127, 1017, 1023, 1024])
def test_a_stream_of_bytes_that_are_no_characters_goes_on_with_its_state(size):
    byte = 222  # 0x80 in GPT-2, which begins no character.

    async def scenario():
        async with serving(ENGINE) as (client, _):
            text, state = "", None
            for _ in range(10):
                got = await post(
                    client,
                    CHAT,
                    stream=True,
                    generate_chunk=answer([byte] * size),
                    stream_state=state,
                    prompt_token_ids=[*range(10, 20)],
                )
                state = got["stream_state"]
                assert len(state["prev_token_ids"]) <= 1024
                text += got["chunk"]["choices"][0]["delta"].get("content", "")
            end = answer([], finish_reason="length")
            got = await post(client, CHAT, stream=True, generate_chunk=end, stream_state=state)
            text += got["chunk"]["choices"][0]["delta"].get("content", "")
            assert text == "\ufffd" * size * 10

    run(scenario)


def test_a_text_goes_on_behind_its_prompt():
    """The first word of an answer keeps the blank in front of it if the prompt is known."""

    async def scenario():
        async with serving(ENGINE) as (client, _):
            made = await client.put("/v1/vocabularies/meta", content=json.dumps(METASPACE))
            assert made.status_code == 201, made.text
            ids = [1, 3, 2]
            alone = await post(client, CHAT, model="meta", generate_response=answer(ids))
            assert alone["choices"][0]["message"]["content"] == "ac b"
            known = {"generate_response": answer(ids), "prompt_token_ids": [4, 1, 1]}
            behind = await post(client, CHAT, model="meta", **known)
            assert behind["choices"][0]["message"]["content"] == " ac b"
            known = {"generate_responses": [answer(ids) | {"prompt_token_ids": [1]}]}
            behind = await post(client, COMPLETION, model="meta", **known)
            assert behind["choices"][0]["text"] == " ac b"
            text, state = "", None
            for each in ids:
                got = await post(
                    client,
                    COMPLETION,
                    model="meta",
                    stream=True,
                    generate_chunk=answer([each]),
                    stream_state=state,
                    prompt_token_ids=[2],
                )
                state = got["stream_state"]
                text += got["chunk"]["choices"][0]["text"]
            assert text == " ac b"

    run(scenario)


@pytest.mark.parametrize("is_old", [False, True])
def test_log_probabilities_get_the_texts_and_bytes_of_their_ids(is_old):
    def candidate(token_id, logprob):
        name = {"token": f"token_id:{token_id}"} if is_old else {"token_id": token_id}
        return {**name, "logprob": logprob, "rank": 1}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            ids = await ids_of(client, "Hello, 👩")
            content = [
                {**candidate(each, -0.5), "top_logprobs": [candidate(ids[0], -2.0)]} for each in ids
            ]
            generated = answer(ids, logprobs={"content": content})
            got = await post(client, CHAT, generate_response=generated)
            described = got["choices"][0]["logprobs"]["content"]
            assert described[0]["token"] == "Hello"
            assert described[0]["top_logprobs"] == [
                {"token": "Hello", "logprob": -2.0, "bytes": list(b"Hello")}
            ]
            joined = bytes(byte for place in described for byte in place["bytes"])
            assert joined.decode() == "Hello, 👩"
            got = await post(client, COMPLETION, generate_responses=[generated])
            flat = got["choices"][0]["logprobs"]
            assert flat["tokens"][:2] == ["Hello", ","]
            assert flat["text_offset"][:3] == [0, 5, 6]
            assert flat["token_logprobs"] == [-0.5] * len(ids)
            assert flat["top_logprobs"][0] == {"Hello": -2.0}
            part = {"stream": True, "generate_chunk": generated}
            state = {"prev_token_ids": [], "read_offset": 0, "logprob_text_offset": 10}
            got = await post(client, COMPLETION, **part, stream_state=state)
            assert got["chunk"]["choices"][0]["logprobs"]["text_offset"][:2] == [10, 15]

    run(scenario)


REFUSED = [
    (CHAT, {}, 400, "/generate_response"),
    (COMPLETION, {}, 400, "/generate_responses"),
    (COMPLETION, {"generate_responses": []}, 400, "/generate_responses"),
    (CHAT, {"stream": True}, 400, "/generate_chunk"),
    (CHAT, {"generate_response": answer([])}, 400, "/generate_response/choices/0"),
    (CHAT, {"generate_response": answer(None)}, 400, "/generate_response/choices/0"),
    (CHAT, {"generate_response": answer([-1])}, 400, "/generate_response/choices/0/token_ids/0"),
    (CHAT, {"generate_response": answer([50257])}, 400, "/generate_response"),
    (CHAT, {"generate_response": answer([1]) | {"output_mode": "text"}}, 400, "output_mode"),
    (CHAT, {"generate_response": answer([1]), "prompt_tokens": 1e30}, 400, "/prompt_tokens"),
    (COMPLETION, {"generate_responses": [answer([1])], "prompt_tokens": -1}, 400, "/prompt_tokens"),
    (
        COMPLETION,
        {"generate_responses": [answer([1])], "prompt_tokens": [1, 2]},
        400,
        "/prompt_tokens",
    ),
    (
        COMPLETION,
        {"generate_responses": [answer([1])], "prompt_token_ids": [["x"]]},
        400,
        "/prompt_token_ids",
    ),
    (
        CHAT,
        {"stream": True, "generate_chunk": {"choices": [{"token_ids": [1]}] * 2}},
        400,
        "/generate_chunk/choices",
    ),
    (
        CHAT,
        {"stream": True, "generate_chunk": answer([1]), "stream_state": {"read_offset": 1}},
        400,
        "/stream_state",
    ),
    (
        CHAT,
        {
            "stream": True,
            "generate_chunk": answer([1]),
            "stream_state": {"prev_token_ids": [1] * 1025},
        },
        400,
        "/stream_state/prev_token_ids",
    ),
    (
        CHAT,
        {
            "stream": True,
            "generate_chunk": answer([1]),
            "stream_state": {"prev_token_ids": [1, 50257], "read_offset": 2},
        },
        400,
        "/stream_state: contains an id that the vocabulary does not have",
    ),
    (CHAT, {"model": "no/ne", "generate_response": answer([1])}, 404, "/model"),
]


@pytest.mark.parametrize(("path", "body", "status", "where"), REFUSED)
def test_what_cannot_be_decoded_is_refused_with_its_place(path, body, status, where):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            got = await post(client, path, status, **body)
            assert where in got["error"]["message"]

    run(scenario)
