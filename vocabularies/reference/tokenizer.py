"""Defines how a text is encoded and how ids are decoded, in plain Python.

Every engine must return the same ids. This module implements the order of the steps, reverse
complements, truncation, begin and end tokens, and decoding. `special_tokens` implements the first
step, and `bpe`, `kmers` and `characters` the models. Upstream models are defined by the Hugging
Face library instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vocabularies.batch.batch import DEFAULT_OPTIONS, EncodeOptions, RowError, RowRefused
from vocabularies.batch.upper_case import upper_case_text
from vocabularies.model.types import Bpe, Characters, Kmers, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import pretokenize
from vocabularies.reference.bpe import encode_bpe
from vocabularies.reference.characters import encode_characters
from vocabularies.reference.kmers import decide_circular, encode_kmers
from vocabularies.reference.special_tokens import AlignedText, Span, Token, split_special_tokens

NO_REVERSE_COMPLEMENT = RowError(
    "no_other_strand", "this vocabulary is of text; only sequences have strands"
)
_CODES = "ACGTURYSWKMBDHVN"
_COMPLEMENTS = "TGCAAYRSWMKVHDBN"
_COMPLEMENT = str.maketrans(_CODES + _CODES.lower(), _COMPLEMENTS + _COMPLEMENTS.lower())


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """The ids of one text.

    Attributes:
        ids: the ids, including begin and end tokens if they are added.
        spans: begin and end byte of each id in the original text; (0, 0) for begin and end tokens.
        num_tokens: the number of ids before truncation, including begin and end tokens.
        kept: the range of the text's own ids that remains after truncation, without begin and end
            tokens.
    """

    ids: list[int]
    spans: list[Span]
    num_tokens: int
    kept: Span


def encode(
    vocabulary: Vocabulary, text: str, options: EncodeOptions = DEFAULT_OPTIONS
) -> ReferenceRow:
    """Encode one text.

    Raises:
        RowRefused: the options do not fit the text or the vocabulary; its error says why.
        ValueError: the model is upstream, so the library is the reference.

    Example: GPT-2's "Hello, world!" is split into Hello | , | world | ! (with its blank), each of
    which merges to one token: 15496 11 995 0.
    """
    if isinstance(vocabulary.model, Upstream):
        raise ValueError(
            f"only the library tokenizers computes this vocabulary: {vocabulary.model.reason}"
        )
    if options.uppercase:
        text = upper_case_text(text)
    if options.reverse_complement:
        content = _reverse_complement_content(vocabulary, text, options)
    else:
        content = _content(vocabulary, text, options)
    return _post_process(vocabulary, content, options)


def _content(vocabulary: Vocabulary, text: str, options: EncodeOptions) -> list[Token]:
    """Encode the text without begin and end tokens."""
    circular = decide_circular(vocabulary, text, options)
    tokens: list[Token] = []
    for part in split_special_tokens(vocabulary, text, options.special):
        if isinstance(part, AlignedText):
            spans = pretokenize(vocabulary.pretokenizer, part.text, vocabulary.motifs)
            for pretoken in part.split(spans):
                tokens += _pretoken(vocabulary, pretoken, options, circular)
        elif circular:
            message = "a circular sequence must not contain a special token"
            raise RowRefused(RowError("circular_not_possible", message, f"byte {part.begin}"))
        else:
            tokens.append(part)
    return tokens


def _pretoken(
    vocabulary: Vocabulary, pretoken: AlignedText, options: EncodeOptions, circular: bool
) -> list[Token]:
    match vocabulary.model:
        case Bpe():
            return encode_bpe(vocabulary, pretoken)
        case Kmers():
            return encode_kmers(vocabulary, pretoken, options, circular)
        case Characters():
            return encode_characters(vocabulary.model, pretoken)
        case Upstream():
            raise AssertionError("refused before")


def reverse_complement_text(text: str) -> str:
    """Reverse a text and complement its IUPAC codes (U to A); keep case and other characters.

    Example: AACGN-u becomes a-NCGTT.
    """
    return text[::-1].translate(_COMPLEMENT)


def _reverse_complement_content(
    vocabulary: Vocabulary, text: str, options: EncodeOptions
) -> list[Token]:
    """Encode the reverse complement; spans are those of the same bases in the original text."""
    if not vocabulary.supports_reverse_complement:
        raise RowRefused(NO_REVERSE_COMPLEMENT)
    num_bytes = len(text)
    for place, character in enumerate(text):
        if not character.isascii():
            message = f"{character!r} is not ASCII, so the sequence has no reverse complement"
            raise RowRefused(RowError("not_a_sequence", message, f"byte {place}"))
    try:
        tokens = _content(vocabulary, reverse_complement_text(text), options)
    except RowRefused as refused:
        word, _, byte = refused.error.where.partition(" ")
        if word != "byte":
            raise
        where = f"byte {num_bytes - 1 - int(byte)}"
        raise RowRefused(replace(refused.error, where=where)) from refused
    return [Token(t.id, num_bytes - t.end, num_bytes - t.begin) for t in tokens]


def _post_process(
    vocabulary: Vocabulary, content: list[Token], options: EncodeOptions
) -> ReferenceRow:
    """Truncate the content to max_length and put the begin and end tokens around it.

    Example: prefix 1, suffix 2, max_length 4 and content 7 8 9 gives 1 7 8 2, num_tokens 5 and kept
    (0, 2); cut on the left it gives 1 8 9 2 and kept (1, 3).
    """
    added = options.add_special_tokens
    prefix, suffix = (vocabulary.prefix, vocabulary.suffix) if added else ((), ())
    size = vocabulary.model.max_piece_tokens if isinstance(vocabulary.model, Kmers) else None

    def total(num_content: int) -> int:
        pieces = 1 if size is None else num_content // size + 1
        return num_content + pieces * (len(prefix) + len(suffix))

    num_kept = len(content)
    while options.max_length is not None and total(num_kept) > options.max_length:
        num_kept -= 1
        if num_kept < 0:
            raise RowRefused(RowError.of_max_length(options.max_length, total(0)))
    first = len(content) - num_kept if options.truncation_side == "left" else 0
    kept = content[first : first + num_kept]
    tokens = list(_pieces(kept, prefix, suffix, size))
    return ReferenceRow(
        ids=[token.id for token in tokens],
        spans=[(token.begin, token.end) for token in tokens],
        num_tokens=total(len(content)),
        kept=(first, first + num_kept),
    )


def _pieces(
    content: list[Token], prefix: tuple[int, ...], suffix: tuple[int, ...], size: int | None
) -> Iterator[Token]:
    """Yield the pieces of the content with prefix and suffix; a piece has at most `size` tokens.

    Without `size`, the content is one piece. Otherwise the last piece has fewer than `size` tokens,
    and may be empty. Example, size 510 as in DNABERT-1: 509 tokens are one piece, 510 tokens are
    pieces of 510 and 0, 1,019 tokens of 510 and 509, and 1,020 tokens of 510, 510 and 0.
    """
    size = size or len(content) + 1
    for begin in range(0, len(content) + 1, size):
        yield from (Token(token_id, 0, 0) for token_id in prefix)
        yield from content[begin : begin + size]
        yield from (Token(token_id, 0, 0) for token_id in suffix)


def decode(vocabulary: Vocabulary, ids: Sequence[int], skip_special_tokens: bool = False) -> bytes:
    """Decode ids to the bytes of their tokens, joined without separators.

    With the decoder "blanks", the result is the strings of the vocabulary's file, joined by blanks.

    If a k-mer agrees with the k-mer before it on the letters that they share, only its new letters
    are appended. A skipped special token between two k-mers does not separate them, but an unknown
    id does. A circular sequence is decoded with its first k - 1 bases repeated at the end, because
    the ids do not show that it was circular.

    Raises:
        RowRefused: an id is outside the vocabulary or has no token; the error has its place
            (``ids[3]``).
        ValueError: the model is upstream, so the library is the reference.

    Example, k = 3, stride 1: ACG CGT GTT gives ACGTT; ACG [UNK] GTT gives ACG[UNK]GTT.
    """
    model = vocabulary.model
    if isinstance(model, Upstream):
        raise ValueError(f"only the library tokenizers computes this vocabulary: {model.reason}")
    parts: list[bytes] = []
    before: bytes | None = None  # The last k-mer, which the next one may overlap.
    for place, token_id in enumerate(ids):
        token = vocabulary.tokens[token_id] if 0 <= token_id < len(vocabulary) else None
        if token is None:
            message = f"id {token_id} is not an id of this vocabulary of {len(vocabulary)} ids"
            raise RowRefused(RowError("id_out_of_range", message, f"ids[{place}]"))
        shown = not (skip_special_tokens and token_id in vocabulary.special_ids)
        if isinstance(model, Kmers) and _is_kmer(model, token_id):
            shared = model.k - model.stride
            overlaps = before is not None and before[model.stride :] == token[:shared]
            parts.append(token[shared:] if overlaps else token)
            before = token
            continue
        if shown and vocabulary.decoder == "blanks":
            parts.append(vocabulary.file_string(token_id).encode())
        elif shown:
            parts.append(token)
        if shown or (isinstance(model, Kmers) and token_id == model.unknown_id):
            before = None
    return (b" " if vocabulary.decoder == "blanks" else b"").join(parts)


def _is_kmer(model: Kmers, token_id: int) -> bool:
    num_kmers: int = len(model.letters) ** model.k
    return model.first_id <= token_id < model.first_id + num_kmers
