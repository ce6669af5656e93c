"""Reads and writes GPT-2's pair of files, vocab.json and merges.txt.

Strings are in the byte alphabet. The files contain neither the pretokenizer nor the special tokens;
both may be given as arguments. The default pretokenizer is GPT-2's. By default, strings such as
`<s>` and `<|endoftext|>` are special tokens unless a merge produces them: `<s>` is special in
RoBERTa's list, and ordinary text in Qwen 2.5's. This module does not depend on tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.bpe_vocabulary import (
    make_bpe_vocabulary,
    merge_ids,
    refuse_other_decoder,
    string_to_bytes,
)
from vocabularies.formats.parsing import (
    MAX_TOKENS,
    NotRepresentable,
    decode_text,
    parse_json,
    read_token_ids,
)
from vocabularies.formats.special_token_roles import ROLE_CONTENTS, guess_roles
from vocabularies.model.byte_alphabet import to_alphabet
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary

_END_OF_WORD = "</w>"
# A list is not byte-level if more than a quarter of its strings are outside the byte alphabet.
_OTHERS_SHARE = 4
_USUAL = {content for contents in ROLE_CONTENTS.values() for content in contents}


def read_bpe_files(
    vocab_json: bytes,
    merges_txt: bytes,
    *,
    pretokenizer: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
) -> Vocabulary:
    """Read the vocabulary of the two files.

    Args:
        vocab_json: token -> id.
        merges_txt: a pair on each line, by rank; lines that begin with "#version" are skipped.
        pretokenizer: its name; None: gpt2.
        special_tokens: content -> id; None: the usual ones (``<|endoftext|>``, ``<s>`` ...) that
            vocab.json contains and no merge produces.

    Raises:
        VocabularyError: a file is invalid; the error lists the place of every fault.
    """
    vocab = read_token_ids(parse_json(vocab_json), "vocab.json")
    _check_is_byte_level(vocab)
    merges = _merges(merges_txt, vocab)
    given = _usual_tokens(vocab, merges) if special_tokens is None else special_tokens
    special = _special_tokens(vocab, given)
    try:
        return make_bpe_vocabulary(
            vocab,
            merges,
            byte_level=True,
            special_tokens=special,
            pretokenizer=pretokenizer or "gpt2",
            roles=guess_roles((token.content, token.id) for token in special),
        )
    except NotRepresentable as error:
        raise VocabularyError.at("special_tokens", str(error)) from error


def _check_is_byte_level(vocab: Mapping[str, int]) -> None:
    """Refuse lists of BPE that is not byte-level, such as CLIP's and Llama 2's.

    Raises:
        VocabularyError: too many tokens are outside the byte alphabet or end in </w>.
    """
    for what, spelled in (
        (f"ends in {_END_OF_WORD}", lambda string: string.endswith(_END_OF_WORD)),
        ("is not in GPT-2's byte alphabet", lambda string: string_to_bytes(string, True) is None),
    ):
        examples = [string for string in vocab if spelled(string)]
        if len(examples) * _OTHERS_SHARE > len(vocab):
            message = f"{examples[-1]!r}, as {len(examples)} of {len(vocab)} tokens, {what}: these"
            message = f"{message} files do not say what that means; send tokenizer.json"
            raise VocabularyError.at("vocab.json", message)


def _merges(merges_txt: bytes, vocab: Mapping[str, int]) -> list[tuple[int, int]]:
    """Read the pairs of ids, by rank.

    Raises:
        VocabularyError: some merges are invalid; the error lists the line of each.
    """
    lines = [line.removesuffix("\r") for line in decode_text(merges_txt).split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    numbers = [i for i, line in enumerate(lines, 1) if not line.startswith("#version")]
    pairs = [lines[number - 1] for number in numbers]
    try:
        return merge_ids(pairs, vocab, "{}")
    except VocabularyError as error:
        raise VocabularyError(
            Finding(f"line {numbers[int(finding.where)]}", finding.message)
            for finding in error.findings
        ) from error


def _usual_tokens(vocab: Mapping[str, int], merges: list[tuple[int, int]]) -> dict[str, int]:
    """Find the usual special tokens that no merge produces."""
    usual = {content: vocab[content] for content in _USUAL if content in vocab}
    if not usual:
        return usual
    strings = {token_id: string for string, token_id in vocab.items()}
    made = {strings[left] + strings[right] for left, right in merges}
    return {content: token_id for content, token_id in usual.items() if content not in made}


def _special_tokens(vocab: Mapping[str, int], given: Mapping[str, int]) -> list[SpecialToken]:
    owner = {token_id: string for string, token_id in vocab.items()}
    findings = []
    for content, token_id in given.items():
        where = f"special_tokens[{content!r}]"
        if not 0 <= token_id < MAX_TOKENS:
            findings.append(Finding(where, f"id {token_id} is outside 0..{MAX_TOKENS - 1}"))
        elif vocab.get(content, token_id) != token_id:
            message = f"has id {vocab[content]} in vocab.json, not {token_id}"
            findings.append(Finding(where, message))
        elif owner.get(token_id, content) != content:
            findings.append(Finding(where, f"id {token_id} is that of {owner[token_id]!r}"))
    if findings:
        raise VocabularyError(findings)
    return [SpecialToken(content, token_id) for content, token_id in given.items()]


def write_bpe_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Write vocab.json and merges.txt of a byte-level BPE vocabulary.

    The files contain neither the pretokenizer nor the special tokens; readers need them as
    arguments.

    Raises:
        VocabularyError: the two files cannot express the vocabulary.
    """
    model = vocabulary.model
    if not isinstance(model, Bpe) or not model.byte_level:
        raise VocabularyError.at(
            "model", "only byte-level BPE is written as vocab.json + merges.txt"
        )
    if model.ignore_merges or model.unknown_id is not None:
        raise VocabularyError.at(
            "model", "these files cannot contain ignore_merges or an unknown token"
        )
    for name in ("normalizers", "prefix", "suffix"):
        if getattr(vocabulary, name):
            raise VocabularyError.at(name, "these files cannot contain it")
    refuse_other_decoder(vocabulary)
    special = {token.id: token.content for token in vocabulary.special_tokens}
    strings = {
        token_id: special.get(token_id) or to_alphabet(token)
        for token_id, token in enumerate(vocabulary.tokens)
        if token is not None
    }
    vocab = {string: token_id for token_id, string in strings.items()}
    lines = [f"{strings[left]} {strings[right]}" for left, right in model.merges]
    if len(vocab) < len(strings) or any(
        line.count(" ") != 1 or line.startswith("#version") or "\n" in line for line in lines
    ):
        raise VocabularyError.at(
            "tokens", "a special token would be read as an ordinary one from these files"
        )
    merges = "\n".join(["#version: 0.2", *lines, ""])
    return {
        "vocab.json": json.dumps(vocab, ensure_ascii=False).encode(),
        "merges.txt": merges.encode(),
    }
