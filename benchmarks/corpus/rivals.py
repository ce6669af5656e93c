"""Runs the job with other libraries; a Python that has their packages runs this file by path.

    python rivals.py WAY SOURCE OUT TOKENIZER_JSON WORKERS

Each way reads JSONL, or what its library reads, and writes the ids of the key "text" with GPT-2's
end-of-text token behind each document that is not empty.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EOD = 50256
EOD_TEXT = "<|endoftext|>"
VOCABULARY_SIZE = 50257
CHUNK = 32  # Megatron's.
state: dict[str, Any] = {}


def _load(tokenizer: str) -> None:
    from tokenizers import Tokenizer

    state["tokenizer"] = Tokenizer.from_file(tokenizer)


def _encode_line(line: str) -> list[int]:
    """Encode a line as `Encoder.encode` of Megatron's preprocess_data.py does."""
    ids: list[int] = state["tokenizer"].encode(json.loads(line)["text"]).ids
    return [*ids, EOD] if ids else []


def run_megatron(source: Path, out: Path, tokenizer: str, workers: int) -> None:
    """Run the loop of Megatron's preprocess_data.py, with its builder, by tokenizers."""
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    dtype = DType.optimal_dtype(VOCABULARY_SIZE)
    builder = IndexedDatasetBuilder(str(out / "shard.bin"), dtype=dtype)
    with (
        open(source, encoding="utf-8") as lines,
        multiprocessing.Pool(workers, initializer=_load, initargs=(tokenizer,)) as pool,
    ):
        for ids in pool.imap(_encode_line, lines, CHUNK):
            builder.add_document(ids, [len(ids)] if ids else [])
    builder.finalize(str(out / "shard.idx"))


def run_datatrove(source: Path, out: Path, tokenizer: str, workers: int) -> None:
    """Run datatrove's tokenizer over parts of the input, one for each worker."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader, ParquetReader
    from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer

    make_reader = ParquetReader if source.suffix == ".parquet" else JsonlReader
    reader = make_reader(str(source.parent), glob_pattern=source.name)
    writer = DocumentTokenizer(
        str(out),
        tokenizer_name_or_path=tokenizer,
        eos_token=EOD_TEXT,
        shuffle_documents=False,
    )
    LocalPipelineExecutor(
        [reader, writer], tasks=workers, workers=workers, logging_dir=str(out / "logs")
    ).run()


def _encode_texts(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
    if not state:
        _load(sys.argv[4])
    encoded = state["tokenizer"].encode_batch(batch["text"])
    return {"input_ids": [[*each.ids, EOD] if each.ids else [] for each in encoded]}


def run_datasets(source: Path, out: Path, tokenizer: str, workers: int) -> None:
    """Map a Hugging Face dataset by batches, and save the result."""
    import datasets

    kind = "parquet" if source.suffix == ".parquet" else "json"
    loaded = datasets.load_dataset(
        kind, data_files=str(source), split="train", cache_dir=str(out / "cache")
    )
    mapped = loaded.map(
        _encode_texts, batched=True, num_proc=workers, remove_columns=loaded.column_names
    )
    mapped.save_to_disk(str(out / "saved"))


WAYS: dict[str, Callable[[Path, Path, str, int], None]] = {
    "megatron": run_megatron,
    "datatrove": run_datatrove,
    "datasets": run_datasets,
}


def main() -> None:
    """Run the way that the command line names."""
    way, source, out, tokenizer, workers = sys.argv[1:]
    Path(out).mkdir(parents=True)
    WAYS[way](Path(source), Path(out), tokenizer, int(workers))


if __name__ == "__main__":
    main()
