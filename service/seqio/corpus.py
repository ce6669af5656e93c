"""Reads files into a corpus for trainings and motif reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from service.seqio.reader import Reading, read_batches
from vocabularies.errors import VocabularyError
from vocabularies.sequences.corpus import Corpus


@dataclass(frozen=True, slots=True)
class NamedCorpus:
    """A corpus and the names of its sequences, in the same order."""

    corpus: Corpus
    names: list[str]


def read_corpus(
    paths: Sequence[str],
    reading: Reading = "auto",
    *,
    upper: bool = False,
    spell: Literal["T", "U"] | None = None,
    max_letters: int | None = None,
) -> NamedCorpus:
    """Read the sequences of some files into memory.

    Args:
        paths: FASTA, FASTQ or text files, plain or gzip; "-" is stdin.
        reading: as for `reader.read_records`.
        upper: convert all letters to upper case.
        spell: "T": replace every U by T; "U": replace every T by U; in upper and lower case.
        max_letters: the most letters that the decompressed files may contain; None: no limit.

    Raises:
        OSError, ValueError, BadRecords: as `reader.read_records`.
        VocabularyError: a letter is not ASCII, a sequence contains a line end, or there are more
            than max_letters.
    """
    names: list[str] = []
    parts, lengths = [np.zeros(0, np.uint8)], [np.zeros(1, np.int64)]
    num_letters = 0
    for batch in read_batches(paths, reading):
        num_letters += len(batch.texts.data)
        if max_letters is not None and num_letters > max_letters:
            raise VocabularyError.at("corpus", f"more than {max_letters} letters")
        names += batch.names
        parts.append(batch.texts.data)
        lengths.append(np.diff(batch.texts.offsets))
    corpus = Corpus(np.concatenate(parts), np.cumsum(np.concatenate(lengths)))
    if "\n" in corpus.letters:
        place = int(np.searchsorted(corpus.offsets, np.argmax(corpus.data == 10), "right")) - 1
        message = "holds line ends; --lines (reading=lines) makes a sequence of each line"
        raise VocabularyError.at(names[place] or "stdin", message)
    corpus = corpus.upper() if upper else corpus
    return NamedCorpus(corpus if spell is None else corpus.spelled(spell), names)
