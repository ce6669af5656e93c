"""Encodes a part of a sequence by a k-mer model, in the simplest form.

Part of the reference, in plain Python. It does not depend on templates or reverse complements.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from vocabularies.batch.batch import EncodeOptions, RowError, RowRefused
from vocabularies.model.types import Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.bert_basic_tokenizer import (
    PLAIN_CHARACTERS,
    find_words,
    is_word_separator,
    split_word,
)
from vocabularies.reference.characters import Letter, find_letters
from vocabularies.reference.special_tokens import AlignedText, Token, accept_special_token

EncodeKmer = Callable[[list[Letter]], list[int]]
"""Encodes a k-mer as one id or, if punctuation splits it, as one id for each part."""


def decide_circular(vocabulary: Vocabulary, text: str, options: EncodeOptions) -> bool:
    """Return whether the sequence is circular, by the options or else by the vocabulary.

    Raises:
        RowRefused: the sequence should be circular, but is too short, or the model does not allow
            it.
    """
    model = vocabulary.model
    own = isinstance(model, Kmers) and model.circular
    if not (own if options.circular is None else options.circular):
        return False
    if not isinstance(model, Kmers) or model.frame != "sequence" or model.stride != 1:
        message = "only a vocabulary with a k-mer at every base can have circular sequences"
        raise RowRefused(RowError("circular_not_possible", message))
    if model.whitespace == "words" and any(map(is_word_separator, text)):
        message = "a text whose k-mers are already separated cannot be circular"
        raise RowRefused(RowError("circular_not_possible", message))
    if model.whitespace == "skip" and any(map(str.isspace, text)):
        message = "a sequence with white space inside cannot be circular"
        raise RowRefused(RowError("circular_not_possible", message))
    if len(find_letters(text, model.case)) < model.k:
        message = f"a circular sequence needs at least {model.k} letters"
        raise RowRefused(RowError("too_short_for_circular", message))
    return True


def encode_kmers(
    vocabulary: Vocabulary, part: AlignedText, options: EncodeOptions, circular: bool
) -> list[Token]:
    """Encode a part of a text by the model's rules.

    Raises:
        RowRefused: the text has white space, and a word is not a k-mer.
    """
    model = vocabulary.model
    assert isinstance(model, Kmers)
    if model.whitespace == "words":
        encode_kmer: EncodeKmer = functools.partial(_word_ids, vocabulary, model, options)
        if any(map(is_word_separator, part.text)):
            return list(_encode_words(vocabulary, model, part, options, encode_kmer))
    else:

        def encode_kmer(kmer: list[Letter]) -> list[int]:
            return [_kmer_id(model, "".join(letter.character for letter in kmer))]

    letters = _in_sent_text(part, find_letters(part.text, model.case))
    if circular:
        tokens = _circular(model, letters, encode_kmer)
    elif model.frame == "sequence":
        tokens = (
            token
            for run in _split_white_space(model, letters)
            for token in _sequence(model, run, encode_kmer)
        )
    else:
        tokens = _runs(model, letters)
    return list(tokens)


def _in_sent_text(part: AlignedText, letters: list[Letter]) -> list[Letter]:
    """Return the letters of a part with their positions in the original text."""
    return [Letter(c, *part.source_span(begin, end)) for c, begin, end in letters]


def _kmer_id(model: Kmers, word: str) -> int:
    """Return first_id + d1 * n**(k-1) + ... + dk.

    Example, letters ATCG and first_id 6: ATC is 6 + 0*16 + 1*4 + 2.
    """
    number = 0
    for letter in word:
        if letter not in model.letters:
            return model.unknown_id
        number = number * len(model.letters) + model.letters.index(letter)
    return model.first_id + number


def _kmer_token(model: Kmers, letters: list[Letter]) -> Token:
    word = "".join(letter.character for letter in letters)
    return Token(_kmer_id(model, word), letters[0].begin, letters[-1].end)


def _split_white_space(model: Kmers, letters: list[Letter]) -> list[list[Letter]]:
    """Split the letters at white space if the model skips white space."""
    parts: list[list[Letter]] = [[]]
    for letter in letters:
        if model.whitespace == "skip" and letter.character.isspace():
            parts.append([])
        else:
            parts[-1].append(letter)
    return parts


def _sequence(model: Kmers, letters: list[Letter], encode_kmer: EncodeKmer) -> Iterator[Token]:
    """Yield the k-mers at 0, stride, 2 * stride ..., then the ids of the letters after the last.

    Example, k = 3, stride 1: ACGTA gives ACG CGT GTA; with stride 3 ACG and the remainder TA.
    """
    covered = 0
    for place in range(0, len(letters) - model.k + 1, model.stride):
        covered = place + model.k
        kmer = letters[place:covered]
        yield from (Token(token_id, kmer[0].begin, kmer[-1].end) for token_id in encode_kmer(kmer))
    yield from _remainder(model, letters[covered:])


def _remainder(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    if model.remainder == "letters":
        ids = dict(model.letter_ids)
        for letter, begin, end in letters:
            yield Token(ids.get(letter, model.unknown_id), begin, end)


def _circular(model: Kmers, letters: list[Letter], encode_kmer: EncodeKmer) -> Iterator[Token]:
    """Yield one k-mer for each base; the span of a k-mer over the junction ends at the junction.

    Example, k = 3: ACGTT gives ACG CGT GTT | TTA TAC with the junction appended (the last two span
    bytes 3..5 and 4..5), and TTA TAC | ACG CGT GTT with it prepended.
    """
    num_letters = len(letters)
    first = num_letters - (model.k - 1) if model.junction == "prepend" else 0
    for place in range(first, first + num_letters):
        begin = place % num_letters
        kmer = [letters[(begin + i) % num_letters] for i in range(model.k)]
        end = min(begin + model.k, num_letters)
        for token_id in encode_kmer(kmer):
            yield Token(token_id, letters[begin].begin, letters[end - 1].end)


def _runs(model: Kmers, letters: list[Letter]) -> Iterator[Token]:
    """Yield the k-mers of each run of the model's letters; each frame begins with its run.

    Example, k = 3, N = 99: ACGTANNAxyA gives ACG T A 99 99 A unknown A.
    """
    singles = dict(model.letter_ids)
    place = 0
    while place < len(letters):
        kind = _kind(model, letters[place])
        end = place + 1
        while kind != "single" and end < len(letters) and _kind(model, letters[end]) == kind:
            end += 1
        run = letters[place:end]
        if kind == "bases":
            for i in range(0, len(run) - model.k + 1, model.k):
                yield _kmer_token(model, run[i : i + model.k])
            yield from _remainder(model, run[len(run) // model.k * model.k :])
        elif kind == "single":
            yield Token(singles[run[0].character], run[0].begin, run[0].end)
        elif kind == "other":
            yield Token(model.unknown_id, run[0].begin, run[-1].end)
        place = end


def _kind(model: Kmers, letter: Letter) -> str:
    character = letter.character
    if character in model.letters:
        return "bases"
    if character in dict(model.letter_ids):
        return "single"
    return "space" if character.isspace() and model.whitespace == "skip" else "other"


def _encode_words(
    vocabulary: Vocabulary,
    model: Kmers,
    part: AlignedText,
    options: EncodeOptions,
    encode_kmer: EncodeKmer,
) -> Iterator[Token]:
    """Yield the tokens of k-mers that white space separates, with special tokens among them.

    Example, k = 3: "ACG CGT [MASK] TAC" gives ACG CGT [MASK] TAC.
    """
    specials = _matched_tokens(vocabulary)
    offsets = part.byte_offsets()
    for begin, end in find_words(part.text):
        word, first = part.text[begin:end], offsets[begin]
        sent_byte = part.sources[first][0]
        special = specials.get(word)
        letters = find_letters(word, model.case)
        is_special = special is not None and accept_special_token(
            special, options.special, sent_byte
        )
        if special is not None and is_special:
            yield part.token(special.id, first, offsets[end])
            continue
        if len(letters) != model.k:
            message = f"{word[:50]!r} has {len(letters)} letters; words must have {model.k}"
            raise RowRefused(RowError("not_a_kmer", message, f"byte {sent_byte}"))
        placed = [Letter(c, first + begin, first + end) for c, begin, end in letters]
        for token_id in encode_kmer(_in_sent_text(part, placed)):
            yield part.token(token_id, first, offsets[end])


def _word_ids(
    vocabulary: Vocabulary,
    model: Kmers,
    options: EncodeOptions,
    kmer: list[Letter],
) -> list[int]:
    """Return the ids of a word: those of the special tokens in it and of the parts between them.

    Example, k = 6: ACGTA- gives two unknown ids; A[SEP] gives an unknown id and the id of [SEP].
    """
    word = "".join(letter.character for letter in kmer)
    if PLAIN_CHARACTERS.issuperset(word):
        return [_kmer_id(model, word)]
    specials, ids, last = _matched_tokens(vocabulary), [], 0
    for match in _special_token_pattern(vocabulary).finditer(word):
        special = specials[match.group()]
        if accept_special_token(special, options.special, kmer[match.start()].begin):
            ids += [*_part_ids(model, word[last : match.start()]), special.id]
            last = match.end()
    return ids + _part_ids(model, word[last:])


def _part_ids(model: Kmers, word: str) -> list[int]:
    parts = split_word(word)
    return [_kmer_id(model, p) if len(p) == model.k else model.unknown_id for p in parts]


def _matched_tokens(vocabulary: Vocabulary) -> dict[str, SpecialToken]:
    return {token.content: token for token in vocabulary.special_tokens if token.matched}


@functools.lru_cache(maxsize=32)
def _special_token_pattern(vocabulary: Vocabulary) -> re.Pattern[str]:
    """Compile a pattern of special tokens, the longest first; without any, it never matches."""
    contents = sorted(_matched_tokens(vocabulary), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, contents)) or r"(?!)")
