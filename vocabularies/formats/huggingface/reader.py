"""Reads Hugging Face's tokenizer.json to a Vocabulary.

A BPE file that `Bpe` can represent exactly becomes a Bpe model. Any other valid file becomes an
Upstream model, which only the library can run, with the reason. The blocks truncation and padding
are ignored, because requests have their own options; `describe_unfollowed` reports them.
`huggingface.writer` writes such files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.bpe_vocabulary import make_bpe_vocabulary, merge_ids, string_to_bytes
from vocabularies.formats.huggingface.limits import check_bounds
from vocabularies.formats.huggingface.pipeline import (
    PostProcessor,
    read_decoder,
    read_normalizers,
    read_post_processor,
    read_pretokenizer,
)
from vocabularies.formats.parsing import MAX_TOKENS, NotRepresentable, parse_json, read_token_ids
from vocabularies.formats.special_token_roles import guess_roles
from vocabularies.model.byte_alphabet import BYTE_TO_CHARACTER, UTF8_BYTES
from vocabularies.model.types import Decoder, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer, normalize
from vocabularies.preprocessing.pretokenizers import is_byte_level

VERSION = "1.0"
_PLACES_OF_MOTIF_FAULTS = ("motifs", "model.ignore_merges")
_TEXTS = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_TYPES: dict[str, tuple[type, ...]] = dict.fromkeys(_TEXTS, (NoneType, str)) | {
    "dropout": (NoneType, int, float)
}
_TYPES |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), (NoneType, bool))
_UNFOLLOWED = {
    "truncation": "requests have max_length and truncation_side",
    "padding": "requests have padding, padding_side and pad_id",
}
_MAX_RENUMBERED = 20  # Added tokens that a note names.
_MAX_SHOWN = 200  # Characters of a block that are repeated.
_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")


def describe_unfollowed(document: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Describe the settings of a tokenizer.json that the vocabulary ignores.

    Args:
        document: the content of a file that `read_tokenizer_document` accepts.
        vocabulary: the vocabulary of the file.
    """
    notes = _describe_renumbered(document.get("added_tokens", ()), vocabulary)
    for name, instead in _UNFOLLOWED.items():
        if block := document.get(name):
            shown = json.dumps(block, ensure_ascii=False)
            shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
            notes += (f"{name} of the file is not followed, {instead}: {shown}",)
    return notes


def _describe_renumbered(
    entries: Iterable[Mapping[str, Any]], vocabulary: Vocabulary
) -> tuple[str, ...]:
    """Describe the added tokens whose ids differ from those in the file."""
    ids = {token.content: token.id for token in vocabulary.special_tokens}
    changed = [
        f"{entry['content']!r} {ids[entry['content']]} instead of {entry['id']}"
        for entry in entries
        if ids.get(entry["content"], entry["id"]) != entry["id"]
    ]
    if not changed:
        return ()
    more = f" and {len(changed) - _MAX_RENUMBERED} more" if len(changed) > _MAX_RENUMBERED else ""
    listed = ", ".join(changed[:_MAX_RENUMBERED])
    return (f"added tokens have the ids that the library tokenizers gives them: {listed}{more}",)


def read_tokenizer_json(data: bytes, *, decodes_inversely: bool = False) -> Vocabulary:
    """Read the vocabulary of a tokenizer.json; see `read_tokenizer_document`."""
    return read_tokenizer_document(parse_json(data), decodes_inversely=decodes_inversely)


def read_tokenizer_document(document: Any, *, decodes_inversely: bool = False) -> Vocabulary:
    """Read the vocabulary of the parsed content of a tokenizer.json.

    Args:
        document: the content of the file, by `parse_json`.
        decodes_inversely: whether ids are decoded to the encoded text instead of by the file's
            decoder.

    Raises:
        VocabularyError: the file is invalid; the error lists the place of every fault.
    """
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise VocabularyError.at(
            "model", "a tokenizer.json must be an object in which model is an object"
        )
    if document.get("version", VERSION) != VERSION:
        message = f"is {document['version']!r}; the library tokenizers supports only {VERSION!r}"
        raise VocabularyError.at("version", message)
    model = document["model"]
    if model.get("dropout"):
        message = (
            f"is {model['dropout']!r}; it must be null, because dropout leaves out merges at random"
        )
        raise VocabularyError.at("model.dropout", message)
    if "type" in model and not (isinstance(model["type"], str) and model["type"]):
        raise VocabularyError.at("model.type", f"{model['type']!r} is not a type of model")
    kind = model["type"] if "type" in model else _kind(model)
    vocab = _list_ids(model.get("vocab")) if kind == "Unigram" else model.get("vocab")
    vocab = read_token_ids(vocab, "model.vocab")
    added = _added_tokens(document.get("added_tokens", []), vocab, len(model["vocab"]))
    try:
        if kind != "BPE":
            raise NotRepresentable(f"model: {kind} is not BPE")
        return _bpe(document, model, vocab, added, decodes_inversely)
    except NotRepresentable as reason:
        if decodes_inversely:
            message = f"must be file: the library tokenizers decodes this vocabulary ({reason})"
            raise VocabularyError.at("decoder", message) from reason
        return _upstream(document, vocab, added, str(reason))


