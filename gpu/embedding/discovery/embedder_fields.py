"""Reads attributes of embedders, models and tokenizers: padding, lengths, names.

Objects are recognized by their attributes; no library of models is imported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from gpu.embedding.row_layout import SIDES, PaddingSide
from gpu.embedding.upstream_tokenizer import MAX_ID, find_attribute, find_number
from vocabularies.builtin import BUILTINS, describe, load
from vocabularies.formats import read_vocabulary
from vocabularies.formats.folders import NoTokenizer, find_tokenizer_files
from vocabularies.model.vocabulary import Vocabulary

MAX_TOKEN_LEN = 1 << 24
"""The largest value that is read as a length; some libraries use 10**30 for "no limit"."""

_PAD_TOKENS = ("[PAD]", "<pad>", "<PAD>", "<|padding|>")
_PAD_FIELDS = ("pad_token_id", "pad_id", "padding_idx", "config.pad_token_id")
_FIXED_FIELDS = ("token_len",)
_MAXIMUM_FIELDS = (
    "max_length",
    "max_seq_len",
    "max_seq_length",
    "max_len",
    "config.max_position_embeddings",
    "config.n_positions",
    "config.max_seq_len",
    "config.max_length",
    "model_max_length",
)
_TOKENIZER_FIELDS = ("tokenizer", "tok", "_tokenizer", "model.tokenizer")
_NAME_FIELDS = ("name_or_path", "config.name_or_path", "config._name_or_path")
_PUBLISHED = (
    ("nucleotide-transformer-v2-", "nt_v2"),
    (r"nucleotide-transformer-(500m|2\.5b)-", "nt_v1"),
    ("ntv3_", "ntv3"),
    ("dnabert-(2|s)", "dnabert2"),
    ("dna_bert_3", "dnabert1_3mer"),
    ("dna_bert_4", "dnabert1_4mer"),
    ("dna_bert_5", "dnabert1_5mer"),
    ("dna_bert_6", "dnabert1_6mer"),
    ("hyenadna-", "hyenadna"),
    ("caduceus-", "caduceus"),
    ("gena-lm-.*t2t", "gena_lm_t2t_32k"),
    ("gpn-brassicales", "gpn"),
    ("evo-1|evo2_", "evo_bytes"),
)
"""The beginnings of published models' names in lower case, as patterns, and their vocabularies."""


class UnknownTokenizer(TypeError):
    """The tokenizer of a model cannot be determined."""


class Named(NamedTuple):
    """A vocabulary and its name: that of a built-in vocabulary, or its folder."""

    vocabulary: Vocabulary
    name: str


def is_model(source: Any) -> bool:
    """Return whether an object is a model like those of transformers, and no tokenizer.

    An object that has `embed_tokens` but no name is an embedder like DNATok's.
    """
    if hasattr(source, "convert_tokens_to_ids") or callable(getattr(source, "encode", None)):
        return False
    if hasattr(source, "embed_tokens") and not hasattr(source, "get_input_embeddings"):
        return bool(_find_name(source))
    return hasattr(source, "get_input_embeddings") or hasattr(source, "config")


def _find_name(model: Any) -> str:
    """Find the name of a model in its attributes; "" where it has none."""
    names = (find_attribute(model, field) for field in _NAME_FIELDS)
    return next((name for name in names if isinstance(name, str) and name), "")


def find_model_vocabulary(model: Any) -> Named:
    """Find the vocabulary of a model by the name in its config: a folder, or a published model.

    Raises:
        UnknownTokenizer: the name is neither a folder nor a published model, or the model embeds
            fewer ids than the vocabulary has; the message says what to call instead.
        VocabularyError: the files of the folder are invalid.
    """
    name = _find_name(model)
    num_ids = find_number(model, ("config.vocab_size", "vocab_size"), 1, MAX_ID)
    found = _read_folder(Path(name)) or _find_published(name)
    kind = type(model).__name__
    if found is None:
        said = f"whose config has the name {name!r}" if name else "whose config has no name"
        raise UnknownTokenizer(
            f"a {kind}, {said}, does not say which tokenizer it has; give discover its tokenizer"
            f"{_suggest(num_ids)}"
        )
    if num_ids is not None and num_ids < len(found.vocabulary):
        raise UnknownTokenizer(
            f"a {kind} with the name {name!r} embeds {num_ids} ids, and {found.name} has "
            f"{len(found.vocabulary)}; give discover its tokenizer"
        )
    return found


