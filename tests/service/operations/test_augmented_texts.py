"""The fields `augmentation` and `return_kernel_time` of the JSON calls."""

from __future__ import annotations

from itertools import pairwise

from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.batch.batch import Batch
from vocabularies.sequences.augmentation import Augmentation, augment

ENGINE = CpuEngine()
TEXTS = ["ACGTACGTACGTNN", "", "GATTACA" * 5, "acgt"]
OPTIONS = {"seed": 2**64 - 1, "crop_letters": 9, "substitution_rate": 0.5, "first_row": 3}


def test_sequences_are_changed_as_in_python():
    batch = Batch(TEXTS)
    data, offsets = augment(batch.data, batch.offsets, Augmentation(**OPTIONS))
    changed = [data[begin:end].tobytes().decode() for begin, end in pairwise(offsets)]
    request = {"vocabulary": "hyenadna", "reverse_complement": [True, False, True, False]}

    async def scenario():
        async with serving(ENGINE) as (client, _):

            async def post(texts, **more):
                body = {**request, "texts": texts, **more}
                return await client.post("/v1/encode/batch", json=body)

            made = (await post(TEXTS, augmentation=OPTIONS, return_tokens=True)).json()
            assert made == (await post(changed, return_tokens=True)).json()
            assert changed != TEXTS
            for texts, more, where in (
                (TEXTS, {"vocabulary": "gpt2"}, "/augmentation"),
                (TEXTS, {"return_offsets": "bytes"}, "/return_offsets"),
                (["A", "é", "", ""], {}, "/texts/1"),
                (TEXTS, {"augmentation": OPTIONS | {"seed": 2**64}}, "/augmentation/seed"),
                (TEXTS, {"augmentation": {}}, "/augmentation/seed"),
                (TEXTS, {"augmentation": {"seed": 1, "crop": 2}}, "/augmentation/crop"),
            ):
                answer = await post(texts, **({"augmentation": OPTIONS} | more))
                assert answer.status_code == 422, answer.text
                assert answer.json()["where"] == where, answer.text

    run(scenario)


def test_the_time_of_the_engine_is_answered_where_it_is_requested():
    calls = [
        ("/v1/encode", {"vocabulary": "gpt2", "text": "Hello"}),
        ("/v1/encode/batch", {"vocabulary": "gpt2", "texts": ["Hello", ""]}),
        ("/v1/count", {"vocabulary": "gpt2", "texts": ["Hello"]}),
        ("/v1/windows", {"vocabulary": "mtdna6", "sequence": "GATCACAG"}),
        ("/v1/chunks", {"vocabulary": "gpt2", "text": "Hello"}),
    ]

    async def scenario():
        async with serving(ENGINE) as (client, _):
            for path, body in calls:
                plain = (await client.post(path, json=body)).json()
                timed = (await client.post(path, json=body | {"return_kernel_time": True})).json()
                assert 0 < timed.pop("kernel_time") < 60
                assert timed == plain

    run(scenario)
