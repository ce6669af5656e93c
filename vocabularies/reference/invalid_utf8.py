"""Encodes bytes that are not UTF-8, by byte-level BPE in which every byte has an id.

The rule is tiktoken's (`Encoding._encode_bytes`), the only published one. The text before the first
invalid byte is encoded as usual, except for its last pretoken. This pretoken and all following
bytes are merged as one pretoken, because the invalid bytes may be the beginning of a truncated
character.

    " world" f0 9f  →  the ids of " world", and those of f0 9f, which no merge joins to it

Part of the reference, in plain Python.
"""

from __future__ import annotations

from vocabularies.batch.batch import EncodeOptions, RowError, RowRefused
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import pretokenize
from vocabularies.reference.bpe import (
    MAX_PLAIN_SYMBOLS,
    Symbol,
    encode_bpe,
    make_bpe_rules,
    merge,
    merge_long,
    token_ids_of,
)
from vocabularies.reference.special_tokens import Token, split_special_tokens

# The largest text that is not UTF-8; bounded because its end is merged as one pretoken.
MAX_BYTES = 65_536
SPACES = frozenset(b" \n\t")


def has_all_bytes(vocabulary: Vocabulary) -> bool:
    """Return whether all bytes have ids: byte-level BPE with 256 byte tokens and no normalizers."""
    model = vocabulary.model
    if not isinstance(model, Bpe) or not model.byte_level or vocabulary.normalizers:
        return False
    token_ids = token_ids_of(vocabulary)
    return all(bytes([byte]) in token_ids for byte in range(256))


def encode_bytes(vocabulary: Vocabulary, data: bytes, options: EncodeOptions) -> list[Token]:
    """Encode bytes that are not UTF-8, without begin and end tokens.

    Args:
        vocabulary: the vocabulary.
        data: the bytes.
        options: only `special` has an effect.

    Raises:
        RowRefused: the vocabulary lacks a byte, the text is too long, it contains a special token
            that the options refuse, or the bytes are valid UTF-8.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        num_valid, reason = error.start, f"the text is not UTF-8: {error.reason}"
    else:
        raise RowRefused(RowError("not_utf8", "the text is UTF-8"))
    where = f"byte {num_valid}"
    if not has_all_bytes(vocabulary):
        message = f"{reason}, and the vocabulary does not have all bytes"
        raise RowRefused(RowError("not_utf8", message, where))
    if len(data) > MAX_BYTES:
        message = f"{reason}, and such a text may have {MAX_BYTES} bytes"
        raise RowRefused(RowError("not_utf8", message, where))
    tokens, num_last = _encode_valid(vocabulary, data[:num_valid].decode(), options)
    begin = tokens[-num_last].begin if num_last else num_valid
    del tokens[len(tokens) - num_last :]
    return tokens + _encode_pretoken(vocabulary, data, begin)


def _encode_valid(
    vocabulary: Vocabulary, text: str, options: EncodeOptions
) -> tuple[list[Token], int]:
    """Encode the text before the first byte that is not UTF-8.

    Returns:
        The tokens, and how many of the last ones must be encoded again: those of the last pretoken
        and, if it is white space, those of all white space before it.
    """
    tokens: list[Token] = []
    num_last = 0
    for part in split_special_tokens(vocabulary, text, options.special):
        if isinstance(part, Token):
            tokens.append(part)
            num_last = 0
            continue
        spans = pretokenize(vocabulary.pretokenizer, part.text, vocabulary.motifs)
        for pretoken in part.split(spans):
            encoded = encode_bpe(vocabulary, pretoken)
            tokens += encoded
            num_last = len(encoded)

    def is_space(token: Token) -> bool:
        return SPACES.issuperset(vocabulary.tokens[token.id] or b"x")

    if num_last and is_space(tokens[-num_last]):
        while num_last < len(tokens) and is_space(tokens[-num_last - 1]):
            num_last += 1
    return tokens, num_last


def _encode_pretoken(vocabulary: Vocabulary, data: bytes, begin: int) -> list[Token]:
    """Encode the bytes from `begin` on as one pretoken."""
    model, rules = vocabulary.model, make_bpe_rules(vocabulary)
    assert isinstance(model, Bpe)
    whole = data[begin:]
    if model.ignore_merges and whole in rules.token_ids:
        return [Token(rules.token_ids[whole], begin, len(data))]
    symbols = [
        Symbol(rules.token_ids[bytes([byte])], place, place + 1)
        for place, byte in enumerate(whole, begin)
    ]
    merged = (
        merge(symbols, rules) if len(symbols) <= MAX_PLAIN_SYMBOLS else merge_long(symbols, rules)
    )
    return [Token(symbol.id, symbol.begin, symbol.end) for symbol in merged]
