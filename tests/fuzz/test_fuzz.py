"""A short, fixed part of the fuzzing that `python -m tests.fuzz` does for hours."""

from __future__ import annotations

import pytest

from service.engines.base import Engine
from service.engines.cpu.engine import CpuEngine
from tests.fuzz.faults import Answer, Lines, fault_of
from tests.fuzz.hunt import Hunt
from tests.fuzz.ids.random_ids import random_hunt
from tests.fuzz.inputs.messages import CANARY, Message
from tests.fuzz.open_apis import open_apis
from tests.support.each_engine import MARKS, make_engine
from tests.support.waiting import run

NUM_CASES = 1_500
# Also gpt2, or the first case that asks for it takes a second of the two that a case may take.
SMALL = {"preload": "gpn,hyenadna,evo_bytes,gpt2", "default_vocabulary": "gpn"}


def test_changed_messages_are_answered_or_refused_and_never_logged():
    async def scenario() -> Hunt:
        async with open_apis(CpuEngine(), **SMALL) as apis:
            hunt = Hunt(apis, seed=0)
            await hunt.run(range(NUM_CASES))
            return hunt

    hunt = run(scenario)
    assert [str(found) for found in hunt.found] == []
    assert hunt.statuses["requests 200"] > 100
    assert hunt.statuses["uploads 201"] > 10
    assert hunt.num_uploads > 100


@pytest.mark.parametrize("kind", ["cpu", pytest.param("emulated", marks=MARKS["emulated"])])
def test_random_vocabularies_have_the_references_ids_over_http(kind):
    differences: list[str] = []
    engines: list[Engine] = []

    def new_engine() -> Engine:
        engines.append(make_engine(kind))
        return engines[-1]

    num_vocabularies, _ = random_hunt(15, 1, differences.append, new_engine)
    assert differences == []
    assert num_vocabularies >= 5
    assert {engine.name for engine in engines} == {"cpu" if kind == "cpu" else "gpu"}


GET, INFER = Message("GET", "/v1/info"), Message("POST", "/v2/models/gpn/infer")
PROBLEM = {b"content-type": b"application/problem+json"}


@pytest.mark.parametrize(
    ("message", "answer", "line", "words"),
    [
        (GET, Answer(500, {}, b"{}"), "", "500"),
        (GET, Answer(200, {}, b'{"errors":[{"code":"engine_failed"}]}'), "", "engine failed"),
        (GET, Answer(404, PROBLEM, b"no"), "", "not JSON"),
        (GET, Answer(404, PROBLEM, b"{}"), "", "another shape"),
        (INFER, Answer(404, PROBLEM, b'{"error":"x"}'), "", "another shape"),
        (GET, Answer(200, {}, b"{}"), f"a line with {CANARY}", "input is in the log"),
        (GET, Answer(200, {}, b"{}"), "1 2 ERROR service: x", "log says"),
        (Message("gRPC", "/a/B"), Answer(13, {}, b""), "", "INTERNAL"),
    ],
)
def test_what_is_wrong_is_seen(message, answer, line, words):
    log = Lines()
    log.lines += [line] if line else []
    assert words in fault_of(message, answer, log)
