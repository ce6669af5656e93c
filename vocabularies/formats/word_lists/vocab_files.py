"""Reads and writes lists of words (vocab.txt, or vocab.json alone) of k-mers and characters.

Such a list contains tokens and ids but not the rule. Its first special tokens identify DNABERT-1,
Nucleotide Transformer, HyenaDNA, mtDNA and the protein models of ESM. Any other list of all k-mers
is read as k-mers at every base, and any other list of letters as one id for each letter. A
vocabulary with another rule is written as vocab_config.json (`kmer_config`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import decode_text, parse_json, read_token_ids
from vocabularies.formats.special_token_roles import guess_roles
from vocabularies.formats.word_lists.published_rules import apply_published_rule
from vocabularies.model.types import Characters, Kmers, Model, SpecialToken
from vocabularies.model.vocabulary import Vocabulary

_SPECIAL = re.compile(r"\[[^\[\]\s]+\]|<[^<>\s]+>")
Words = Mapping[int, str]
Place = Callable[[int], str]


def read_vocab_txt(data: bytes, special_tokens: Mapping[str, int] | None = None) -> Vocabulary:
    """Read a list with one word on each line; the id of a word is its line number, from 0.

    Raises:
        VocabularyError: some lines are invalid; the error lists each.
    """
    lines = [line.removesuffix("\r") for line in decode_text(data).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return make_word_vocabulary(dict(enumerate(lines)), special_tokens, "line {}", first_place=1)


def read_vocab_json(data: bytes, special_tokens: Mapping[str, int] | None = None) -> Vocabulary:
    """Read a list that is a JSON object of word -> id.

    Raises:
        VocabularyError: some entries are invalid; the error lists the id of each.
    """
    vocab = read_token_ids(parse_json(data), "vocab.json")
    words = {token_id: word for word, token_id in sorted(vocab.items(), key=lambda item: item[1])}
    return make_word_vocabulary(words, special_tokens, "id {}")


def all_kmers(letters: str, k: int) -> list[str]:
    """List all k-mers, counted in the order of the letters."""
    return ["".join(word) for word in product(letters, repeat=k)]


def make_word_vocabulary(
    words: Words,
    special_tokens: Mapping[str, int] | None = None,
    where: str = "id {}",
    first_place: int = 0,
) -> Vocabulary:
    """Make the vocabulary of a list of words.

    Args:
        words: id -> word, sorted by id.
        special_tokens: content -> id of the special words; None: words in [] or <> are special.
        where: the format of a place in findings.
        first_place: the number of id 0's place, which is inserted into `where`.

    Raises:
        VocabularyError: the ordinary words are neither single letters nor all words of k letters.
    """

    def place(token_id: int) -> str:
        return where.format(token_id + first_place)

    special = _special(words, special_tokens, place)
    ordinary = {token_id: word for token_id, word in words.items() if token_id not in special}
    _check_words(ordinary, place)
    lengths = {len(word) for word in ordinary.values()}
    if lengths == {1}:
        model: Model = _characters(ordinary, special)
    else:
        model = _kmers(ordinary, special, max(lengths), place)
    tokens: list[bytes | None] = [None] * (max(words) + 1)
    for token_id, word in words.items():
        tokens[token_id] = word.encode()
    return apply_published_rule(
        Vocabulary(
            tokens=tuple(tokens),
            model=model,
            special_tokens=tuple(SpecialToken(word, i) for i, word in sorted(special.items())),
            roles=guess_roles((word, token_id) for token_id, word in special.items()),
        )
    )


def _special(words: Words, given: Mapping[str, int] | None, place: Place) -> dict[int, str]:
    if given is None:
        return {token_id: word for token_id, word in words.items() if _SPECIAL.fullmatch(word)}
    findings = [
        Finding(f"special_tokens[{word!r}]", f"{place(token_id)} holds {words.get(token_id)!r}")
        for word, token_id in given.items()
        if words.get(token_id) != word
    ]
    if findings:
        raise VocabularyError(findings)
    return {token_id: word for word, token_id in sorted(given.items(), key=lambda item: item[1])}


def _check_words(ordinary: Words, place: Place) -> None:
    """Refuse lists with words of several lengths beside single letters, such as WordPiece's."""
    pieces = [token_id for token_id, word in ordinary.items() if word.startswith("##")]
    if pieces:
        message = f"{ordinary[pieces[0]]!r}: a WordPiece list, which lacks its rules (lower case,"
        raise VocabularyError.at(place(pieces[0]), f"{message} accents); send its tokenizer.json")
    if not ordinary:
        raise VocabularyError.at("vocabulary", "the list has no letter and no k-mer")
    empty = next((token_id for token_id, word in ordinary.items() if not word), None)
    if empty is not None:
        raise VocabularyError.at(place(empty), "the word is empty")
    # The commonest length is taken for k, so that one wrong word does not make all others wrong.
    numbers = Counter(len(word) for word in ordinary.values() if len(word) > 1)
    k = max(numbers, key=lambda length: (numbers[length], length), default=1)
    findings = [
        Finding(
            place(token_id), f"{word[:40]!r} is no special token, letter or word of {k} letters"
        )
        for token_id, word in ordinary.items()
        if len(word) not in (1, k) or word.isspace()
    ]
    seen: dict[str, int] = {}
    for token_id, word in ordinary.items():
        if word in seen:
            findings.append(Finding(place(token_id), f"{word!r} stands at {place(seen[word])} too"))
        seen.setdefault(word, token_id)
    if findings:
        raise VocabularyError(findings[:100])


