"""FASTA and FASTQ: the same sequences from any record on, packed or not."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.corpus.documents import Reject
from service.corpus.inputs import InputDigest, UnreadableInput, find_inputs
from service.corpus.job import Job
from service.corpus.reading import sequences
from service.corpus.reading.readers import read_documents

SOURCE = np.random.default_rng(2)
SEQUENCES = ["".join(SOURCE.choice(list("ACGTN"), 1 + i % 90)) for i in range(200)]
FASTA = "".join(f">record {i}\n{s[:40]}\n{s[40:]}\n" for i, s in enumerate(SEQUENCES)).encode()
FASTQ = "".join(f"@read{i}\n{s}\n+\n{'I' * len(s)}\n" for i, s in enumerate(SEQUENCES)).encode()


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "BATCH_BYTES", 1000)


def read(path: Path, start: int = 0, **options: Any) -> tuple[dict[int, str], list[Reject], Any]:
    (file,), _ = find_inputs([str(path)], None)
    found: dict[int, str] = {}
    rejects: list[Reject] = []
    digest = InputDigest(file.size)
    for load in read_documents(file, start, Job((file,), "", **options), lambda: None):
        documents = load()
        data = documents.data.tobytes().decode()
        texts = [data[begin:end] for begin, end in pairwise(documents.offsets.tolist())]
        found |= dict(zip(documents.places.tolist(), texts, strict=True))
        rejects += documents.rejects
        digest.blocks.update(documents.digests)
    return found, rejects, digest.result()


@pytest.mark.parametrize("name", ["a.fa", "a.fasta.gz", "a.fq", "a.fastq.gz"])
def test_sequences_from_any_record_on(tmp_path: Path, name: str) -> None:
    data = FASTQ if "q" in name else FASTA
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for start in (0, 1, 7, 100, 199, 200):
        found, rejects, digest = read(path, start)
        assert found == {i: s for i, s in enumerate(SEQUENCES) if i >= start}
        assert rejects == []
        assert digest is not None


def test_long_sequences_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.fa"
    path.write_bytes(FASTA)
    found, rejects, _ = read(path, max_document_bytes=50)
    assert found == {i: s for i, s in enumerate(SEQUENCES) if len(s) <= 50}
    assert [reject.place for reject in rejects] == [
        i for i, s in enumerate(SEQUENCES) if len(s) > 50
    ]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.fq"
    path.write_bytes(FASTQ[:-30])
    with pytest.raises(UnreadableInput, match=str(path)):
        read(path)
