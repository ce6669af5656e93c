"""The tables and figures of the five papers, with ours beside, written as JSON.

    python -m benchmarks.papers --data FOLDER
    python -m benchmarks.papers gputok blockbpe --data FOLDER --out FILE
    python -m benchmarks.papers --data FOLDER --parts sweep grid --seconds 60

On a machine with a GPU, the parts that use one run by default; on another machine, the parts that
need none, and the run lists what it leaves out. A part is stopped when its time is over, and keeps
the rows measured until then. FILE keeps the parts of an earlier run that are not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.papers import (
    blockbpe,
    dnatok,
    dnatok_scenarios,
    geneticbpe,
    gputok,
    mtdna,
)
from benchmarks.papers.session import Differs, Part, Row, Session, run_part
from benchmarks.report.results import FOLDER
from benchmarks.support.machine import device_facts, machine
from gpu.errors import DeviceUnavailable
from gpu.kernels.catalog import SOURCES

PARTS: tuple[Part, ...] = (
    *gputok.PARTS,
    *blockbpe.PARTS,
    *dnatok.PARTS,
    *dnatok_scenarios.PARTS,
    *mtdna.PARTS,
    *geneticbpe.PARTS,
)
PAPERS = ("dnatok", "gputok", "blockbpe", "mtdna", "geneticbpe")
PACKAGES = ("numpy", "tiktoken", "tokenizers", "transformers", "torch", "warptok")
CPU_FILE, GPU_FILE = FOLDER / "papers" / "cpu.json", FOLDER / "papers" / "h200.json"
WORKSPACE_BYTES = 8 << 30
SECONDS, SLICE_S = 130.0, 0.3


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"{', '.join(PAPERS)}: all")
    parser.add_argument("--data", type=Path, required=True, help="folder of text/, vocab/, dna/")
    parser.add_argument("--out", type=Path, help="the file of results")
    parser.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all parts, about")
    parser.add_argument("--slice-s", type=float, default=SLICE_S, help="for a comparison, about")
    parser.add_argument("--without-gpu", action="store_true", help="do not look for one")
    arguments = parser.parse_args(argv)
    if unknown := {*arguments.papers} - {*PAPERS}:
        parser.error(f"no paper is called {', '.join(sorted(unknown))}")
    return arguments


def open_gpu(is_wanted: bool) -> GpuWays | None:
    """Open the GPU; return None if there is none."""
    if not is_wanted:
        return None
    try:
        from gpu.runtime.cuda_device import CudaDevice

        device, begin = CudaDevice(), perf_counter()
        with contextlib.suppress(DeviceUnavailable):  # What it cannot run is not needed either.
            device.prepare(name for name in SOURCES if name != "training")
        print(f"{perf_counter() - begin:5.0f} s  kernels are compiled")
        return GpuWays(device, WORKSPACE_BYTES)
    except DeviceUnavailable as error:
        print(f"no GPU: {error}")
        return None


def chosen_parts(papers: Sequence[str], names: Sequence[str] | None, has_gpu: bool) -> list[Part]:
    """Return the parts with these names; None: the papers' parts that the machine can run."""
    if names is not None:
        return [part for part in PARTS if part.name in names]
    suited = ("gpu", "both") if has_gpu else ("cpu", "both")
    of_papers = [part for part in PARTS if not papers or part.paper in papers]
    # A paper that is named with a GPU has its parts for processors too.
    return [part for part in of_papers if part.where in suited or (papers and has_gpu)]


def measure(
    parts: Sequence[Part],
    session: Session,
    seconds: float,
    save: Callable[[dict[str, Row]], None] = lambda _: None,
) -> dict[str, Row]:
    """Measure parts, each with its share of the seconds left; wrong ids are an error instead.

    Every part that has ended is saved with those before it.
    """
    begin = perf_counter()
    found: dict[str, Row] = {}
    for number, part in enumerate(parts):
        share = part.seconds / sum(each.seconds for each in parts[number:])
        allowed_s = share * max(0.0, begin + seconds - perf_counter())
        session.left_out.clear()
        session.log(f"{perf_counter() - begin:5.0f} s  {part.paper}: {part.name} ({part.tables})")
        facts: Row = {"paper": part.paper, "tables": part.tables}
        if part.where == "gpu" and session.gpu is None:
            session.leave_out(f"{part.name} needs a GPU")
            continue
        try:
            measured = run_part(part, session, allowed_s)
        except Differs as error:  # The other parts go on; no row of this one is kept.
            session.log(f"{part.name}: wrong ids, so no figures: {error}")
            found[part.name] = facts | {"error": str(error), "rows": []}
            continue
        found[part.name] = facts | {
            "seconds": measured.seconds,
            "is_complete": measured.is_complete,
            "left_out": [*session.left_out],
            "rows": measured.rows,
        }
        save(found)
    session.log(f"{perf_counter() - begin:5.0f} s  done")
    return found


def document_of(earlier: Row, found: dict[str, Row], about: Row, command: str) -> Row:
    """Add parts to an earlier document; each part names its machine."""
    for part in found.values():
        part["machine"], part["command"] = about, command
    kept = earlier.get("parts", {})
    failed = {name for name, part in found.items() if "error" in part and name in kept}
    return {"parts": kept | {name: p for name, p in found.items() if name not in failed}}


def as_text(document: Row) -> str:
    """Write JSON with a line for each row."""

    def part_of(part: Row) -> str:
        rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in part["rows"])
        facts = {name: value for name, value in part.items() if name != "rows"}
        fields = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in facts.items()]
        return "{\n   " + ",\n   ".join([*fields, f'"rows": [\n    {rows}\n   ]']) + "\n  }"

    parts = (f"{json.dumps(name)}: {part_of(part)}" for name, part in document["parts"].items())
    return '{\n "parts": {\n  ' + ",\n  ".join(parts) + "\n }\n}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    arguments = parse(argv)
    gpu = open_gpu(not arguments.without_gpu)
    session = Session(arguments.data, gpu, arguments.slice_s)
    parts = chosen_parts(arguments.papers, arguments.parts, gpu is not None)
    if gpu is None:
        for part in PARTS:
            if part.where == "gpu" and (not arguments.papers or part.paper in arguments.papers):
                print(f"without a GPU: no {part.name} ({part.paper}, {part.tables})")
    words = [*arguments.papers, *(["--parts", *arguments.parts] if arguments.parts else [])]
    command = " ".join(["benchmarks.papers", *words, "--data FOLDER"])
    about: dict[str, Any] = machine(PACKAGES)
    if gpu is not None:
        about = device_facts(gpu.device.info) | about
    out = arguments.out or (CPU_FILE if gpu is None else GPU_FILE)
    earlier = json.loads(out.read_text()) if out.is_file() else {}
    out.parent.mkdir(parents=True, exist_ok=True)

    def save(found: dict[str, Row]) -> None:
        out.write_text(as_text(document_of(earlier, found, about, command)))

    save(measure(parts, session, arguments.seconds, save))
    print(f"written: {out}; `make docs` writes docs/papers.md")


if __name__ == "__main__":
    main()
