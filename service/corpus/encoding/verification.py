"""Compares the rows of sampled documents with the reference while a job runs."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

import numpy as np

from service.corpus.documents import Documents, Int64s, Rows
from service.corpus.job import Job
from vocabularies.batch.batch import EncodeOptions, RowRefused
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

MAX_TEXT_BYTES = 128 << 10  # Takes the reference about 0.3 s.


class DiffersFromReference(ValueError):
    """The ids of a document differ from the reference's; this is a bug."""


@dataclass(slots=True)
class Verifier:
    """Compares documents spread evenly over the bytes of a job; it is thread-safe.

    Documents of more than MAX_TEXT_BYTES are not compared.

    Attributes:
        job: the job.
        vocabulary: the vocabulary.
        num_wanted: the number of documents to compare.
        num_compared: the number of documents that were compared and are equal.
    """

    job: Job
    vocabulary: Vocabulary
    num_wanted: int
    num_compared: int = 0
    _num_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.num_wanted and isinstance(self.vocabulary.model, Upstream):
            raise ValueError(
                "--verify: this vocabulary has no reference beside the library tokenizers"
            )

    def check(self, documents: Documents, numbers: Int64s, rows: Rows, input_number: int) -> None:
        """Compare the rows of sampled documents of a block with the reference's ids.

        Args:
            documents: the documents.
            numbers: int64[R], the number of each row's document.
            rows: the rows.
            input_number: the number of the file.

        Raises:
            DiffersFromReference: a row differs.
        """
        if not self.num_wanted:
            return
        short = np.flatnonzero(np.diff(documents.offsets)[numbers] <= MAX_TEXT_BYTES)
        total = max(1, sum(file.size for file in self.job.inputs))
        with self._lock:
            # What a block owes and cannot give is left to the next ones.
            self._num_bytes += documents.num_bytes
            num_due = min(self.num_wanted, math.ceil(self.num_wanted * self._num_bytes / total))
            count = min(len(short), num_due - self.num_compared)
            self.num_compared += count
        for row in short[np.linspace(0, len(short) - 1, count).astype(np.int64)].tolist():
            self._check_row(documents, int(numbers[row]), rows, row, input_number)

    def _check_row(
        self, documents: Documents, document: int, rows: Rows, row: int, input_number: int
    ) -> None:
        begin, end = documents.offsets[document : document + 2]
        expected = self._expected(documents.data[begin:end].tobytes())
        actual = rows.ids[rows.offsets[row] : rows.offsets[row + 1]].tolist()
        if actual != expected:
            place = f"{self.job.inputs[input_number].path}, place {documents.places[document]}"
            raise DiffersFromReference(f"{place}: {actual[:20]}..., reference {expected[:20]}...")

    def _expected(self, data: bytes) -> list[int]:
        job = self.job
        options = EncodeOptions(
            add_special_tokens=job.add_special_tokens,
            special=job.special,  # type: ignore[arg-type]
            reverse_complement=job.reverse_complement,
            uppercase=job.uppercase,
            circular=job.circular,
        )
        try:
            ids = tokenizer.encode(self.vocabulary, data.decode(), options).ids
        except RowRefused as refused:
            raise DiffersFromReference(f"the reference refuses a document: {refused}") from refused
        begin = [] if job.begin_id is None else [job.begin_id]
        end = [] if job.end_id is None else [job.end_id]
        return [*begin, *ids, *end] if ids else []
