"""Makes files of documents from real texts, the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.corpora import FILES, numbers, paragraphs

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdFile
else:
    from backports.zstd import ZstdFile

MOST_PARAGRAPHS = 4
ROWS_PER_GROUP = 1000


def make_documents(data: Path, num_bytes: int) -> Iterator[str]:
    """Yield documents of 1 to 4 paragraphs of English, in an order that never repeats."""
    parts = [
        part.decode()
        for name in FILES["english"]
        for part in paragraphs((data / "text" / name).read_bytes())
    ]
    done, seed = 0, 0
    while done < num_bytes:
        drawn = numbers(seed, 1 << 16)
        place = 0
        while place + MOST_PARAGRAPHS < len(drawn) and done < num_bytes:
            count = 1 + int(drawn[place] % np.uint64(MOST_PARAGRAPHS))
            chosen = drawn[place + 1 : place + 1 + count] % np.uint64(len(parts))
            text = "".join(parts[i] for i in chosen.tolist())
            place += 1 + count
            done += len(text)
            yield text
        seed += 1


def write_jsonl(path: Path, data: Path, num_bytes: int) -> None:
    """Write the documents as JSONL."""
    with open(path, "wb") as file:
        for text in make_documents(data, num_bytes):
            file.write(orjson.dumps({"text": text}) + b"\n")


def write_files(folder: Path, data: Path, num_bytes: int) -> dict[str, Path]:
    """Write the documents as JSONL, JSONL.zst and Parquet by zstd."""
    paths = {
        "jsonl": folder / "documents.jsonl",
        "jsonl.zst": folder / "packed" / "documents.jsonl.zst",
        "parquet": folder / "table" / "documents.parquet",
    }
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("url", pa.string())])
    rows: list[dict[str, str]] = []
    with (
        open(paths["jsonl"], "wb") as plain,
        ZstdFile(paths["jsonl.zst"], "wb") as packed,
        pq.ParquetWriter(paths["parquet"], schema, compression="zstd") as table,
    ):
        for number, text in enumerate(make_documents(data, num_bytes)):
            row = {"id": f"{number}", "text": text, "url": f"https://example.org/{number}"}
            line = orjson.dumps(row) + b"\n"
            plain.write(line)
            packed.write(line)
            rows.append(row)
            if len(rows) == ROWS_PER_GROUP:
                table.write_table(pa.Table.from_pylist(rows, schema))
                rows = []
        if rows:
            table.write_table(pa.Table.from_pylist(rows, schema))
    return paths
