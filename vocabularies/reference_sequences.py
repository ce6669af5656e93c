"""K-mers and characters of one stretch of a sequence, as slow and plain as their rules.

Part of the oracle (`reference`): plain Python, knows no template and no other strand.
"""

from __future__ import annotations

from collections.abc import Iterator

from vocabularies.batch import EncodeOptions, RowError, RowRefused
from vocabularies.reference_stretches import Stretch, Token, check_special
from vocabularies.vocabulary import Characters, Kmers, Vocabulary

__all__ = ["encode_characters", "encode_kmers", "is_circular"]

Letter = tuple[str, int, int]
"""A letter with its begin and end byte in the stretch."""


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
    if model.whitespace == "words" and any(map(str.isspace, text)):
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
    if model.whitespace == "words" and any(map(str.isspace, stretch.text)):
        return list(_encode_words(vocabulary, model, stretch, options))
    letters = _letters(stretch.text, model.case)
    if circular:
        tokens = _circular(model, letters)
    elif model.frame == "sequence":
        tokens = (token for part in _parts(model, letters) for token in _sequence(model, part))
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


def _sequence(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    """K-mers at 0, stride, 2 * stride ...; then what no k-mer covers.

    Example, k = 3, stride 1: ACGTA gives ACG CGT GTA; with stride 3 ACG, and TA is left over.
    """
    covered = 0
    for place in range(0, len(letters) - model.k + 1, model.stride):
        covered = place + model.k
        yield _kmer(model, letters[place:covered])
    yield from _remainder(model, letters[covered:])


def _remainder(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    if model.remainder == "letters":
        ids = dict(model.letter_ids)
        for letter, begin, end in letters:
            yield ids.get(letter, model.unknown_id), begin, end


def _circular(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    """One k-mer for each base; one over the junction spans the part before it.

    Example, k = 3: ACGTT gives ACG CGT GTT | TTA TAC with the junction appended (the last two span
    bytes 3..5 and 4..5), and TTA TAC | ACG CGT GTT with it prepended.
    """
    num_letters = len(letters)
    first = num_letters - (model.k - 1) if model.junction == "prepend" else 0
    for place in range(first, first + num_letters):
        begin = place % num_letters
        word = "".join(letters[(begin + i) % num_letters][0] for i in range(model.k))
        end = min(begin + model.k, num_letters)
        yield _kmer_id(model, word), letters[begin][1], letters[end - 1][2]


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
    vocabulary: Vocabulary, model: Kmers, stretch: Stretch, options: EncodeOptions
) -> Iterator[Token]:
    """K-mers that are already apart, with special tokens among them.

    Example, k = 3: "ACG CGT [MASK] TAC" gives ACG CGT [MASK] TAC.
    """
    specials = {token.content: token for token in vocabulary.special_tokens if token.matched}
    offsets = stretch.byte_offsets()
    begin = 0
    for word in stretch.text.split():
        begin = stretch.text.index(word, begin)
        place = offsets[begin], offsets[begin + len(word)]
        sent_byte = stretch.sources[place[0]][0]
        begin += len(word)
        special = specials.get(word)
        if special is not None and check_special(special, options.special, sent_byte):
            yield stretch.token(special.id, *place)
            continue
        letters = "".join(letter for letter, _, _ in _letters(word, model.case))
        if len(letters) != model.k:
            message = f"{word[:50]!r} has {len(letters)} letters; words must have {model.k}"
            raise RowRefused(RowError("not_a_kmer", message, f"byte {sent_byte}"))
        yield stretch.token(_kmer_id(model, letters), *place)
