"""K-mers and characters of one stretch of a sequence, as slow and plain as their rules.

Part of the oracle (`reference`): plain Python, knows no template and no other strand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from vocabularies.batch.batch import EncodeOptions, RowError, RowRefused
from vocabularies.model.types import Characters, Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.bert_basic_tokenizer import PLAIN, is_blank, pieces_of, words_in
from vocabularies.reference.special_tokens import Stretch, Token, check_special

Letter = tuple[str, int, int]
"""A letter with its begin and end byte in the stretch."""
IdsOf = Callable[[list[Letter]], list[int]]
"""The ids of a k-mer: one, or those of the pieces of a word."""


def is_circular(vocabulary: Vocabulary, text: str, options: EncodeOptions) -> bool:
    """Whether the sequence wraps, by the request or else by the vocabulary.

    Raises:
        RowRefused: it should but cannot.
    """
    model = vocabulary.model
    own = isinstance(model, Kmers) and model.circular
    if not (own if options.circular is None else options.circular):
        return False
    if not isinstance(model, Kmers) or model.frame != "sequence" or model.stride != 1:
        message = "only k-mers at every base of a sequence can wrap"
        raise RowRefused(RowError("circular_not_possible", message))
    if model.whitespace == "words" and any(map(is_blank, text)):
        message = "k-mers that are already apart cannot wrap"
        raise RowRefused(RowError("circular_not_possible", message))
    if model.whitespace == "skip" and any(map(str.isspace, text)):
        message = "white space parts the sequence"
        raise RowRefused(RowError("circular_not_possible", message))
    if len(_letters(text, model.case)) < model.k:
        message = f"a circular sequence needs at least {model.k} letters"
        raise RowRefused(RowError("too_short_for_circular", message))
    return True


def _letters(text: str, case: str) -> list[Letter]:
    """The letters of a text; one that upper case makes several of gives several."""
    letters, begin = [], 0
    for character in text:
        end = begin + len(character.encode())
        written = character.upper() if case == "upper" else character
        letters += [(letter, begin, end) for letter in written]
        begin = end
    return letters


def encode_characters(model: Characters, stretch: Stretch) -> list[Token]:
    """One id for each character or byte.

    Example: with A = 7, T = 10 and unknown 6 the text AéT gives 7 6 10 for characters; with bytes
    é is two bytes and gives two ids.
    """
    ids = dict(model.letter_ids)
    tokens = []
    for letter, begin, end in _letters(stretch.text, model.case):
        parts = [letter] if model.unit == "codepoint" else [chr(b) for b in letter.encode()]
        exact = len(parts) == end - begin
        for i, part in enumerate(parts):
            token_id = ids.get(part, model.unknown_id)
            assert token_id is not None
            place = (begin + i, begin + i + 1) if exact else (begin, end)
            tokens.append(stretch.token(token_id, *place))
    return tokens


def encode_kmers(
    vocabulary: Vocabulary, stretch: Stretch, options: EncodeOptions, circular: bool
) -> list[Token]:
    """The k-mers of a stretch by the model's rules.

    Raises:
        RowRefused: a word of a text with white space is no k-mer.
    """
    model = vocabulary.model
    assert isinstance(model, Kmers)
    if model.whitespace == "words":
        ids_of: IdsOf = functools.partial(_word_ids, vocabulary, model, stretch, options)
        if any(map(is_blank, stretch.text)):
            return list(_encode_words(vocabulary, model, stretch, options, ids_of))
    else:

        def ids_of(kmer: list[Letter]) -> list[int]:
            return [_kmer(model, kmer)[0]]

    letters = _letters(stretch.text, model.case)
    if circular:
        tokens = _circular(model, letters, ids_of)
    elif model.frame == "sequence":
        parts = _parts(model, letters)
        tokens = (token for part in parts for token in _sequence(model, part, ids_of))
    else:
        tokens = _runs(model, letters)
    return [stretch.token(*token) for token in tokens]


def _kmer_id(model: Kmers, word: str) -> int:
    """first_id + d1 * n**(k-1) + ... + dk; with ATCG and first_id 6 ATC is 6 + 0*16 + 1*4 + 2."""
    number = 0
    for letter in word:
        if letter not in model.letters:
            return model.unknown_id
        number = number * len(model.letters) + model.letters.index(letter)
    return model.first_id + number


def _kmer(model: Kmers, letters: list[Letter]) -> Token:
    word = "".join(letter for letter, _, _ in letters)
    return _kmer_id(model, word), letters[0][1], letters[-1][2]


def _parts(model: Kmers, letters: list[Letter]) -> list[list[Letter]]:
    """What lies between white space where that is skipped."""
    parts: list[list[Letter]] = [[]]
    for letter in letters:
        if model.whitespace == "skip" and letter[0].isspace():
            parts.append([])
        else:
            parts[-1].append(letter)
    return parts


def _sequence(model: Kmers, letters: list[Letter], ids_of: IdsOf) -> Iterator[Token]:
    """K-mers at 0, stride, 2 * stride ...; then what no k-mer covers.

    Example, k = 3, stride 1: ACGTA gives ACG CGT GTA; with stride 3 ACG, and TA is left over.
    """
    covered = 0
    for place in range(0, len(letters) - model.k + 1, model.stride):
        covered = place + model.k
        kmer = letters[place:covered]
        yield from ((token_id, kmer[0][1], kmer[-1][2]) for token_id in ids_of(kmer))
    yield from _remainder(model, letters[covered:])


def _remainder(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    if model.remainder == "letters":
        ids = dict(model.letter_ids)
        for letter, begin, end in letters:
            yield ids.get(letter, model.unknown_id), begin, end


def _circular(model: Kmers, letters: list[Letter], ids_of: IdsOf) -> Iterator[Token]:
    """One k-mer for each base; one over the junction spans the part before it.

    Example, k = 3: ACGTT gives ACG CGT GTT | TTA TAC with the junction appended (the last two span
    bytes 3..5 and 4..5), and TTA TAC | ACG CGT GTT with it prepended.
    """
    num_letters = len(letters)
    first = num_letters - (model.k - 1) if model.junction == "prepend" else 0
    for place in range(first, first + num_letters):
        begin = place % num_letters
        kmer = [letters[(begin + i) % num_letters] for i in range(model.k)]
        end = min(begin + model.k, num_letters)
        for token_id in ids_of(kmer):
            yield token_id, letters[begin][1], letters[end - 1][2]


def _runs(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    """Each run of the model's letters has a frame of its own.

    Example, k = 3, N = 99: ACGTANNAxyA gives ACG T A 99 99 A unknown A.
    """
    singles = dict(model.letter_ids)
    place = 0
    while place < len(letters):
        kind = _kind(model, letters[place][0])
        end = place + 1
        while kind != "single" and end < len(letters) and _kind(model, letters[end][0]) == kind:
            end += 1
        run = letters[place:end]
        if kind == "bases":
            for i in range(0, len(run) - model.k + 1, model.k):
                yield _kmer(model, run[i : i + model.k])
            yield from _remainder(model, run[len(run) // model.k * model.k :])
        elif kind == "single":
            yield singles[run[0][0]], run[0][1], run[0][2]
        elif kind == "other":
            yield model.unknown_id, run[0][1], run[-1][2]
        place = end


def _kind(model: Kmers, letter: str) -> str:
    if letter in model.letters:
        return "bases"
    if letter in dict(model.letter_ids):
        return "single"
    return "space" if letter.isspace() and model.whitespace == "skip" else "other"


def _encode_words(
    vocabulary: Vocabulary, model: Kmers, stretch: Stretch, options: EncodeOptions, ids_of: IdsOf
) -> Iterator[Token]:
    """K-mers that are already apart, with special tokens among them.

    Example, k = 3: "ACG CGT [MASK] TAC" gives ACG CGT [MASK] TAC.
    """
    specials = _specials(vocabulary)
    offsets = stretch.byte_offsets()
    for begin, end in words_in(stretch.text):
        word, first = stretch.text[begin:end], offsets[begin]
        sent_byte = stretch.sources[first][0]
        special = specials.get(word)
        letters = _letters(word, model.case)
        is_special = special is not None and check_special(special, options.special, sent_byte)
        if special is not None and is_special:
            yield stretch.token(special.id, first, offsets[end])
            continue
        if len(letters) != model.k:
            message = f"{word[:50]!r} has {len(letters)} letters; words must have {model.k}"
            raise RowRefused(RowError("not_a_kmer", message, f"byte {sent_byte}"))
        placed = [(letter, first + begin, first + end) for letter, begin, end in letters]
        for token_id in ids_of(placed):
            yield stretch.token(token_id, first, offsets[end])


def _word_ids(
    vocabulary: Vocabulary,
    model: Kmers,
    stretch: Stretch,
    options: EncodeOptions,
    kmer: list[Letter],
) -> list[int]:
    """A word's ids: those of the special tokens in it, and of the pieces between them.

    Example, k = 6: ACGTA- gives two unknown ids, A[SEP] an unknown one and that of [SEP].
    """
    word = "".join(letter for letter, _, _ in kmer)
    if PLAIN.issuperset(word):
        return [_kmer_id(model, word)]
    specials, ids, last = _specials(vocabulary), [], 0
    for match in _pattern_of(vocabulary).finditer(word):
        special = specials[match.group()]
        sent_byte = stretch.sources[kmer[match.start()][1]][0]
        if check_special(special, options.special, sent_byte):
            ids += [*_piece_ids(model, word[last : match.start()]), special.id]
            last = match.end()
    return ids + _piece_ids(model, word[last:])


def _piece_ids(model: Kmers, word: str) -> list[int]:
    pieces = pieces_of(word)
    return [_kmer_id(model, p) if len(p) == model.k else model.unknown_id for p in pieces]


def _specials(vocabulary: Vocabulary) -> dict[str, SpecialToken]:
    return {token.content: token for token in vocabulary.special_tokens if token.matched}


@functools.lru_cache(maxsize=32)
def _pattern_of(vocabulary: Vocabulary) -> re.Pattern[str]:
    """The longest special token at a place; with none of them, what is nowhere."""
    contents = sorted(_specials(vocabulary), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, contents)) or r"(?!)")
