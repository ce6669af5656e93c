"""Prompts that are truncated when they are rendered: the ids are those of vLLM."""

from __future__ import annotations

import pytest

from service.engines.cpu.engine import CpuEngine
from tests.service.apis.dialects.calls import CHAT, CHAT_TEXT, ids_of, post, upload
from tests.support.app_client import serving
from tests.support.waiting import run

ENGINE = CpuEngine()
DNA = "ACGTTGCAACGTAGCATTGCATCGACTACGACTACGATCAGCATCGACTACGGGACTTTACGACA"


async def render(client, **body):
    answer = await post(client, "/v1/completions/render", **body)
    assert answer.status_code == 200, answer.text
    return [(each["token_ids"], each["token_offsets"]) for each in answer.json()]


def test_a_cut_prompt_keeps_its_last_ids_and_begin_and_end_tokens():
    """The library cuts the text's own ids and puts [CLS] and [SEP] around what is left."""

    async def scenario():
        async with serving(ENGINE) as (client, _):
            asked = {"model": "dnabert2", "prompt": DNA, "return_token_offsets": True}
            ((ids, places),) = await render(client, **asked)
            assert (ids[0], ids[-1]) == (1, 2)
            for most in (2, 3, 5, len(ids) - 1, len(ids), 10**6, 2**62):
                ((cut, cut_places),) = await render(client, **asked, truncate_prompt_tokens=most)
                expected = [1, *ids[1:-1][max(0, len(ids) - most) :], 2]
                assert cut == expected, most
                assert cut_places[1:-1] == places[1:-1][max(0, len(ids) - most) :]

    run(scenario)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_side_that_is_named_is_cut_with_its_begin_and_end_tokens(side):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            asked = {"model": "dnabert2", "prompt": DNA, "return_token_offsets": True}
            ((ids, places),) = await render(client, **asked)
            for most in (0, 1, 4, len(ids), 10**6):
                given = {"truncate_prompt_tokens": most, "truncation_side": side}
                kept = slice(most) if side == "right" else slice(max(0, len(ids) - most), None)
                assert await render(client, **asked, **given) == [(ids[kept], places[kept])]
            ready = {"prompt": [[5, 6, 7], [8]], "truncate_prompt_tokens": 2}
            left = [([6, 7], None), ([8], None)]
            assert await render(client, **ready, truncation_side="left") == left
            assert await render(client, **ready) == left
            right = [([5, 6], None), ([8], None)]
            assert await render(client, **ready, truncation_side="right") == right

    run(scenario)


def test_minus_one_is_what_the_models_length_leaves_beside_the_answer():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, model_max_length=20)
            ids = await ids_of(client, DNA)
            asked = {"model": "chat", "prompt": DNA, "truncate_prompt_tokens": -1}
            assert await render(client, **asked, max_tokens=5) == [(ids[-15:], None)]
            assert await render(client, **asked, max_tokens=None) == [(ids[-4:], None)]
            assert await render(client, **asked) == [(ids[-4:], None)]  # vLLM's default: 16.
            assert (await render(client, model="gpt2", prompt=DNA, truncate_prompt_tokens=-1))[0][
                0
            ] == ids
            for given in ({"max_tokens": 21}, {"truncate_prompt_tokens": 5}):
                answer = await post(client, "/v1/completions/render", **asked | given)
                assert answer.status_code == 400
                assert "leaves no room" in answer.json()["error"]["message"]

    run(scenario)


def test_a_chat_is_cut_as_text():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, model_max_length=20)
            ids = await ids_of(client, CHAT_TEXT)
            asked = {"model": "chat", "messages": CHAT}
            for most, given in (
                (3, {"truncate_prompt_tokens": 3}),
                (4, {"truncate_prompt_tokens": -1, "max_tokens": 16}),
                (5, {"truncate_prompt_tokens": -1, "max_tokens": 2, "max_completion_tokens": 15}),
            ):
                answer = await post(client, "/v1/chat/completions/render", **asked, **given)
                assert answer.json()["token_ids"] == ids[-most:]

    run(scenario)


def test_fewer_ids_than_begin_and_end_tokens_are_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"model": "dnabert2", "prompt": DNA, "truncate_prompt_tokens": 1}
            answer = await post(client, "/v1/completions/render", **body)
            assert answer.status_code == 400
            assert "begin and end tokens" in answer.json()["error"]["message"]

    run(scenario)