def _kind(model: Mapping[str, Any]) -> str:
    """Guess the type of a model without a "type", as in files of 2020, like the library."""
    if "merges" in model:
        for name, types in _TYPES.items():
            if type(value := model.get(name)) not in types:
                message = f"is {value!r}; with it a model needs a type to be read as BPE"
                raise VocabularyError.at(f"model.{name}", message)
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"


def _bpe(
    document: dict[str, Any],
    model: dict[str, Any],
    vocab: dict[str, int],
    added: list[SpecialToken],
    decodes_inversely: bool,
) -> Vocabulary:
    pairs = _merges(model, vocab)
    _refuse_uncovered_options(model)
    pretokenizer, motifs, byte_level = read_pretokenizer(document.get("pre_tokenizer"))
    unknown_id = _unknown_id(model, vocab, byte_level)
    normalizers = read_normalizers(document.get("normalizer"))
    template = read_post_processor(document.get("post_processor"))
    strings = [*vocab, *(token.content for token in added)]
    decoder: Decoder = "inverse"
    if not decodes_inversely:
        decoder = read_decoder(document.get("decoder"), strings, byte_level)
    if not normalizers and all(token.normalized for token in added):
        # Without normalizers, tokens match the same text before and after normalization.
        added = [replace(token, normalized=False) for token in added]
    make = functools.partial(
        make_bpe_vocabulary,
        vocab,
        pairs,
        byte_level=byte_level,
        special_tokens=added,
        ignore_merges=model.get("ignore_merges") or False,
        unknown_id=unknown_id,
        fuse_unknown=(model.get("fuse_unk") or False) and unknown_id is not None,
        pretokenizer=pretokenizer,
        motifs=motifs,
        normalizers=normalizers,
        prefix=template.prefix,
        suffix=template.suffix,
        roles=_roles(added, template, unknown_id),
        decoder=decoder,
    )
    try:
        vocabulary = make()
    except VocabularyError as error:
        # The library also accepts a regex whose literals are not tokens.
        if motifs and all(f.where.startswith(_PLACES_OF_MOTIF_FAULTS) for f in error.findings):
            raise NotRepresentable(f"pre_tokenizer: {error.findings[0]}") from error
        raise
    _refuse_rewritten(added, normalizers)
    return vocabulary


def _refuse_rewritten(added: Iterable[SpecialToken], normalizers: Sequence[Normalizer]) -> None:
    """Refuse added tokens whose decoded text is not their content.

    Raises:
        NotRepresentable: there is such a token: after Lowercase, the library decodes "The" as
            "the".
    """
    for token in added:
        if token.normalized and normalize(token.content, normalizers)[0] != token.content:
            reason = "becomes another text by the normalizers, and is decoded as that text"
            raise NotRepresentable(f"the added token {token.content!r} {reason}")


def _merges(model: Mapping[str, Any], vocab: Mapping[str, int]) -> list[tuple[int, int]]:
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise VocabularyError.at("model.merges", "must be a list")
    prefix = model.get("continuing_subword_prefix") or ""
    if not isinstance(prefix, str):
        raise VocabularyError.at("model.continuing_subword_prefix", f"{prefix!r} is not a string")
    # The library removes the prefix from the right part without a check, and its process aborts if
    # this splits a character.
    ids = merge_ids(_without_version(merges), vocab, "model.merges[{}]", prefix)
    if len({isinstance(each, str) for each in merges}) > 1:
        raise VocabularyError.at(
            "model.merges", "contains strings and lists; it must contain only one of them"
        )
    return ids


def _unknown_id(model: Mapping[str, Any], vocab: Mapping[str, int], byte_level: bool) -> int | None:
    """Read the unknown id; None if the model has none, or if every byte has a token."""
    unknown = model.get("unk_token")
    if unknown is None:
        return None
    if isinstance(unknown, str) and unknown in vocab:
        return vocab[unknown]
    has_all = all(BYTE_TO_CHARACTER[byte] in vocab for byte in UTF8_BYTES)
    if isinstance(unknown, str) and byte_level and has_all:
        return None
    message = f"{unknown!r} is not in model.vocab, so unknown symbols would have no id"
    raise VocabularyError.at("model.unk_token", message)


