"""Makes a vocabulary from the strings and merges of a BPE file.

The readers of tokenizer.json and of vocab.json with merges.txt use it. A byte-level file represents
bytes by GPT-2's alphabet. A string with any other character (DeepSeek's list has some) is a token
to which no text is encoded; it is decoded to its own UTF-8 bytes. This module does not parse JSON
or read files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import NotRepresentable
from vocabularies.model.byte_alphabet import CHARACTER_TO_BYTE, added_token_bytes
from vocabularies.model.types import PART, Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import pretokenize

_MAX_FINDINGS = 100
_HOLE = re.compile("\ue000([0-9]+)|([0-9]+)\ue000")
# Maps the alphabet to Latin-1, and Latin-1 characters that are not in the alphabet to others.
_TO_LATIN_1 = {code: 0xFFFF for code in range(256)} | {
    ord(character): byte for character, byte in CHARACTER_TO_BYTE.items()
}


def string_to_bytes(string: str, byte_level: bool) -> bytes | None:
    """Return the bytes that a string of the file represents; None if it is not in the alphabet."""
    if not byte_level:
        return string.encode()
    try:
        return string.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return None


def hole_string(token_id: int) -> str:
    """Make the string for an id without a token, a hole, in a tokenizer.json.

    fastokens refuses a list with missing ids, and tokenizers accepts both. The distinguishing
    character is the last one, because fastokens' loading time grows with the square of the number
    of strings with a common beginning: 110,000 holes take 0.4 s instead of 4 s.
    """
    return f"{token_id}\ue000"


def _is_hole(string: str, token_id: int) -> bool:
    found = _HOLE.fullmatch(string)
    return found is not None and str(token_id) in found.groups()


def merge_ids(
    pairs: Sequence[Any], vocab: Mapping[str, int], where: str, prefix: str = ""
) -> list[tuple[int, int]]:
    """Convert merges to ids; if a pair is listed twice, the last one is used, as in tokenizers.

    Args:
        pairs: "a b" or ["a", "b"] by rank.
        vocab: string -> id; it must contain both parts of every merge and the joined string.
        where: the format of a merge's place in findings, such as ``model.merges[{}]``.
        prefix: the beginning of every right part, which the joined token omits: with "##", the
            parts a and ##b become ab.

    Raises:
        VocabularyError: some merges are invalid; the error lists the place of each.
    """
    try:
        parts = [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs]
        ids = [(vocab[left], vocab[right]) for left, right in parts]
        begin = len(prefix)
        if all(left + right[begin:] in vocab for left, right in parts) and all(
            right.startswith(prefix) for _, right in parts if prefix
        ):
            known: set[tuple[int, int]] = set()
            for i in range(0, len(ids), PART):  # Between two parts other threads can run.
                known.update(ids[i : i + PART])
            return ids if len(known) == len(ids) else list(dict.fromkeys(reversed(ids)))[::-1]
    except (KeyError, ValueError, TypeError, AttributeError):
        pass
    findings = (
        Finding(where.format(i), message)
        for i, pair in enumerate(pairs)
        if (message := _merge_fault(pair, vocab, prefix))
    )
    raise VocabularyError(islice(findings, _MAX_FINDINGS))


def _merge_fault(pair: Any, vocab: Mapping[str, int], prefix: str) -> str:
    parts = pair.split(" ") if isinstance(pair, str) else pair
    if not isinstance(parts, list) or len(parts) != 2:
        return f"{pair!r} is not two tokens"
    for part in parts:
        if not isinstance(part, str) or part not in vocab:
            return f"{part!r} is not in the vocabulary"
    if not parts[1].startswith(prefix):
        return f"{parts[1]!r} does not begin with {prefix!r}, the continuing_subword_prefix"
    joined = parts[0] + parts[1][len(prefix) :]
    return "" if joined in vocab else f"{joined!r}, the two joined, is not in the vocabulary"


def make_bpe_vocabulary(
    vocab: Mapping[str, int],
    pairs: Iterable[tuple[int, int]],
    *,
    byte_level: bool,
    special_tokens: Iterable[SpecialToken],
    ignore_merges: bool = False,
    unknown_id: int | None = None,
    fuse_unknown: bool = False,
    pretokenizer: str = "none",
    motifs: tuple[str, ...] = (),
    **fields: Any,
) -> Vocabulary:
    """Make a vocabulary from a list of strings, its merges and its special tokens.

    Args:
        vocab: string -> id, as in the file; it may include special tokens.
        pairs: merges by rank.
        byte_level: whether strings are in GPT-2's alphabet, so that merging starts from bytes.
        special_tokens: in any order.
        ignore_merges: see Bpe.
        unknown_id: see Bpe.
        fuse_unknown: see Bpe.
        pretokenizer: its name.
        motifs: see VocabularyFields.
        fields: the other fields of Vocabulary.

    Raises:
        VocabularyError: some fields are invalid; the error lists each fault.
        NotRepresentable: a Vocabulary would encode some text to a special token, and the library
            would not.
    """
    special = {token.content: token for token in special_tokens}
    spelled, unspellable = _spell_all(vocab, special, byte_level)
    spell = added_token_bytes if byte_level else str.encode
    bytes_of = {token.content: spell(token.content) for token in (*unspellable, *special.values())}
    special_only = {
        content: bytes_of[content] for content in _never_ordinary(bytes_of, vocab, byte_level)
    }
    _refuse_equal_bytes(
        special_only, {bytes_of[content] for content in bytes_of.keys() - special_only.keys()}
    )
    ordinary = {*spelled.values()}
    refuse_ambiguous_tokens(
        special_only, ordinary, byte_level, pretokenizer if ignore_merges else None, motifs
    )
    for token in (*unspellable, *special.values()):
        spelled[token.id] = bytes_of[token.content]
    last = max([*vocab.values(), *spelled], default=-1)
    unspellable_ids = {token.id for token in unspellable}
    model = Bpe(
        merges=tuple(pair for pair in pairs if unspellable_ids.isdisjoint(pair)),
        byte_level=byte_level,
        ignore_merges=ignore_merges,
        unknown_id=unknown_id,
        fuse_unknown=fuse_unknown,
    )
    all_special = sorted([*special.values(), *unspellable], key=lambda token: token.id)
    return Vocabulary(
        tokens=tuple(map(spelled.get, range(last + 1))),
        model=model,
        special_tokens=tuple(all_special),
        pretokenizer=pretokenizer,
        motifs=motifs,
        **fields,
    )


def _spell_all(
    vocab: Mapping[str, int], special: Mapping[str, SpecialToken], byte_level: bool
) -> tuple[dict[int, bytes], list[SpecialToken]]:
    """Return the bytes of ordinary tokens by id, and an unmatched token for every other string."""
    spelled: dict[int, bytes] = {}
    unspellable: list[SpecialToken] = []
    for string, token_id in vocab.items():
        if string in special or _is_hole(string, token_id):
            continue
        token = string_to_bytes(string, byte_level)
        if not token:
            unspellable.append(SpecialToken(string, token_id, special=False, matched=False))
        else:
            spelled[token_id] = token
    return spelled, unspellable


def _never_ordinary(
    contents: Iterable[str], vocab: Mapping[str, int], byte_level: bool
) -> Iterator[str]:
    """Yield the special tokens to which the library never encodes ordinary text."""
    for content in contents:
        if content not in vocab or string_to_bytes(content, byte_level) is None:
            yield content


def _refuse_equal_bytes(special_only: Mapping[str, bytes], ordinary: Set[bytes]) -> None:
    """Refuse special tokens whose bytes equal those of an ordinary token.

    Raises:
        NotRepresentable: there is such a token, for instance " " if "Ġ" is an ordinary token:
            merges produce only the second.
    """
    for content, spelled in special_only.items():
        if spelled in ordinary:
            raise NotRepresentable(
                f"the special tokens {content!r} and another one have the same bytes"
            )


def refuse_ambiguous_tokens(
    special_only: Mapping[str, bytes],
    ordinary: set[bytes],
    byte_level: bool,
    whole_pretokenizer: str | None,
    motifs: tuple[str, ...] = (),
) -> None:
    """Refuse special tokens to which a Vocabulary would also encode ordinary text.

    This happens if no ordinary token has the same bytes: for a single symbol before any merge, and
    for a whole pretoken if merges are ignored.

    Args:
        special_only: special tokens to which the library never encodes ordinary text, and their
            bytes.
        ordinary: the bytes of the ordinary tokens.
        byte_level: first symbols are bytes, not characters.
        whole_pretokenizer: the name of the pretokenizer if merges are ignored, else None.
        motifs: the motifs at which it splits.

    Raises:
        NotRepresentable: there is such a token.
    """
    for content, spelled in special_only.items():
        if spelled in ordinary:
            continue
        text = spelled.decode(errors="ignore")
        single = len(spelled if byte_level else text) == 1
        whole = whole_pretokenizer is not None and (
            pretokenize(whole_pretokenizer, text, motifs) == [(0, len(text))]
        )
        if single or whole:
            reason = f"the special token {content!r} could be taken for an ordinary one"
            raise NotRepresentable(reason)


def refuse_other_decoder(vocabulary: Vocabulary) -> None:
    """Refuse a decoder other than the inverse, for formats that do not store the decoder.

    Raises:
        VocabularyError: the vocabulary has another decoder.
    """
    if vocabulary.decoder != "inverse":
        message = (
            "only tokenizer.json and canonical can say that decoding puts blanks between tokens"
        )
        raise VocabularyError.at("decoder", f"{message}; choose one of these formats")