def _unknown_id(special: Mapping[int, str]) -> int:
    roles = guess_roles((word, token_id) for token_id, word in special.items())
    if "unk" not in roles:
        message = "there is no unknown token ([UNK] or <unk>)"
        raise VocabularyError.at("special_tokens", message)
    return roles["unk"]


def _characters(ordinary: Words, special: Mapping[int, str]) -> Characters:
    letter_ids = tuple((word, token_id) for token_id, word in ordinary.items())
    return Characters(letter_ids, unknown_id=_unknown_id(special))


def _kmers(ordinary: Words, special: Mapping[int, str], k: int, place: Place) -> Kmers:
    ids = [token_id for token_id, word in ordinary.items() if len(word) == k]
    first = ids[0]
    letters = ""
    for token_id in ids:
        letter = ordinary[token_id][-1]
        if letter in letters:
            break
        letters += letter
    if len(letters) ** k != len(ids):
        raise VocabularyError.at(place(first), _why_not_all([ordinary[i] for i in ids], k))
    findings = []
    in_order = zip(ids, all_kmers(letters, k), strict=True)
    for expected_id, (token_id, expected) in enumerate(in_order, first):
        word = ordinary[token_id]
        if word != expected:
            message = f"is {word!r}, but {expected!r} comes next in counting order"
            findings.append(Finding(place(token_id), message))
        elif token_id != expected_id:
            message = (
                f"{word!r} must be at {place(expected_id)}, because the k-mers have consecutive ids"
            )
            findings.append(Finding(place(token_id), message))
    if findings:
        raise VocabularyError(findings[:100])
    letter_ids = tuple((word, token_id) for token_id, word in ordinary.items() if len(word) == 1)
    unknown_id = _unknown_id(special)
    if not letter_ids:
        return Kmers(k, first, unknown_id, letters)
    return Kmers(
        k,
        first,
        unknown_id,
        letters,
        stride=k,
        frame="run",
        letter_ids=letter_ids,
        remainder="letters" if set(letters) <= dict(letter_ids).keys() else "drop",
        whitespace="skip",
    )


def _why_not_all(words: list[str], k: int) -> str:
    """Explain why different words of k letters are not all k-mers in counting order."""
    letters = "".join(dict.fromkeys("".join(words)))
    if len(letters) ** k == len(words):
        return f"the {len(words)} words of {k} letters over {letters!r} are not in counting order"
    return f"{len(words)} words of {k} letters; all over {letters!r} are {len(letters) ** k}"


def write_word_list(vocabulary: Vocabulary, *, as_json: bool) -> dict[str, bytes]:
    """Write vocab.txt, or vocab.json, of a k-mer or character vocabulary.

    Raises:
        VocabularyError: reading the list would give another vocabulary.
    """
    name = "vocab.json" if as_json else "vocab.txt"
    if not isinstance(vocabulary.model, Kmers | Characters):
        raise VocabularyError.at("model", f"only k-mers and characters are written as {name}")
    words: dict[int, str] = {}
    for token_id, token in enumerate(vocabulary.tokens):
        if token is None and not as_json:
            raise VocabularyError.at(
                f"tokens[{token_id}]", "an id without a token cannot be written to a list of lines"
            )
        if token is not None:
            words[token_id] = token.decode(errors="replace")
    if as_json:
        data = json.dumps({word: i for i, word in words.items()}, ensure_ascii=False).encode()
    else:
        data = "".join(f"{word}\n" for word in words.values()).encode()
    special = {token.content: token.id for token in vocabulary.special_tokens}
    try:
        again = (read_vocab_json if as_json else read_vocab_txt)(data, special)
    except VocabularyError as error:
        findings = [Finding("model", f"{name} cannot say this vocabulary"), *error.findings]
        raise VocabularyError(findings) from error
    if again != vocabulary:
        message = f"{name} does not contain the rule of this vocabulary; write kmer instead"
        raise VocabularyError.at("model", message)
    return {name: data}
