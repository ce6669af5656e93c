"""The files of our step for datatrove have the bytes of datatrove's own, merged ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove", reason="datatrove is not installed; it is no dependency")

from datatrove.data import Document
from datatrove.pipeline.tokens import DocumentTokenizer as OwnDocumentTokenizer
from datatrove.pipeline.tokens import DocumentTokenizerMerger
from tokenizers import Tokenizer

from tests.support.inputs.corpora import folder_bytes, make_texts
from vocabularies import builtin
from vocabularies.formats.vocabulary_files import write_vocabulary
from warptok.devices import open_place
from warptok.errors import InvalidRequest
from warptok.integrations.datatrove import DocumentTokenizer

END = "<|endoftext|>"
pytestmark = pytest.mark.slow  # Importing datatrove takes a second.
OPTIONS: list[dict[str, Any]] = [
    {"seed": 0},
    {"eos_token": END, "seed": 7},
    {"eos_token": END, "shuffle_documents": False, "save_index": False},
    {"eos_token": END, "seed": 7, "shuffle_chunk_size": 32, "max_tokens_per_file": 700},
    {"eos_token": END, "seed": 7, "save_loss_metadata": True, "save_filename": "part"},
]


def write_tokenizer(name: str, folder: Path) -> str:
    for file, data in write_vocabulary(builtin.load(name), "tokenizer.json").items():
        (folder / file).write_bytes(data)
    return str(folder / "tokenizer.json")


def make_documents(rank: int) -> list[Document]:
    texts = [*make_texts(60, seed=rank), f"a {END} inside", " \n", "naïve 中文 🙂" * 30]
    documents = [Document(text, str(i)) for i, text in enumerate(texts)]
    for number, ranges in enumerate(([(0, 3)], [(2, 9), (11, 14)], [(5, 10**6)], [(1, 1)])):
        documents[number + 1].metadata["no_loss_ranges"] = ranges
    return documents


def run(step: type[Any], path: str, folder: Path, **options: Any) -> dict[str, bytes]:
    for rank in range(2):
        made = step(str(folder / "parts"), path, **options)
        made.run(iter(make_documents(rank)), rank, 2)
    if options.get("save_index", True):
        has_loss = options.get("save_loss_metadata", False)
        merger = DocumentTokenizerMerger(
            str(folder / "parts"),
            str(folder / "merged"),
            "all",
            seed=1,
            save_loss_metadata=has_loss,
        )
        merger.run()
        parts = folder_bytes(folder / "merged")
    else:
        parts = {}
    return {**parts, **folder_bytes(folder / "parts"), "stats": repr(made.stats["tokens"]).encode()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_files_are_datatroves(options: dict[str, Any], tmp_path: Path) -> None:
    path = write_tokenizer("gpt2", tmp_path)
    own = run(OwnDocumentTokenizer, path, tmp_path / "own", **options)
    ours = run(DocumentTokenizer, path, tmp_path / "ours", device="cpu", batch_size=7, **options)
    assert len(own) > 2
    assert ours == own


def test_ids_of_four_bytes(tmp_path: Path) -> None:
    path = write_tokenizer("cl100k_base", tmp_path)
    own = run(OwnDocumentTokenizer, path, tmp_path / "own", eos_token=END, seed=0)
    ours = run(DocumentTokenizer, path, tmp_path / "ours", device="cpu", eos_token=END, seed=0)
    assert ours == own
    assert own["000_all.ds.metadata"].splitlines()[0].endswith(b"|4")


@pytest.mark.parametrize("options", [{}, {"num_threads": 3}], ids=str)
def test_threads(options: dict[str, Any], tmp_path: Path) -> None:
    step = DocumentTokenizer(
        str(tmp_path), write_tokenizer("gpt2", tmp_path), device="cpu", **options
    )
    num_threads = options.get("num_threads", 1)
    assert step._load()._engine is open_place("cpu", num_threads).engine


def test_a_tokenizer_that_truncates_is_refused(tmp_path: Path) -> None:
    path = write_tokenizer("gpt2", tmp_path)
    tokenizer = Tokenizer.from_file(path)
    tokenizer.enable_truncation(4)
    tokenizer.save(path)
    with pytest.raises(InvalidRequest, match="pads or truncates"):
        run(DocumentTokenizer, path, tmp_path / "ours")
