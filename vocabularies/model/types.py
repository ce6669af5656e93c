"""The types of a vocabulary's values: its models, special tokens and fields.

Nothing here is checked: `checks` finds the faults of the fields, and `vocabulary` refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import add, itemgetter
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from vocabularies.preprocessing.normalizers import Normalizer

Decoder = Literal["inverse", "blanks"]
ROLES = ("unk", "pad", "bos", "eos", "cls", "sep", "mask")


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token found in the text as a whole and never merged ("added token" in tokenizer.json).

    Attributes:
        special: False for an added token that counts as ordinary text: `skip_special_tokens`
            keeps it and the mode "plain" still finds it, as Hugging Face does.
        matched: False for a token that only the template, padding or masking uses; its text inside
            the input is ordinary text.
        normalized: matched after the normalizers instead of before them.
        lstrip, rstrip: the match includes the white space on that side.
        single_word: matched only where no letter, digit or underscore touches it.
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
        merges: (left id, right id) by rank; the pair becomes the token that spells both.
        byte_level: symbols begin as bytes (True) or as Unicode characters (False).
        ignore_merges: a pretoken that is a whole token gets its id without any merge.
        unknown_id: id of a symbol that is no token; None drops it, as Hugging Face does.
        fuse_unknown: neighbouring unknown symbols become one id.
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
        frame: "sequence": a k-mer at 0, stride, 2*stride ...; one that holds another letter is
            `unknown_id`. "run": the frame starts anew in every run of `letters`; the letters behind
            a run's last k-mer follow `remainder`; a letter of `letter_ids` outside `letters` (N) is
            its own id and every maximal run of other letters is one `unknown_id`; stride is k.
        letter_ids: ids of single letters, used by frame "run".
        remainder: the fewer than k letters behind the last k-mer: "drop" gives them no id,
            "letters" gives each its own.
        case: "upper" makes the sequence upper case first.
        whitespace: "letter": like any other letter; "skip": gives no id and ends a run; "words": a
            text with white space is read as k-mers that are already separated; with or without
            it, k-mers at every base are split at punctuation (`bert_basic_tokenizer`).
        circular: the sequence wraps unless the request says otherwise.
        junction: where the k-mers over the junction of a circular sequence stand: "append" (token
            p reads p..p+k-1 modulo L) or "prepend" (the last k-1 bases are put in front).
        max_piece_tokens: begin and end tokens stand around every piece of so many tokens
            (DNABERT-1: 510); None: around all of them once.
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
        letter_ids: characters that have an id; with unit "byte", U+0000..U+00FF mean bytes.
        unknown_id: id of every other character; None is allowed where all 256 bytes have an id.
        unit: "codepoint": one id for each Unicode character; "byte": one for each byte.
        case: "upper" makes the text upper case first.
    """

    letter_ids: tuple[tuple[str, int], ...]
    unknown_id: int | None = None
    unit: Literal["codepoint", "byte"] = "codepoint"
    case: Literal["keep", "upper"] = "keep"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A tokenizer that only the Hugging Face library computes (Unigram, WordPiece, unknown rules).

    Attributes:
        tokenizer_json: the uploaded file, with truncation and padding set to null.
        reason: why none of the other models covers it; the uploader reads it.
    """

    tokenizer_json: str
    reason: str


Model = Bpe | Kmers | Characters | Upstream


@dataclass(frozen=True, eq=False, repr=False)
class VocabularyFields:
    """The fields of a vocabulary, which decide the ids of every text; not checked.

    Attributes:
        tokens: id -> the bytes it stands for; None where an id means nothing. A special token
            stands for the UTF-8 bytes of its content, or, in byte-level BPE, for the bytes that its
            content spells in GPT-2's alphabet (`byte_alphabet.added_token_bytes`).
        model: the rule by which a pretoken becomes ids.
        special_tokens: see SpecialToken.
        normalizers: applied in order, before the pretokenizer, to the texts between special tokens.
        pretokenizer: its name, see `pretokenizers`.
        motifs: the strings that the pretokenizer "motifs" keeps whole, sorted by their characters.
            Each is an ordinary token, found in normalized text, and the model ignores merges, so
            that a motif becomes that token.
        prefix, suffix: ids put around the ids of a text when special tokens are added.
        roles: ids of the tokens used as "unk", "pad", "bos", "eos", "cls", "sep", "mask", where
            there are such.
        padding_side: the side padded when the request does not say.
        decoder: how a BPE's ids become text. "inverse": as the bytes that they were encoded from;
            "blanks": as the strings of the file with a blank between two, which is what the
            library tokenizers does for a file without a decoder.
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
        """Return the number of ids, holes included; every id is below it."""
        return len(self.tokens)

    @property
    def kind(self) -> str:
        """The family's name: bpe, kmers, characters or upstream."""
        return type(self.model).__name__.lower()

    def find_token_ids(self) -> dict[bytes, int]:
        """Return the id of each token; of an ordinary and a special one alike, the ordinary."""
        special = {token.id for token in self.special_tokens}
        token_ids = {
            token: token_id
            for token_id, token in enumerate(self.tokens)
            if token is not None and token_id not in special
        }
        for token_id in sorted(special):
            token = self.tokens[token_id]
            if token is not None:
                token_ids.setdefault(token, token_id)
        return token_ids

    @cached_property
    def merged_ids(self) -> NDArray[np.int32]:
        """int32[M], the id that each merge of a BPE model makes.

        Raises:
            LookupError, TypeError: a merge names an id without a token, or makes no token.
        """
        assert isinstance(self.model, Bpe)
        merges = self.model.merges
        # Iterators of C, as vocabularies are large.
        token_of = cast("Callable[[int], bytes]", self.tokens.__getitem__)
        lefts = map(token_of, map(itemgetter(0), merges))
        rights = map(token_of, map(itemgetter(1), merges))
        merged_ids = map(self.find_token_ids().__getitem__, map(add, lefts, rights))
        return np.fromiter(merged_ids, np.int32, len(merges))
