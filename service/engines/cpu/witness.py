"""Computes the ids with which an engine's ids are compared, text by text."""

from __future__ import annotations

from tokenizers import Tokenizer

from service.engines.cpu.bpe.tokenizers_encoder import read_tokenizer
from service.engines.fault_isolation import reraise_unless_failure
from vocabularies.batch.batch import RowRefused
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer


class Witness:
    """The reference of a vocabulary, or the library that alone defines its ids, or both."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.library: Tokenizer | None = None
        self.name = describe_witness(vocabulary)
        if isinstance(vocabulary.model, Upstream):
            self.library = read_tokenizer(vocabulary.model.tokenizer_json)
        elif isinstance(vocabulary.model, Bpe):
            self.library = read_tokenizer(tokenizer_json(vocabulary))

    def ids(self, text: str) -> list[int] | None:
        """Return the ids of a text; None if it is refused.

        Raises:
            AssertionError: the reference and the library disagree; one of them is wrong.
        """
        by_library = self._library_ids(text)
        if isinstance(self.vocabulary.model, Upstream):
            return by_library
        try:
            ids = tokenizer.encode(self.vocabulary, text).ids
        except RowRefused:
            return None
        if by_library is not None:
            assert by_library == ids, f"the two witnesses differ: {ids} and {by_library}"
        return ids

    def _library_ids(self, text: str) -> list[int] | None:
        """Return the library's ids; None without a library, or if it fails on the text."""
        try:
            return None if self.library is None else list(self.library.encode(text).ids)
        except BaseException as error:
            reraise_unless_failure(error)
            return None


def describe_witness(vocabulary: Vocabulary) -> str:
    """Name the tokenizers that are the witness of a vocabulary."""
    if isinstance(vocabulary.model, Upstream):
        return "tokenizers"
    return "reference and tokenizers" if isinstance(vocabulary.model, Bpe) else "reference"
