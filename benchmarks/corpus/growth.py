"""Times `warptok corpus` on files that grow, on the CPU and on GPUs, beside reading them alone.

    python -m benchmarks.corpus.growth --data FOLDER --folder /dev/shm --out FILE.json
    python -m benchmarks.corpus.growth --data FOLDER --gigabytes 16 --gpus 0 1 2 --no-digests
    python -m benchmarks.corpus.growth --data FOLDER --gigabytes 2 --cold

A file of English is linked under many names until the sum of their sizes is reached, so that the
files take the memory of one. With 0 GPUs the CPU engine computes. Each run compares documents with
the reference, and the number of its ids with that of a run of one file. `limit` is the rate at
which as many processes as the machine has cores read the files alone: the bytes of JSONL, the
decompressed column of Parquet. `writing_limit` is the rate at which a process for each part writes
as many bytes as the ids have; both are in bytes of text. With `--cold` each file has bytes of its
own on the disk of `--folder`, and none of them are in the page cache when a reading or a run
begins.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.corpus.files import write_files
from benchmarks.corpus.limits import read_column, read_file, write_file
from benchmarks.corpus.processes import measure
from benchmarks.support.machine import device_facts, machine
from gpu.host.cores import usable_cores

ROOT = Path(__file__).parents[2]
PACKAGES = ("numpy", "pyarrow", "cupy-cuda13x", "cupy-cuda12x")
READERS = {"jsonl": read_file, "parquet": read_column}
GIGA = 1e9
NUM_VERIFIED = 20
BYTES_A_TOKEN = 2  # uint16, which ids of GPT-2 fit.


def main() -> None:
    """Time all runs, and write one JSON document."""
    arguments = _parse()
    about = machine(PACKAGES)
    if any(arguments.gpus):
        from gpu.runtime.cuda_device import CudaDevice

        about |= device_facts(CudaDevice().info)
    with TemporaryDirectory(dir=arguments.folder) as name:
        rows = run(arguments, Path(name))
    places = {str(arguments.data): "FOLDER", str(arguments.out): "FILE.json"}
    given = [places.get(word, word) for word in sys.argv[1:]]
    command = " ".join(["python -m benchmarks.corpus.growth", *given])
    text = json.dumps({"command": command, "machine": about, "rows": rows}, indent=1)
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus.growth", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--data", type=Path, required=True, help="FOLDER of benchmarks/README.md")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--megabytes", type=int, default=256, help="of text in a file")
    parser.add_argument("--formats", nargs="+", choices=[*READERS], default=["jsonl"])
    parser.add_argument("--gpus", type=int, nargs="+", default=[0], help="0: the CPU engine")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--no-digests", action="store_true")
    parser.add_argument("--cold", action="store_true", help="read files that no cache has")
    parser.add_argument("--folder", type=Path, help="where files are written (default: /tmp)")
    parser.add_argument("--out", type=Path, metavar="FILE")
    return parser.parse_args()


def run(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Write the files, and time all runs in a folder."""
    written = write_files(folder / "written", arguments.data, arguments.megabytes * 10**6)
    options = ["--no-digests"] if arguments.no_digests else []
    rows = []
    for format in arguments.formats:
        source = written[format]
        first = {gpus: time_ours([source], folder, 1, gpus, options) for gpus in arguments.gpus}
        text_bytes = first[arguments.gpus[0]]["text_bytes"]
        for gigabytes in arguments.gigabytes:
            count = max(1, round(gigabytes * GIGA / text_bytes))
            add = shutil.copyfile if arguments.cold else os.link
            files = repeat(source, folder / "files", count, add)
            size = count * text_bytes / GIGA
            ids_bytes = count * first[arguments.gpus[0]]["tokens"] * BYTES_A_TOKEN
            limits = {
                "limit_gb_per_s": size / time_reading(format, files, arguments.cold),
                "writing_limit_gb_per_s": size / time_writing(folder, ids_bytes, arguments.parts),
            }
            for gpus in arguments.gpus:
                if arguments.cold:
                    drop_from_cache(files)
                row = time_ours(files, folder, arguments.parts, gpus, options)
                if row["tokens"] != count * first[gpus]["tokens"]:
                    raise SystemExit(f"{format}, {gpus} GPUs: {row['tokens']} ids")
                about = {"format": format, "gpus": gpus, "files": count, "parts": arguments.parts}
                row = about | row | limits
                row["start_seconds"] = first[gpus]["seconds"]
                row["gb_per_s"] = row["text_bytes"] / GIGA / row["seconds"]
                rows.append(row)
                print(json.dumps(row), flush=True)
            shutil.rmtree(folder / "files")
    return rows


def repeat(
    source: Path, folder: Path, count: int, add: Callable[[Path, Path], object]
) -> list[Path]:
    """Add a file to a folder `count` times, under different names: os.link or shutil.copyfile."""
    folder.mkdir()
    paths = [folder / f"{number:04d}{source.suffix}" for number in range(count)]
    for path in paths:
        add(source, path)
    return paths


def drop_from_cache(paths: Sequence[Path]) -> None:
    """Drop files from the page cache.

    Raises:
        RuntimeError: a file is still there, as always on tmpfs.
    """
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            os.fsync(file.fileno())  # Only pages that are on the disk are dropped.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if _is_cached(file.fileno()):
                message = f"{path} stays in the page cache; --folder names a folder on a disk"
                raise RuntimeError(message)


def _is_cached(descriptor: int) -> bool:
    """Return whether the first page of a file can be read without waiting for a disk."""
    try:
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except OSError as error:  # On tmpfs the flag is not supported.
        return error.errno != errno.EAGAIN
    return True


def time_ours(
    files: Sequence[Path], folder: Path, num_parts: int, num_gpus: int, options: list[str]
) -> dict[str, Any]:
    """Time the command once; return its counts, and the seconds and memory of all processes."""
    out, printed = folder / "out", folder / "printed"
    command = [sys.executable, "-m", "service", "corpus", *map(str, files), "--out", str(out)]
    command += ["-v", "gpt2", "--append-eod", "--parts", str(num_parts), *options]
    command += ["--engine", "gpu" if num_gpus else "cpu", "--verify", str(NUM_VERIFIED)]
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT)}
    if num_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(num_gpus)))
    shell = ["sh", "-c", 'exec "$@" --json --quiet >"$0"', str(printed), *command]
    taken = measure(shell, environment)
    shutil.rmtree(out)
    counts = json.loads(printed.read_bytes())
    kept = {name: counts[name] for name in ("text_bytes", "tokens", "verified")}
    return kept | asdict(taken)


def time_reading(format: str, files: Sequence[Path], is_cold: bool) -> float:
    """Return the seconds in which a process for each core reads all files."""
    with ProcessPoolExecutor(usable_cores(), get_context("spawn")) as pool:
        list(pool.map(READERS[format], files[: usable_cores()]))  # The processes start.
        if is_cold:
            drop_from_cache(files)
        begun = perf_counter()
        list(pool.map(READERS[format], files))
        return perf_counter() - begun


def time_writing(folder: Path, num_bytes: int, num_files: int) -> float:
    """Return the seconds in which a process for each file writes its part of some bytes."""
    paths = [folder / f"written{number}" for number in range(num_files)]
    with ProcessPoolExecutor(num_files, get_context("spawn")) as pool:
        list(pool.map(write_file, paths, [0] * num_files))  # The processes start.
        begun = perf_counter()
        list(pool.map(write_file, paths, [num_bytes // num_files] * num_files))
        return perf_counter() - begun


if __name__ == "__main__":
    main()
