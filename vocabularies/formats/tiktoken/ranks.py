"""Reads and writes tiktoken's rank files (lines "base64 rank").

A rank file contains neither the pattern nor the special tokens. They are arguments, or are found in
`known_files` by the file's SHA-256. This module does not depend on tokenizer.json.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.bpe_vocabulary import refuse_ambiguous_tokens, refuse_other_decoder
from vocabularies.formats.parsing import MAX_TOKENS, NotRepresentable
from vocabularies.formats.special_token_roles import guess_roles
from vocabularies.formats.tiktoken.known_files import KnownRanks, find_known_ranks
from vocabularies.formats.tiktoken.rank_merges import derive_merges
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary

_MAX_FINDINGS = 100


def is_rank_file(data: bytes) -> bool:
    """Return whether the first line consists of a base64 word and a number."""
    words = data[:2000].lstrip().split(b"\n", 1)[0].split()
    return len(words) == 2 and words[1].isdigit() and _decode(words[0]) is not None


def read_tiktoken(
    data: bytes,
    *,
    pretokenizer: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    id_offset: int | None = None,
) -> Vocabulary:
    """Read the vocabulary of a rank file.

    Args:
        data: the file.
        pretokenizer: its name; None is allowed only for a known file.
        special_tokens: content -> id; None: those of the known file.
        id_offset: id = rank + id_offset; None: that of the known file, else 0.

    Raises:
        VocabularyError: some lines are invalid (the error lists each), or the pretokenizer is
            unknown.
    """
    known = find_known_ranks(hashlib.sha256(data).hexdigest())
    if known is None:
        if pretokenizer is None:
            message = (
                "a rank file does not say how text is split; give pretokenizer= (such as cl100k)"
            )
            raise VocabularyError.at("pretokenizer", message)
        known = KnownRanks(pretokenizer, {})
    contents = known.special_tokens if special_tokens is None else special_tokens
    return make_rank_vocabulary(
        _read_ranks(data),
        pretokenizer or known.pretokenizer,
        sorted((SpecialToken(*item) for item in contents.items()), key=lambda token: token.id),
        known.id_offset if id_offset is None else id_offset,
        normalizers=known.normalizers,
    )


def make_rank_vocabulary(
    ranks: Mapping[bytes, int],
    pretokenizer: str,
    special_tokens: list[SpecialToken],
    id_offset: int,
    **fields: Any,
) -> Vocabulary:
    """Make the vocabulary that gives tiktoken's ids for these ranks.

    Args:
        ranks: token -> rank, every rank once.
        pretokenizer: its name.
        special_tokens: in order of their ids.
        id_offset: id = rank + id_offset.
        fields: the other fields of Vocabulary.

    Raises:
        VocabularyError: a byte has no rank, an id is used twice, or a special token begins with
            another one.
    """
    _refuse_common_beginnings(token.content for token in special_tokens if token.matched)
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        message = f"no rank for the bytes {missing[:8]}{'...' * (len(missing) > 8)}: not every text"
        raise VocabularyError.at("ranks", f"{message} could be encoded")
    ids = {token: rank + id_offset for token, rank in ranks.items()}
    if b"" in ids:  # Whisper's rank file has an empty token; no text is encoded to it.
        special_tokens = [*special_tokens, SpecialToken("", ids.pop(b""), False, False)]
        special_tokens.sort(key=lambda token: token.id)
    tokens = _by_id(ids, special_tokens)
    pairs, unreachable = derive_merges(ranks)
    try:
        contents = {token.content: token.content.encode() for token in special_tokens}
        refuse_ambiguous_tokens(contents, {*ranks}, True, pretokenizer if unreachable else None)
    except NotRepresentable as error:
        raise VocabularyError.at("special_tokens", str(error)) from error
    return Vocabulary(
        tokens=tokens,
        # tiktoken encodes a pretoken that equals a token without merging. This changes ids only if
        # there are tokens that no merge produces.
        model=Bpe(
            tuple((ids[left], ids[right]) for left, right in pairs), ignore_merges=bool(unreachable)
        ),
        special_tokens=tuple(special_tokens),
        pretokenizer=pretokenizer,
        roles=guess_roles((token.content, token.id) for token in special_tokens),
        **fields,
    )


def _refuse_common_beginnings(contents: Iterable[str]) -> None:
    """Refuse special tokens if one begins with another one.

    Other libraries match the longer of two such tokens. tiktoken matches the one that comes first
    in its hash table; in half of the cases this is the shorter one, and the rest is encoded as
    text.

    Raises:
        VocabularyError: there are such tokens; the error lists the longer one of each pair.
    """
    in_order = sorted(contents)  # Contents that begin with another one follow it directly.
    findings = [
        Finding(
            f"special_tokens[{longer!r}]",
            f"begins with {shorter!r}: tiktoken finds either, by the order of a hash table",
        )
        for shorter, longer in pairwise(in_order)
        if shorter and longer.startswith(shorter)
    ]
    if findings:
        raise VocabularyError(findings[:_MAX_FINDINGS])


def _by_id(
    ids: Mapping[bytes, int], special_tokens: list[SpecialToken]
) -> tuple[bytes | None, ...]:
    """Put each token at its id, and None at ids without one.

    Raises:
        VocabularyError: an id is too small, too large or used twice.
    """
    given = [*ids.values(), *(token.id for token in special_tokens)]
    first, last = min(given), max(given)
    if first < 0 or last >= MAX_TOKENS:
        raise VocabularyError.at(
            "ids", f"the ids {first} to {last} are outside 0 to {MAX_TOKENS - 1}"
        )
    tokens: list[bytes | None] = [None] * (last + 1)
    for spelled, token_id in ids.items():
        tokens[token_id] = spelled
    findings = [
        Finding(f"special_tokens[{token.content!r}]", f"id {token.id} is that of {other!r} too")
        for token in special_tokens
        if (other := tokens[token.id]) is not None
    ]
    if findings:
        raise VocabularyError(findings)
    for token in special_tokens:
        tokens[token.id] = token.content.encode()
    return tuple(tokens)


def _decode(word: bytes) -> bytes | None:
    """Decode a base64 word; published files write the empty token as "="."""
    if word == b"=":
        return b""
    try:
        return binascii.a2b_base64(word, strict_mode=True)
    except binascii.Error:
        return None


def _read_ranks(data: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    findings: list[Finding] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if not words:
            continue
        token = _decode(words[0]) if len(words) == 2 and words[1].isdigit() else None
        rank = int(words[1]) if token is not None and len(words[1]) < 10 else -1
        if token is None or not 0 <= rank < MAX_TOKENS:
            shown = line[:60].decode(errors="backslashreplace")
            message = f"{shown!r} is not a base64 token and a rank below {MAX_TOKENS}"
            findings.append(Finding(f"line {number}", message))
        elif token in ranks:
            message = f"the token is already in line {lines[ranks[token]]}"
            findings.append(Finding(f"line {number}", message))
        elif rank in lines:
            message = f"rank {rank} is already in line {lines[rank]}"
            findings.append(Finding(f"line {number}", message))
        else:
            ranks[token], lines[rank] = rank, number
        if len(findings) == _MAX_FINDINGS:
            break
    if findings:
        raise VocabularyError(findings)
    return ranks


def write_tiktoken(vocabulary: Vocabulary) -> bytes:
    """Write the rank file of a byte-level BPE vocabulary, rank = id.

    The file does not contain the pretokenizer and the special tokens; readers, including tiktoken,
    need them as arguments.

    Raises:
        VocabularyError: ranks alone would not give the same ids.
    """
    model = vocabulary.model
    if not isinstance(model, Bpe) or not model.byte_level or model.unknown_id is not None:
        raise VocabularyError.at("model", "only byte-level BPE without an unknown token has ranks")
    if vocabulary.normalizers:
        raise VocabularyError.at("normalizers", "a rank file cannot contain them")
    if vocabulary.motifs:
        raise VocabularyError.at("motifs", "a rank file cannot contain them")
    if vocabulary.prefix or vocabulary.suffix:
        raise VocabularyError.at("prefix", "a rank file cannot contain begin and end tokens")
    refuse_other_decoder(vocabulary)
    special = {token.id for token in vocabulary.special_tokens}
    ranks = {
        token: token_id
        for token_id, token in enumerate(vocabulary.tokens)
        if token is not None and token_id not in special
    }
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise VocabularyError.at(
            "tokens", "some bytes have no token; tiktoken needs a token for each of the 256"
        )
    pairs, unreachable = derive_merges(ranks)
    derived = tuple((ranks[left], ranks[right]) for left, right in pairs)
    if derived != model.merges or (unreachable and not model.ignore_merges):
        message = "the merges cannot be derived from the order of the ids, as a rank file requires"
        raise VocabularyError.at("model.merges", message)
    return b"".join(
        binascii.b2a_base64(token, newline=False) + b" %d\n" % rank for token, rank in ranks.items()
    )
