"""A vocabulary: an immutable value, checked when it is created and identified by its digest.

`formats` reads vocabularies from files, and `reference` defines how they encode texts. This module
does not depend on files, engines or HTTP.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from vocabularies.errors import VocabularyError
from vocabularies.model.byte_alphabet import to_alphabet
from vocabularies.model.canonical import digest_of, to_bytes
from vocabularies.model.checks import find_faults
from vocabularies.model.types import Bpe, Characters, Kmers, Upstream, VocabularyFields
from vocabularies.preprocessing.running_time import (
    Costs,
    find_document_costs,
    find_normalizer_costs,
)

NAMED_BYTES = "warptok.named_bytes"
"""How bytes that are not UTF-8 are decoded: as <0xFF>, the names of SentencePiece's byte tokens."""
NUCLEOTIDES = b"ACGTURYSWKMBDHVNacgturyswkmbdhvn \t\r\n"  # IUPAC's letters and white space.


TokenForm = Literal["text", "file"]
"""How a token is displayed: as readable text, or as it is written in a tokenizer.json."""


def _name_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    names = (f"<0x{byte:02X}>" for byte in error.object[error.start : error.end])
    return "".join(names), error.end


codecs.register_error(NAMED_BYTES, _name_bytes)


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary(VocabularyFields):
    """A vocabulary with valid fields; two vocabularies are equal exactly when their digests are.

    Raises:
        VocabularyError: some fields are invalid; the error lists every fault that was found.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", MappingProxyType(dict(self.roles)))
        if findings := tuple(find_faults(self)):
            raise VocabularyError(findings)
        # Findings count motifs as they were given; their order decides nothing.
        object.__setattr__(self, "motifs", tuple(sorted(self.motifs)))

    def __repr__(self) -> str:
        return f"Vocabulary({self.kind}, {len(self)} ids, {self.digest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and the hash of the canonical form: equal when all fields are equal."""
        return digest_of(to_bytes(self))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids that are omitted when decoding with `skip_special_tokens`."""
        return frozenset(token.id for token in self.special_tokens if token.special)

    @cached_property
    def contents(self) -> Mapping[int, str]:
        """The content of each special token, by id."""
        return {token.id: token.content for token in self.special_tokens}

    @cached_property
    def costs(self) -> Costs:
        """The parts of the vocabulary that may take unbounded time for a text."""
        if isinstance(self.model, Upstream):
            return find_document_costs(self.model.tokenizer_json)
        return find_normalizer_costs(self.normalizers)

    @cached_property
    def may_take_long(self) -> bool:
        """Whether encoding may take unbounded time; engines then encode in another process."""
        return bool(self.costs.patterns or self.costs.others)

    @cached_property
    def supports_reverse_complement(self) -> bool:
        """Whether the reverse complement of a text can be encoded.

        Character vocabularies: always. K-mer vocabularies: if their letters are nucleotides. BPE
        and upstream vocabularies: if at least half of their tokens of several letters consist of
        nucleotide codes. The share is 100 % for DNABERT-2 and 9 % for GPT-2.
        """
        match self.model:
            case Characters():
                return True
            case Kmers(letters=letters):
                return not letters.encode().strip(NUCLEOTIDES)
        special = {token.id for token in self.special_tokens}
        words = [t for i, t in enumerate(self.tokens) if t and len(t) > 1 and i not in special]
        return 2 * sum(not word.strip(NUCLEOTIDES) for word in words) >= len(words)

    @cached_property
    def unknown_id(self) -> int | None:
        """The unknown id of a sequence vocabulary; None for text, or if there is none."""
        unknown = self.roles.get("unk")
        return unknown if unknown is not None and self.supports_reverse_complement else None

    def show_token(self, token_id: int, form: TokenForm) -> str:
        """Return a token in one of its two forms.

        Raises:
            IndexError: no token has this id.
        """
        return self.token_string(token_id) if form == "text" else self.file_string(token_id)

    def file_string(self, token_id: int) -> str:
        """Return a token as written in a tokenizer.json; bytes of BPE in the byte-level alphabet.

        Raises:
            IndexError: no token has this id.
        """
        token = self.tokens[token_id]
        is_byte_level = isinstance(self.model, Bpe) and self.model.byte_level
        if is_byte_level and token is not None and token_id not in self.contents:
            return to_alphabet(token)
        return self._upstream_strings.get(token_id) or self.token_string(token_id)

    @cached_property
    def _upstream_strings(self) -> dict[int, str]:
        """The strings of an upstream file that `tokens` may contain as bytes of the alphabet."""
        if not isinstance(self.model, Upstream) or '"ByteLevel"' not in self.model.tokenizer_json:
            return {}
        document = json.loads(self.model.tokenizer_json)
        vocab = document["model"]["vocab"]
        if isinstance(vocab, list):  # Pairs of a token and its score.
            strings = {token_id: string for token_id, (string, _) in enumerate(vocab)}
        else:
            strings = {token_id: string for string, token_id in vocab.items()}
        return {**strings, **self.contents}

    def token_string(self, token_id: int) -> str:
        """Return a token as readable text; bytes that are not UTF-8 as <0xFF>.

        Raises:
            IndexError: no token has this id.
        """
        token = self.tokens[token_id]
        if token is None:
            raise IndexError(f"id {token_id} is not an id of this vocabulary")
        return self.contents.get(token_id) or token.decode(errors=NAMED_BYTES)
