"""The types of a vocabulary's values: its models, special tokens and fields.

Nothing here is checked: `checks` finds the faults of the fields, and `vocabulary` refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from operator import add, itemgetter
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from vocabularies.preprocessing.normalizers import Normalizer

Decoder = Literal["inverse", "blanks"]
PART = 1 << 14  # Elements that one call in C makes, in about a millisecond.
ROLES = ("unk", "pad", "bos", "eos", "cls", "sep", "mask")


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token that is matched as a whole and never merged ("added token" in tokenizer.json).

    Attributes:
        special: False for an added token that counts as ordinary text: decoding with
            `skip_special_tokens` keeps it, and the mode "plain" still matches it, as in Hugging
            Face's library.
        matched: False for a token that is used only for the template, padding or masking; its text
            inside the input is encoded as ordinary text.
        normalized: whether the token is matched after the normalizers instead of before them.
        lstrip, rstrip: whether the match includes the white space on that side.
        single_word: whether it is matched only where no letter, digit or underscore is next to it.
    """

    content: str
    id: int
    special: bool = True
    matched: bool = True
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True, slots=True)
class Bpe:
    """Byte-pair encoding: inside a pretoken the pair of lowest rank is merged, leftmost first.

    Attributes:
        merges: (left id, right id) by rank; a pair is replaced by the token that joins the bytes of
            both.
        byte_level: symbols begin as bytes (True) or as Unicode characters (False).
        ignore_merges: whether a pretoken that equals a token is encoded as this token without
            merging.
        unknown_id: the id of a symbol that is not a token; None: such a symbol is dropped, as in
            Hugging Face's library.
        fuse_unknown: whether neighbouring unknown symbols become one id.
    """

    merges: tuple[tuple[int, int], ...]
    byte_level: bool = True
    ignore_merges: bool = False
    unknown_id: int | None = None
    fuse_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Kmers:
    """Words of k letters over a nucleotide sequence.

    The k-mer with letter indices d1..dk has the id first_id + d1 * len(letters)**(k-1) + ... + dk.

    Attributes:
        letters: the letters in counting order: "ACGT" or "ATCG".
        frame: where k-mers begin. "sequence": at 0, stride, 2*stride ...; a k-mer that contains
            another letter is `unknown_id`. "run": the k-mers of every run of `letters` begin at its
            first letter, and stride is k. `remainder` decides what becomes of the letters after a
            run's last k-mer. A letter of `letter_ids` that is not in `letters`, such as N, has its
            own id, and every maximal run of other letters is one `unknown_id`.
        letter_ids: ids of single letters, used by frame "run".
        remainder: how the fewer than k letters after the last k-mer are encoded: "drop": not at
            all; "letters": each as its own id.
        case: "upper" makes the sequence upper case first.
        whitespace: how white space is encoded. "letter": like any other letter. "skip": it has no
            id and ends a run. "words": a text with white space is read as k-mers that are already
            separated; in every text, k-mers at every base are split at punctuation
            (`bert_basic_tokenizer`).
        circular: whether the sequence is circular unless the request's option says otherwise.
        junction: where the k-mers over the junction of a circular sequence of L bases are placed:
            "append": last, so that token p has the bases p..p+k-1 modulo L; "prepend": first, as if
            the last k-1 bases were put in front of the sequence.
        max_piece_tokens: the number of tokens of a piece (DNABERT-1: 510); every piece gets begin
            and end tokens. None: the whole sequence gets them once.
    """

    k: int
    first_id: int
    unknown_id: int
    letters: str = "ACGT"
    stride: int = 1
    frame: Literal["sequence", "run"] = "sequence"
    letter_ids: tuple[tuple[str, int], ...] = ()
    remainder: Literal["drop", "letters"] = "drop"
    case: Literal["keep", "upper"] = "keep"
    whitespace: Literal["letter", "skip", "words"] = "letter"
    circular: bool = False
    junction: Literal["append", "prepend"] = "append"
    max_piece_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Characters:
    """One id for each character (or byte) of the text.

    Attributes:
        letter_ids: the ids of characters; with unit "byte", U+0000..U+00FF represent bytes.
        unknown_id: the id of every other character; None is allowed if all 256 bytes have an id.
        unit: "codepoint": one id for each Unicode character; "byte": one for each byte.
        case: "upper" makes the text upper case first.
    """

    letter_ids: tuple[tuple[str, int], ...]
    unknown_id: int | None = None
    unit: Literal["codepoint", "byte"] = "codepoint"
    case: Literal["keep", "upper"] = "keep"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A tokenizer that only the Hugging Face library can run (Unigram, WordPiece, unknown rules).

    Attributes:
        tokenizer_json: the uploaded file, with truncation and padding set to null.
        reason: why none of the other models can represent it, in words for the user who uploads it.
    """

    tokenizer_json: str
    reason: str


Model = Bpe | Kmers | Characters | Upstream


@dataclass(frozen=True, eq=False, repr=False)
class VocabularyFields:
    """The fields of a vocabulary, before they are checked; they determine the ids of every text.

    Attributes:
        tokens: the bytes of each token, by id; None: the id has no token. The bytes of a special
            token are the UTF-8 of its content or, in byte-level BPE, the bytes that its content
            spells in GPT-2's alphabet (`byte_alphabet.added_token_bytes`).
        model: the rule by which a pretoken is encoded.
        special_tokens: see SpecialToken.
        normalizers: applied in order, before the pretokenizer, to the texts between special tokens.
        pretokenizer: its name, see `pretokenizers`.
        motifs: the strings that the pretokenizer "motifs" does not split, sorted by their
            characters. They are matched in normalized text. Each motif is an ordinary token, and
            the model ignores merges, so that a motif is encoded as that token.
        prefix, suffix: ids put around the ids of a text when special tokens are added.
        roles: the ids of the tokens for the roles "unk", "pad", "bos", "eos", "cls", "sep" and
            "mask"; a role without a token is missing.
        padding_side: the side on which rows are padded by default.
        decoder: how the ids of a BPE model are decoded. "inverse": to the bytes that they were
            encoded from. "blanks": to the strings of the file, joined by blanks, as the library
            tokenizers does for a file without a decoder.
    """

    tokens: tuple[bytes | None, ...]
    model: Model
    special_tokens: tuple[SpecialToken, ...] = ()
    normalizers: tuple[Normalizer, ...] = ()
    pretokenizer: str = "none"
    motifs: tuple[str, ...] = ()
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    roles: Mapping[str, int] = field(default_factory=dict)
    padding_side: Literal["right", "left"] = "right"
    decoder: Decoder = "inverse"

    def __len__(self) -> int:
        """Return the number of ids, including those without a token; every id is below it."""
        return len(self.tokens)

    @property
    def kind(self) -> str:
        """The family's name: bpe, kmers, characters or upstream."""
        return type(self.model).__name__.lower()

    def find_token_ids(self) -> dict[bytes, int]:
        """Return {bytes: id}; of equal ordinary and special tokens, the id of the ordinary one."""
        special = sorted({token.id for token in self.special_tokens})
        ordinary = list(self.tokens)
        for token_id in special:
            ordinary[token_id] = None
        token_ids = dict(zip(ordinary, range(len(ordinary)), strict=True))
        for token_id in special:
            token_ids.setdefault(self.tokens[token_id], token_id)
        token_ids.pop(None, None)
        return cast("dict[bytes, int]", token_ids)

    @cached_property
    def merge_pairs(self) -> NDArray[np.int32]:
        """The merges of the model as int32[M, 2]; a model without merges has none.

        Raises:
            OverflowError: a merge has an id that no int32 has.
        """
        merges: tuple[tuple[int, int], ...] = getattr(self.model, "merges", ())
        pairs = np.fromiter(chain.from_iterable(merges), np.int32, 2 * len(merges)).reshape(-1, 2)
        pairs.setflags(write=False)
        return pairs

    @cached_property
    def merged_ids(self) -> NDArray[np.int32]:
        """The id of the token that each merge of a BPE model creates, int32[M].

        Raises:
            LookupError, TypeError: a merge has an id without a token, or its result is not a token.
        """
        assert isinstance(self.model, Bpe)
        merges, tokens = self.model.merges, self.tokens
        # Iterators implemented in C, because vocabularies are large.
        token_of = cast("Callable[[int], bytes]", tokens.__getitem__)
        lefts = map(token_of, map(itemgetter(0), merges))
        rights = map(token_of, map(itemgetter(1), merges))
        joined = map(add, lefts, rights)
        special = {token.id for token in self.special_tokens}
        token_ids: dict[bytes, int] = {}
        ids = np.empty(len(merges), np.int32)
        for begin in range(0, len(merges), PART):  # Between two parts other threads can run.
            part = tuple(islice(joined, PART))
            end = begin + len(part)
            # Most vocabularies number the tokens in the order of the merges; comparing them takes
            # a fifth of the time of looking them up.
            first = tokens.index(part[0]) if part[0] in tokens else 0
            if tokens[first : first + len(part)] == part and special.isdisjoint(
                range(first, first + len(part))
            ):
                ids[begin:end] = np.arange(first, first + len(part))
            else:
                token_ids = token_ids or self.find_token_ids()
                ids[begin:end] = np.fromiter(map(token_ids.__getitem__, part), np.int32, len(part))
        return ids
