"""Measures where the time of a batch goes, from the JSON of texts to the JSON of ids.

    python -m benchmarks.engine.stages --data FOLDER --out FILE [--device cuda]

Stages are measured apart, in turns. On a CPU: read the JSON, join the texts, encode, write the
JSON. On a GPU the encoding is three stages: copy the text to the device, kernels by CUDA events,
copy the ids back. `whole` is the engine's own call, in which they overlap.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.support.corpora import FILES, numbers
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.timing import Run, clocked, summary, take_turns
from gpu.runtime.device import Device
from service.engines.cpu.engine import CpuEngine
from service.operations.operation import parse
from service.operations.rendering.json_stream import rows_json
from service.operations.schemas import EncodeBatchRequest
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

CONTENT = EncodeOptions(add_special_tokens=False)
VOCABULARIES = ("gpt2", "dnabert2", "nt_v2", "hyenadna")
SIZES = ((64, 512), (4096, 512))
PROVED_ROWS = 8
"""Rows whose ids are compared with the reference; all are compared between the engines."""

SLICE_S = 0.02
WORKSPACE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of equal rows and its vocabulary.

    Attributes:
        body: the JSON of the request.
        texts: the texts in it.
        data: uint8[N], the texts joined.
        offsets: int64[B + 1].
        ids: int32[T], the right ids, and `ends` where each row ends.
    """

    vocabulary: Vocabulary
    name: str
    body: bytes
    texts: list[str]
    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ids: NDArray[np.int32]
    id_offsets: NDArray[np.int64]


def make_case(name: str, num_rows: int, row_bytes: int, english: bytes) -> Case:
    """Make a batch, of English or of random bases, and its ids.

    Raises:
        AssertionError: the engine has other ids than the reference.
    """
    vocabulary = load(name)
    if name == "gpt2":
        whole = english[: num_rows * row_bytes].decode("ascii", "replace").replace("\ufffd", "?")
    else:
        letters = np.frombuffer(b"ACGT", np.uint8)
        drawn = numbers(1, num_rows * row_bytes // 8 + 1).view(np.uint8)[: num_rows * row_bytes]
        whole = letters[drawn & 3].tobytes().decode()
    texts = [whole[begin : begin + row_bytes] for begin in range(0, len(whole), row_bytes)]
    batch = Batch(texts, options=CONTENT)
    encoded = CpuEngine().encode(vocabulary, batch)
    for row in range(PROVED_ROWS):
        right = reference.encode(vocabulary, texts[row], CONTENT).ids
        assert encoded.row(row).tolist() == right, f"{name}: row {row} has other ids"
    body = orjson.dumps({"vocabulary": name, "texts": texts, "add_special_tokens": False})
    ids = encoded.ids.astype(np.int32)
    return Case(vocabulary, name, body, texts, batch.data, batch.offsets, ids, encoded.offsets)


def outer_stages(case: Case) -> dict[str, Run]:
    """Return the stages that do not depend on the engine: the first and the last."""
    return {
        "read": clocked(lambda: parse(EncodeBatchRequest, case.body)),
        "write": clocked(lambda: rows_json(case.ids, case.id_offsets)),
    }


def cpu_stages(case: Case) -> dict[str, Run]:
    """Return the stages on the CPU."""
    engine = CpuEngine()

    def encode() -> Any:
        return engine.encode(
            case.vocabulary, Batch(data=case.data, offsets=case.offsets, options=CONTENT)
        )

    assert np.array_equal(encode().ids, case.ids)
    return {
        **outer_stages(case),
        "join": clocked(lambda: Batch(case.texts).data),
        "encode": clocked(encode),
        "whole": clocked(
            lambda: engine.encode(case.vocabulary, Batch(case.texts, options=CONTENT))
        ),
    }


@contextmanager
def gpu_stages(ways: GpuWays, case: Case) -> Iterator[dict[str, Run]]:
    """Yield, once, the function that runs each stage on a GPU, by name of the stage.

    Raises:
        AssertionError: the kernels compute other ids than the CPU engine.
    """
    pinned = ways.pinned(case.data)
    pinned_ids = ways.pinned(case.ids.view(np.uint8))
    with (
        ways.kernels(case.vocabulary, pinned, case.offsets) as kernels,
        ways.copies(pinned) as text_copies,
        ways.copies(pinned_ids) as id_copies,
    ):
        kernels.run()
        assert np.array_equal(kernels.ids(), case.ids), f"{case.name}: other ids by the kernels"

        def whole() -> None:
            batch = Batch(case.texts, options=CONTENT)
            ways.engine.join(batch)
            ways.engine.encode(case.vocabulary, batch)

        yield {
            **outer_stages(case),
            "join": clocked(lambda: ways.engine.join(Batch(case.texts))),
            "copy in": text_copies["host_to_device"],
            "kernels": kernels.run,
            "copy out": id_copies["device_to_host"],
            "whole": clocked(whole),
        }


def measure(case: Case, engine: str, stages: dict[str, Run], rounds: int) -> dict[str, Any]:
    """Time the stages of a case in turns; return a row of the results."""
    samples = take_turns(stages, rounds, SLICE_S, warmups=2)
    print(f"{case.name:10} {len(case.texts):6} rows, {engine}:", end="")
    for name, seconds in samples.items():
        print(f"  {name} {1e6 * summary(seconds)['median_s']:.0f} us", end="")
    print(flush=True)
    whole = samples.pop("whole")
    return {
        "engine": engine,
        "vocabulary": case.name,
        "rows": len(case.texts),
        "bytes": len(case.data),
        "ids": len(case.ids),
        "stages": {name: summary(seconds) for name, seconds in samples.items()},
        "whole": summary(whole),
    }


def run(
    english: bytes, sizes: tuple[tuple[int, int], ...], rounds: int, device: Device | None
) -> list[dict[str, Any]]:
    """Measure all cases on the CPU, and on the device where there is one."""
    rows = []
    ways = None if device is None else GpuWays(device, WORKSPACE_BYTES)
    for name in VOCABULARIES:
        for num_rows, row_bytes in sizes:
            case = make_case(name, num_rows, row_bytes, english)
            rows.append(measure(case, "cpu", cpu_stages(case), rounds))
            if ways is not None:
                with gpu_stages(ways, case) as stages:
                    rows.append(measure(case, "gpu", stages, rounds))
    if ways is not None:
        ways.engine.close()
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of published files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args(arguments)
    english = b"".join((given.data / "text" / name).read_bytes() for name in FILES["english"])
    facts, device = machine(("numpy", "orjson")), None
    if given.device == "cuda":
        from gpu.runtime.cuda_device import CudaDevice

        device = CudaDevice()
        facts |= device_facts(device.info)
    rows = run(english, SIZES, given.rounds, device)
    given.out.write_text(json.dumps({"machine": facts, "stages": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