def _without_version(merges: list[Any]) -> list[Any]:
    """Remove the strings that begin with "#version", as the library does."""
    if any(isinstance(pair, str) and pair.startswith("#version") for pair in merges):
        return [p for p in merges if not (isinstance(p, str) and p.startswith("#version"))]
    return merges


def _refuse_uncovered_options(model: dict[str, Any]) -> None:
    for name in ("byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise NotRepresentable(f"model.{name}: {model[name]!r} is not supported")
    for name in ("ignore_merges", "fuse_unk"):
        if not isinstance(model.get(name, False), bool | None):
            raise VocabularyError.at(f"model.{name}", f"{model[name]!r} is not true or false")


def _list_ids(vocab: Any) -> dict[str, int]:
    """Return the id of each token in Unigram's list; of a repeated token, the last one."""
    if not isinstance(vocab, list) or not all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) for entry in vocab
    ):
        raise VocabularyError.at("model.vocab", "must be a list of [token, score]")
    return {entry[0]: i for i, entry in enumerate(vocab)}


def _added_tokens(entries: Any, vocab: Mapping[str, int], num_listed: int) -> list[SpecialToken]:
    """Read the added tokens, each with the id that the library gives it.

    The library ignores the ids of added tokens in the file. A token of model.vocab has its id
    there, and the others are numbered from the number of entries on; `describe_unfollowed` reports
    such changes. A file is refused if its list has holes, so that two tokens would share an id.
    """
    if not isinstance(entries, list):
        raise VocabularyError.at("added_tokens", "must be a list")
    tokens: list[SpecialToken] = []
    findings: list[Finding] = []
    given: set[str] = set()
    owner = {token_id: string for string, token_id in vocab.items()} if entries else {}
    following = num_listed
    for i, entry in enumerate(entries):
        where = f"added_tokens[{i}]"
        token = _added_token(entry)
        if isinstance(token, str):
            findings.append(Finding(where, token))
            continue
        expected = vocab.get(token.content, following)
        if token.content in given:
            findings.append(Finding(where, f"{token.content!r} stands there twice"))
        elif (other := owner.get(expected, token.content)) != token.content:
            message = f"id {expected} is also the id of {other!r} in model.vocab"
            findings.append(Finding(where, f"{message}: put {token.content!r} there with its own"))
        given.add(token.content)
        following = max(following, expected + 1)
        tokens.append(replace(token, id=expected))
    if findings:
        raise VocabularyError(findings[:100])
    return tokens


def _added_token(entry: Any) -> SpecialToken | str:
    """Read an added token, or return a message that describes its fault."""
    match entry:
        case {"id": token_id, "content": str(content)} if (
            type(token_id) is int and 0 <= token_id < MAX_TOKENS
        ):
            if not content:
                return f"{content!r} is no text"
            flags = {name: entry.get(name) for name in _FLAGS}
            for name, value in flags.items():
                if not isinstance(value, bool):
                    return f"{name} is {value!r}; it must be true or false"
            return SpecialToken(content, token_id, **flags)
    return "must be an object with an id, a content and five flags"


def _roles(
    added: Iterable[SpecialToken], template: PostProcessor, unknown_id: int | None
) -> dict[str, int]:
    roles = guess_roles((token.content, token.id) for token in added)
    if unknown_id is not None:
        roles["unk"] = unknown_id
    return roles | template.roles


def _upstream(
    document: dict[str, Any], vocab: dict[str, int], added: list[SpecialToken], reason: str
) -> Vocabulary:
    """Make a vocabulary that only the library can run; its template is part of the file."""
    check_bounds(document)
    byte_level = is_byte_level(document.get("pre_tokenizer"))
    size = max([*vocab.values(), *(token.id for token in added)]) + 1
    tokens: list[bytes | None] = [None] * size
    # Unigram's list may contain a token twice; both ids are decoded to it.
    listed = document["model"]["vocab"]
    by_id = ((entry[0], i) for i, entry in enumerate(listed))
    for string, token_id in by_id if isinstance(listed, list) else vocab.items():
        spelled = string_to_bytes(string, byte_level)
        tokens[token_id] = string.encode() if spelled is None else spelled
    for token in added:
        tokens[token.id] = token.content.encode()
    try:
        template = read_post_processor(document.get("post_processor"))
    except NotRepresentable:
        template = PostProcessor()
    model = document["model"]
    unknown = model.get("unk_token")
    unknown_id = vocab.get(unknown) if isinstance(unknown, str) else model.get("unk_id")
    content = document | {"truncation": None, "padding": None}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Vocabulary(
        tokens=tuple(tokens),
        model=Upstream(text, reason),
        special_tokens=tuple(sorted(added, key=lambda token: token.id)),
        prefix=template.prefix,
        suffix=template.suffix,
        roles=_roles(added, template, unknown_id if type(unknown_id) is int else None),
    )
