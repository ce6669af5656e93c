"""The call windows against the windows of the mtDNA model's document, in plain Python."""

from __future__ import annotations

import itertools

import pytest

from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.inputs.paper_windows import paper_windows
from tests.support.waiting import run

ENGINE = CpuEngine()
SEQUENCE = "GATCACAGGTCTATCACCCTNATTAACC"
LEVELS = [number / 32 for number in range(len(SEQUENCE))]
REQUEST = {"vocabulary": "mtdna6", "sequence": SEQUENCE, "window": 8, "stride": 5}
CIRCLES = [(True, "append"), (True, "prepend"), (True, None), (False, None)]
CASES = list(itertools.product(CIRCLES, [False, True], [5, 8, 40]))


@pytest.mark.parametrize(("circle", "add_cls", "window"), CASES)
def test_windows_are_those_of_the_document(circle, add_cls, window):
    circular, junction = circle
    expected = paper_windows(
        SEQUENCE,
        window=window,
        stride=5,
        circular=circular,
        junction=junction or "append",
        add_cls=add_cls,
        levels=LEVELS,
    )

    async def scenario():
        async with serving(ENGINE) as (client, _):
            change = {"circular": circular, "add_cls": add_cls, "channel": LEVELS, "window": window}
            if junction is not None:
                change["junction"] = junction
            answer = await client.post("/v1/windows", json=REQUEST | change)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            assert body["starts"] == [each["start"] for each in expected]
            for name in ("input_ids", "attention_mask", "position_ids", "het_values"):
                assert body[name] == [each[name] for each in expected], name

    run(scenario)


def test_positions_of_the_other_strand_count_in_the_sequence_as_sent():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            change = {"circular": True, "reverse_complement": True, "window": 28, "stride": 28}
            answers = {}
            for junction in ("append", "prepend"):
                body = REQUEST | change | {"junction": junction}
                answers[junction] = (await client.post("/v1/windows", json=body)).json()
            for name in ("input_ids", "position_ids"):
                (append,), (prepend,) = answers["append"][name], answers["prepend"][name]
                assert prepend == append[-5:] + append[:-5]
            (positions,), length = answers["append"]["position_ids"], len(REQUEST["sequence"])
            assert positions[:length] == [(length - 6 - i) % length for i in range(length)]

    run(scenario)


WRONG = [
    (
        {"junction": "prepend"},
        "/junction",
        "must not be given, because the sequence is not circular",
    ),
    ({"junction": "append", "circular": False}, "/junction", "the sequence is not circular"),
    ({"junction": "middle", "circular": True}, "/junction", "append"),
    (
        {"vocabulary": "dnabert1_6mer", "junction": "prepend", "circular": True},
        "/junction",
        "several tokens",
    ),
    ({"vocabulary": "gpn", "add_cls": True}, "/add_cls", "no [CLS]"),
    ({"vocabulary": "gpt2"}, "/vocabulary", "no padding token"),
]


@pytest.mark.parametrize(("change", "where", "reason"), WRONG)
def test_an_option_that_does_not_fit_is_named(change, where, reason):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post("/v1/windows", json=REQUEST | change)
            assert (answer.status_code, answer.json()["where"]) == (422, where), answer.text
            assert reason in answer.json()["detail"]

    run(scenario)
