"""Times `warptok corpus` beside datatrove, Megatron's script and datasets, file to shards."""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson

from benchmarks.corpus.files import write_files
from benchmarks.corpus.limits import measure_limits
from benchmarks.corpus.processes import CommandFailed, Measurement, measure
from benchmarks.support.machine import machine
from gpu.host.cores import usable_cores

ROOT = Path(__file__).parents[2]
RIVALS = ("megatron", "datatrove", "datasets")
READS = {
    "megatron": ("jsonl",),
    "datatrove": ("jsonl", "jsonl.zst", "parquet"),
    "datasets": ("jsonl", "parquet"),
}
"""The files that each reads."""
OURS = {"megatron": "megatron", "datatrove": "datatrove", "datasets": "arrow"}
"""Our format with the ids that each writes."""
MEGA = 1e6
START_BYTES = 1_000_000
OUR_TIMES = 3  # A run of ours takes a second or two.
PACKAGES = ("numpy", "tokenizers", "pyarrow", "datatrove", "megatron-core", "datasets")


def main() -> None:
    """Compare, time in turns, and write one JSON document."""
    arguments = _parse()
    with TemporaryDirectory(dir=arguments.folder) as name:
        document = run(arguments, Path(name))
    text = json.dumps(document, indent=2)
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="FOLDER of benchmarks/README.md")
    parser.add_argument("--megabytes", type=int, default=512, help="text of ours (default: 512)")
    parser.add_argument("--part", type=int, default=24, help="MB of the others (default: 24)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other-python", metavar="PYTHON", help="one with the others' packages")
    parser.add_argument("--only", nargs="+", choices=RIVALS, default=RIVALS, help="others to time")
    parser.add_argument("--add", type=Path, metavar="FILE", help="keep what a run has written")
    parser.add_argument("--folder", type=Path, help="where files are written (default: /tmp)")
    parser.add_argument("--out", type=Path, metavar="FILE")
    return parser.parse_args()


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the whole benchmark in a folder; return the document."""
    tokenizer = folder / "tokenizer.json"
    packed = arguments.data / "vocab" / "gpt2" / "tokenizer.json.xz"
    tokenizer.write_bytes(lzma.decompress(packed.read_bytes()))
    whole = write_files(folder / "whole", arguments.data, arguments.megabytes * 10**6)
    part = write_files(folder / "part", arguments.data, arguments.part * 10**6)
    start = write_files(folder / "start", arguments.data, START_BYTES)
    text_bytes = {
        "whole": _text_bytes(whole["jsonl"]) - _text_bytes(start["jsonl"]),
        "part": _text_bytes(part["jsonl"]) - _text_bytes(start["jsonl"]),
    }
    rivals = arguments.only if arguments.other_python else ()
    proofs = {
        rival: prove(rival, part["jsonl"], tokenizer, arguments.other_python, folder)
        for rival in rivals
    }
    earlier = json.loads(arguments.add.read_text()) if arguments.add else {"rows": [], "proofs": {}}
    rows: list[dict[str, Any]] = earlier["rows"]
    for _ in range(arguments.rounds):
        for kind, path in [*whole.items()] * OUR_TIMES:
            first, taken = time_ours(start[kind], folder), time_ours(path, folder)
            ours = _row("warptok", kind, text_bytes["whole"], subtract_start(first, taken))
            rows.append({**ours, "start_seconds": first.seconds})
        for rival in rivals:
            for kind in READS[rival]:
                python = arguments.other_python
                begin = time_rival(rival, start[kind], tokenizer, python, folder)
                ended = time_rival(rival, part[kind], tokenizer, python, folder)
                rows.append(_row(rival, kind, text_bytes["part"], subtract_start(begin, ended)))
    return {
        "machine": machine(PACKAGES),
        "text_bytes": text_bytes,
        "proofs": earlier["proofs"] | proofs,
        "limits_mb_per_s": measure_limits(whole, text_bytes["whole"], folder),
        "figures": summarize(rows),
        "rows": rows,
    }


def _text_bytes(path: Path) -> int:
    with open(path, "rb") as lines:
        return sum(len(orjson.loads(line)["text"].encode()) for line in lines)


def _ours(source: Path, out: Path, format: str) -> list[str]:
    command = [sys.executable, "-m", "service", "corpus", str(source), "--out", str(out)]
    return [*command, "-v", "gpt2", "--append-eod", "--format", format, "--quiet", "--json"]


def _rival(way: str, source: Path, out: Path, tokenizer: Path, python: str) -> list[str]:
    script = str(Path(__file__).with_name("rivals.py"))
    return [python, script, way, str(source), str(out), str(tokenizer), str(usable_cores())]


def prove(rival: str, source: Path, tokenizer: Path, python: str, folder: Path) -> dict[str, Any]:
    """Compare our ids with those of a rival, and with Megatron the bytes of the files.

    Raises:
        AssertionError: an id differs.
    """
    ours, theirs = folder / "ours", folder / "theirs"
    measure(_ours(source, ours, OURS[rival]), {"PYTHONPATH": str(ROOT)})
    measure(_rival(rival, source, theirs, tokenizer, python))
    if rival == "megatron":
        for suffix in ("bin", "idx"):
            content = (ours / f"shard_00000_00000.{suffix}").read_bytes()
            assert content == (theirs / f"shard.{suffix}").read_bytes(), suffix
        num_ids = len((theirs / "shard.bin").read_bytes()) // 2
    else:
        own_rows, their_rows = READERS[rival](ours), READERS[rival](theirs)
        num_ids = 0
        for own, other in zip(own_rows, their_rows, strict=True):
            assert np.array_equal(own, other), rival
            num_ids += len(own)
    for path in (ours, theirs):
        shutil.rmtree(path)
    return {"ids": num_ids, "equal": True}


def _datatrove_rows(folder: Path) -> Iterator[np.ndarray[Any, Any]]:
    for path in sorted(folder.glob("*.ds")):
        ends = np.fromfile(f"{path}.index", np.uint64).astype(np.int64)
        ids = np.fromfile(path, np.uint16)
        for begin, end in pairwise([0, *ends.tolist()]):
            yield ids[begin:end]


def _arrow_rows(folder: Path) -> Iterator[np.ndarray[Any, Any]]:
    import pyarrow as pa

    for path in sorted(folder.rglob("*.arrow")):
        if "cache" in path.parts:
            continue
        opened = pa.ipc.open_file if path.read_bytes()[:6] == b"ARROW1" else pa.ipc.open_stream
        for row in opened(path).read_all().column("input_ids"):
            yield np.array(row.as_py(), np.int64)


READERS = {"datatrove": _datatrove_rows, "datasets": _arrow_rows}


def time_ours(source: Path, folder: Path) -> Measurement:
    """Time `warptok corpus` from `source` to Megatron's files, which are deleted afterwards."""
    out = folder / "out"
    taken = measure(_ours(source, out, "megatron"), {"PYTHONPATH": str(ROOT)})
    shutil.rmtree(out)
    return taken