def _find_published(name: str) -> Named | None:
    """Find the built-in vocabulary of a published model's name; None if there is none."""
    own = name.rstrip("/").rpartition("/")[2].lower()
    found = next((builtin for pattern, builtin in _PUBLISHED if re.match(pattern, own)), None)
    return None if found is None else Named(load(found), found)


def _read_folder(folder: Path) -> Named | None:
    """Read the vocabulary in a model's folder; None if there is no such folder or vocabulary.

    Raises:
        VocabularyError: the files are invalid.
    """
    if not folder.name or not folder.is_dir():
        return None
    try:
        paths = find_tokenizer_files(folder)
    except NoTokenizer:
        return None
    return Named(read_vocabulary({path.name: path.read_bytes() for path in paths}), str(folder))


def _suggest(num_ids: int | None) -> str:
    """Make a text that lists the built-in vocabularies of DNA with this number of ids."""
    of_dna = [name for name in BUILTINS if describe(name).family.startswith("DNA")]
    same = [name for name in of_dna if num_ids is not None and len(load(name)) == num_ids]
    calls = " or ".join(f"load({name!r})" for name in same)
    return f"; {calls} has as many ids as it embeds, {num_ids}" if same else ""


def find_tokenizer(embedder: Any) -> Any:
    """Find the tokenizer of an embedder; None if it has none."""
    for name in _TOKENIZER_FIELDS:
        tokenizer = find_attribute(embedder, name)
        if tokenizer is not None:
            # A wrapper without an `encode` of its own holds the tokenizer.
            inner = getattr(tokenizer, "tokenizer", None)
            return tokenizer if hasattr(tokenizer, "encode") or inner is None else inner
    return None


def find_pad_id(embedder: Any, tokenizer: Any) -> int:
    """Find the id of the padding; 0 if neither the tokenizer nor the embedder has one."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer.roles.get("pad", 0)
    for source in (tokenizer, embedder):
        pad_id = find_number(source, _PAD_FIELDS, 0, MAX_ID)
        if pad_id is not None:
            return pad_id
    padding = getattr(tokenizer, "padding", None)
    if isinstance(padding, dict) and "pad_id" in padding:
        return int(padding["pad_id"])
    token_to_id: Any = getattr(tokenizer, "token_to_id", None)
    for token in _PAD_TOKENS if callable(token_to_id) else ():
        token_id = token_to_id(token)
        if isinstance(token_id, int):
            return token_id
    return 0


def find_padding_side(tokenizer: Any) -> PaddingSide:
    """Find the side on which a tokenizer pads; "right" if it has no such attribute."""
    side = getattr(tokenizer, "padding_side", None)
    padding = getattr(tokenizer, "padding", None)
    if side is None and isinstance(padding, dict):
        side = padding.get("direction")
    return side if side in SIDES else "right"


def find_token_len(embedder: Any) -> int | None:
    """Find the only length that an embedder accepts; None if it accepts any."""
    return find_number(embedder, _FIXED_FIELDS, 1, MAX_TOKEN_LEN)


def find_max_len(embedder: Any, tokenizer: Any) -> int | None:
    """Find the length of the longest row that an embedder accepts; None: it has no limit."""
    for source in (embedder, tokenizer):
        max_len = find_number(source, _MAXIMUM_FIELDS, 1, MAX_TOKEN_LEN)
        if max_len is not None:
            return max_len
    return None
