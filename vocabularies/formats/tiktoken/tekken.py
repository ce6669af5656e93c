"""Reads Mistral's tekken.json: ranks, the pretokenizer and the control tokens.

Source: mistral-common, tokens/tokenizers/tekken.py. The first ids are those of the control tokens,
to which no text is encoded. Every other id is a rank plus the number of control tokens. Ranks from
the vocabulary size on are ignored.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_TOKENS
from vocabularies.formats.tiktoken.ranks import make_rank_vocabulary
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import recognize_tiktoken_pattern

_MAX_FINDINGS = 100
# The control tokens of files that do not list them, which is allowed up to version 7.
_CONTROL_TOKENS = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)


def is_tekken(document: Any) -> bool:
    """Return whether a JSON document is a tekken.json, by a field that no other format has."""
    config = document.get("config") if isinstance(document, dict) else None
    return isinstance(config, dict) and "default_num_special_tokens" in config


def read_tekken(document: Mapping[str, Any]) -> Vocabulary:
    """Read the vocabulary of a parsed tekken.json; its begin token <s> is put before every text.

    Raises:
        VocabularyError: the file is invalid; the error lists the place of every fault.
    """
    config = document["config"]
    names = ("default_vocab_size", "default_num_special_tokens")
    size, num_control = (_number(config.get(name), f"config.{name}") for name in names)
    pattern = config.get("pattern")
    rule = recognize_tiktoken_pattern(pattern) if isinstance(pattern, str) else None
    if rule is None:
        raise VocabularyError.at("config.pattern", "is not a pattern that is supported")
    ranks = _ranks(document.get("vocab"), size - num_control)
    control = _control_tokens(document.get("special_tokens"), num_control)
    begin = next((token.id for token in control if token.content == "<s>"), None)
    return make_rank_vocabulary(
        ranks, rule, control, num_control, prefix=() if begin is None else (begin,)
    )


def _number(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value < MAX_TOKENS:
        raise VocabularyError.at(where, f"{value!r} is not a number from 0 to {MAX_TOKENS - 1}")
    return value


def _ranks(entries: Any, num_ranks: int) -> dict[bytes, int]:
    """Read the first `num_ranks` ranks; entry n must have rank n, as in the library."""
    if not isinstance(entries, list) or not 0 < num_ranks <= len(entries):
        message = f"must be a list of at least {num_ranks} tokens (config.default_vocab_size)"
        raise VocabularyError.at("vocab", message)
    ranks: dict[bytes, int] = {}
    findings: list[Finding] = []
    for rank, entry in enumerate(entries[:num_ranks]):
        token = _token(entry, rank)
        if token is None:
            message = f"must be an object with rank {rank} and base64 token_bytes"
            findings.append(Finding(f"vocab[{rank}]", message))
        elif token in ranks:
            message = f"has the same bytes {token!r} as vocab[{ranks[token]}]"
            findings.append(Finding(f"vocab[{rank}]", message))
        else:
            ranks[token] = rank
        if len(findings) == _MAX_FINDINGS:
            break
    if findings:
        raise VocabularyError(findings)
    return ranks


def _token(entry: Any, rank: int) -> bytes | None:
    match entry:
        case {"rank": int(own), "token_bytes": str(word)} if own == rank:
            try:
                return binascii.a2b_base64(word, strict_mode=True) or None
            except ValueError:  # A character is not ASCII, or the word is not base64.
                return None
    return None


def _control_tokens(entries: Any, num_control: int) -> list[SpecialToken]:
    """Make the control tokens of a file, and the placeholders that the library adds after them."""
    named = list(_CONTROL_TOKENS) if entries is None else _names(entries)
    if len(named) > num_control:
        message = f"has {len(named)} tokens; config.default_num_special_tokens is {num_control}"
        raise VocabularyError.at("special_tokens", message)
    names = [*named, *(f"<SPECIAL_{i}>" for i in range(len(named), num_control))]
    return [SpecialToken(name, token_id, matched=False) for token_id, name in enumerate(names)]


def _names(entries: Any) -> list[str]:
    names: list[str] = []
    for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        match entry:
            case {"rank": int(rank), "token_str": str(name)} if rank == i and name:
                names.append(name)
            case _:
                message = f"must be an object with rank {i} and a token_str"
                raise VocabularyError.at(f"special_tokens[{i}]", message)
    return names