def time_rival(
    rival: str, source: Path, tokenizer: Path, python: str, folder: Path
) -> Measurement | None:
    """Time another library on the same files, in the Python `python`; None: it fails."""
    out = folder / "out"
    try:
        return measure(_rival(rival, source, out, tokenizer, python))
    except CommandFailed as error:
        print(error, file=sys.stderr)
        return None
    finally:
        shutil.rmtree(out, ignore_errors=True)


def subtract_start(start: Measurement | None, taken: Measurement | None) -> Measurement | None:
    """Subtract the time to start, which a run with few documents takes.

    Returns:
        None if a run failed, or if both runs took the same time.
    """
    if start is None or taken is None:
        return None
    seconds, cpu_seconds = taken.seconds - start.seconds, taken.cpu_seconds - start.cpu_seconds
    if seconds <= 0 or cpu_seconds <= 0:
        return None
    return Measurement(seconds, cpu_seconds, taken.peak_bytes)


def _row(who: str, kind: str, text_bytes: int, taken: Measurement | None) -> dict[str, Any]:
    measured = {} if taken is None else asdict(taken)
    return {"who": who, "kind": kind, "text_bytes": text_bytes, **measured}


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the median of the rounds for each program and kind of file."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "seconds" in row:
            groups.setdefault((row["who"], row["kind"]), []).append(row)
    return [
        {
            "who": who,
            "kind": kind,
            "mb_per_s": sorted(row["text_bytes"] / MEGA / row["seconds"] for row in group),
            "mb_per_cpu_s": statistics.median(
                row["text_bytes"] / MEGA / row["cpu_seconds"] for row in group
            ),
            "peak_bytes": max(row["peak_bytes"] for row in group),
        }
        for (who, kind), group in groups.items()
    ]


if __name__ == "__main__":
    main()
