"""Writes a Vocabulary as tokenizer.json, for the libraries tokenizers and fastokens.

It supports BPE vocabularies, and Upstream vocabularies, whose file is stored. No tokenizer.json can
produce the ids of k-mer or character vocabularies. `huggingface.reader` reads such files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.bpe_vocabulary import hole_string
from vocabularies.formats.huggingface.motif_pattern import motif_split
from vocabularies.formats.special_token_roles import guess_roles
from vocabularies.model.byte_alphabet import added_token_bytes, to_alphabet
from vocabularies.model.types import Bpe, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.pretokenizers import find_pretokenizer
from vocabularies.preprocessing.published_patterns import SPELLINGS

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


@functools.lru_cache(maxsize=2)
def tokenizer_json(vocabulary: Vocabulary) -> str:
    """Write a tokenizer.json that gives the same ids, including begin and end tokens.

    The result is cached, because loading a vocabulary needs it for several libraries; `cache_clear`
    frees it.

    Raises:
        VocabularyError: no tokenizer.json gives these ids; the error lists every reason with its
            place.
    """
    model = vocabulary.model
    if isinstance(model, Upstream):
        return model.tokenizer_json
    if not isinstance(model, Bpe):
        message = (
            f"{vocabulary.kind} cannot be a tokenizer.json; write vocab.txt, vocab.json or kmer"
        )
        raise VocabularyError.at("model", message)
    strings = _strings(vocabulary, model)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token) for token in vocabulary.special_tokens if token.matched],
        "normalizer": _normalizer(vocabulary.normalizers),
        "pre_tokenizer": _pre_tokenizer(vocabulary, model.byte_level),
        "post_processor": _template(vocabulary, strings),
        "decoder": _decoder(vocabulary, model.byte_level),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if model.unknown_id is None else strings[model.unknown_id],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": model.fuse_unknown,
            "byte_fallback": False,
            "ignore_merges": model.ignore_merges,
            "vocab": {string: token_id for token_id, string in strings.items()},
            "merges": _merges(model, strings),
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _strings(vocabulary: Vocabulary, model: Bpe) -> dict[int, str]:
    """Return the string of each id; special tokens have their content, and holes are filled.

    Holes are filled for fastokens, see `hole_string`. They are not filled if symbols are characters
    and merges are ignored: a text could then equal the string of a hole and be encoded to its id.
    """
    special = {token.id: token.content for token in vocabulary.special_tokens}
    fill = model.byte_level or not model.ignore_merges
    strings: dict[int, str] = {}
    owner: dict[str, int] = {}
    findings: list[Finding] = []
    for token_id, token in enumerate(vocabulary.tokens):
        try:
            if token_id in special:
                string = special[token_id]
            elif token is not None:
                string = to_alphabet(token) if model.byte_level else token.decode()
            elif fill:
                string = hole_string(token_id)
            else:
                continue
        except UnicodeDecodeError:
            findings.append(Finding(f"tokens[{token_id}]", f"{token!r} is not UTF-8"))
            continue
        if token_id in special and model.byte_level and token != added_token_bytes(string):
            message = f"ambiguous: the libraries read {string!r} in the byte alphabet"
            findings.append(Finding(f"tokens[{token_id}]", message))
        if string in owner:
            message = f"ambiguous: the file spells it {string!r}, as tokens[{owner[string]}]"
            findings.append(Finding(f"tokens[{token_id}]", message))
        owner.setdefault(string, token_id)
        strings[token_id] = string
    if findings:
        raise VocabularyError(findings[:100])
    return strings


def _merges(model: Bpe, strings: Mapping[int, str]) -> list[str] | list[list[str]]:
    """Write merges as strings "a b", or all as pairs if such strings would be ambiguous."""
    lines = [f"{strings[left]} {strings[right]}" for left, right in model.merges]
    plain = all(line.count(" ") == 1 and not line.startswith("#version") for line in lines)
    return lines if plain else [[strings[left], strings[right]] for left, right in model.merges]


def _added(token: SpecialToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "content": token.content,
        "single_word": token.single_word,
        "lstrip": token.lstrip,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    }


def _normalizer(steps: tuple[Normalizer, ...]) -> dict[str, Any] | None:
    written = [_normalizer_step(step) for step in steps]
    if len(written) > 1:
        return {"type": "Sequence", "normalizers": written}
    return written[0] if written else None


def _normalizer_step(step: Normalizer) -> dict[str, Any]:
    match step.kind:
        case "nfc":
            return {"type": "NFC"}
        case "lowercase":
            return {"type": "Lowercase"}
        case "strip":
            return {"type": "Strip", "strip_left": step.left, "strip_right": step.right}
        case "replace":
            pattern = {"String": step.pattern}
        case "replace_regex":
            pattern = {"Regex": step.pattern}
    return {"type": "Replace", "pattern": pattern, "content": step.content}


def _pre_tokenizer(vocabulary: Vocabulary, byte_level: bool) -> dict[str, Any] | None:
    """Write the pretokenizer's steps; the last one is ByteLevel exactly if symbols are bytes."""
    name, motifs = vocabulary.pretokenizer, vocabulary.motifs
    rule = motif_split(motifs) if motifs else find_pretokenizer(name).hf_json
    if name == "gpt2":
        if byte_level:
            return {**_BYTE_LEVEL, "use_regex": True}
        pattern = {"Regex": SPELLINGS["gpt2"][0]}
        return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    steps = [] if rule is None else [*rule.get("pretokenizers", [rule])]
    steps = [step for step in steps if step["type"] != "ByteLevel"]
    if byte_level:
        steps.append({**_BYTE_LEVEL, "use_regex": False})
    if len(steps) > 1:
        return {"type": "Sequence", "pretokenizers": steps}
    return steps[0] if steps else None


def _decoder(vocabulary: Vocabulary, byte_level: bool) -> dict[str, Any] | None:
    if vocabulary.decoder == "blanks":
        return None
    return {**_BYTE_LEVEL, "use_regex": False} if byte_level else {"type": "Fuse"}


def _template(vocabulary: Vocabulary, strings: Mapping[int, str]) -> dict[str, Any] | None:
    if not vocabulary.prefix and not vocabulary.suffix:
        return None
    names = {token_id: strings[token_id] for token_id in vocabulary.prefix + vocabulary.suffix}
    if _has_own_roles(vocabulary):
        cls, sep = vocabulary.roles["cls"], vocabulary.roles["sep"]
        return {"type": "BertProcessing", "sep": [names[sep], sep], "cls": [names[cls], cls]}

    def around(*sequences: str) -> list[dict[str, Any]]:
        texts = [{"Sequence": {"id": name, "type_id": 0}} for name in sequences]
        before, after = (
            [{"SpecialToken": {"id": names[token_id], "type_id": 0}} for token_id in side]
            for side in (vocabulary.prefix, vocabulary.suffix)
        )
        return [*before, *texts, *after]

    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": {
            name: {"id": name, "ids": [token_id], "tokens": [name]}
            for token_id, name in names.items()
        },
    }


def _has_own_roles(vocabulary: Vocabulary) -> bool:
    """Return whether the begin and end tokens are "cls" and "sep" with other contents (RoBERTa)."""
    roles = vocabulary.roles
    if (vocabulary.prefix, vocabulary.suffix) != ((roles.get("cls"),), (roles.get("sep"),)):
        return False
    added = (token for token in vocabulary.special_tokens if token.matched)
    guessed = guess_roles((token.content, token.id) for token in added)
    return any(guessed.get(role) != roles[role] for role in ("cls", "sep"))
