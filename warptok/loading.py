"""Finds the vocabulary for `warptok.load` from a name, a path or a tokenizer object.

    "gpt2"                                   built in
    tokenizer.json, a folder of a model      read as the service reads an upload
    a tokenizer of transformers              its `backend_tokenizer`, with its padding and length
    tokenizers.Tokenizer                     what its `to_str()` returns
    tiktoken.Encoding                        its ranks, pattern and special tokens
    the vocabulary of a training             used as it is

Objects are recognized by their attributes: none of these libraries is imported.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vocabularies.errors import VocabularyError
from vocabularies.model.types import ROLES, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from warptok.devices import Place, open_place
from warptok.errors import DigestDiffers, Fault, InvalidRequest, UnknownVocabulary
from warptok.tokenizer import Defaults, Tokenizer

MAX_LENGTH = 1 << 31
"""A larger model length means that the model has no limit, such as transformers' 10**30."""
SOURCES = (
    "a built-in name, the path of a file or folder, or a tokenizer of transformers, tokenizers or "
    "tiktoken"
)
PROBES = ("a {} b", "a{}b")
"""Texts around an added token; their ids are compared with those of the source object."""
MAX_PROBES = 64
STACKLEVEL = 6  # Warnings name the line that calls `load`.


@dataclass(frozen=True, slots=True)
class Found:
    """A vocabulary, and the other settings found in its source."""

    vocabulary: Vocabulary
    defaults: Defaults


def load(
    source: Any,
    *,
    device: str = "auto",
    pretokenizer: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    decoder: Literal["file", "inverse"] = "file",
    if_digest: str | None = None,
) -> Tokenizer:
    """Load a vocabulary on a device, verify its ids against the reference, and return a tokenizer.

    Args:
        source: a built-in name, such as "gpt2" or "dnabert2"; the path of a vocabulary file or of a
            model's folder; a fast tokenizer of transformers, a `tokenizers.Tokenizer` or a
            `tiktoken.Encoding`; or `training.vocabulary` of `warptok.training.train`.
        device: "auto": the first GPU for batches above a measured size, and the CPU for smaller
            ones; "cpu": the CPU; "cuda" or "cuda:1": that GPU for all batches.
        pretokenizer: the rule that splits text, such as "cl100k", for files that do not contain it.
        special_tokens: content -> id, for files that do not mark special tokens.
        decoder: how ids become text; "file": as the source defines, which is the default of the
            library tokenizers; "inverse": restore the text that was encoded.
        if_digest: the digest that the vocabulary must have; None: any.

    Raises:
        UnknownVocabulary: there is no such name and no such path; the message suggests similar
            names.
        InvalidRequest: an argument is wrong, or the vocabulary is invalid; then `findings` lists
            every fault with its place.
        DigestDiffers: the vocabulary has another digest.
        DeviceUnavailable: the GPU that `device` names cannot be used, or its kernels cannot compute
            this vocabulary.
        TypeError: the source has none of these types.
        OSError: a file cannot be read.

    Example: warptok.load("gpt2").encode("Hello, world!") == [15496, 11, 995, 0]
    """
    return load_on(open_place(device), source, pretokenizer, special_tokens, if_digest, decoder)


def load_on(
    place: Place,
    source: Any,
    pretokenizer: str | None,
    special_tokens: Mapping[str, int] | None,
    if_digest: str | None,
    decoder: Literal["file", "inverse"] = "file",
) -> Tokenizer:
    """Load a tokenizer on an open engine; see `load`."""
    try:
        found = _find(source, pretokenizer, special_tokens)
        if decoder == "inverse":
            found = replace(found, vocabulary=_decode_inversely(found.vocabulary))
        digest = found.vocabulary.digest
        if if_digest is not None and if_digest not in (digest, digest.removeprefix("sha256:")):
            raise DigestDiffers(
                f"the digest of {found.defaults.name} is {digest}", where="if_digest"
            )
        tok = Tokenizer(found.vocabulary, place, found.defaults)
    except VocabularyError as error:
        faults = [Fault(finding.where, finding.message) for finding in error.findings]
        raise InvalidRequest(str(error), code="vocabulary_invalid", findings=faults) from error
    backend = getattr(source, "backend_tokenizer", source)
    if callable(getattr(backend, "to_str", None)):
        _compare_added_tokens(tok, backend)
    return tok


def _compare_added_tokens(tok: Tokenizer, backend: Any) -> None:
    """Compare the ids of texts with added tokens with the ids that the source object returns.

    warptok reads the object's tokenizer.json. With tokenizers below 0.23, an object whose
    normalizer was set after its tokens were added matches these tokens differently than its
    tokenizer.json.

    Raises:
        InvalidRequest: the object returns other ids.
    """
    if backend.truncation is not None or backend.padding is not None:
        return  # The last call left them there; they change the object's ids.
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    for text in (form.format(content) for content in added[:MAX_PROBES] for form in PROBES):
        try:
            own = backend.encode(text, add_special_tokens=False).ids
            ours = tok.encode(text, add_special_tokens=False)
        except Exception:  # The library has no class for a letter without a token.
            continue
        if ours != own:
            message = (
                f"the object has other ids for {text!r} than its own tokenizer.json: save it and "
                "load the file, or use tokenizers 0.23 or newer"
            )
            raise InvalidRequest(message, code="vocabulary_invalid")


def _decode_inversely(vocabulary: Vocabulary) -> Vocabulary:
    if vocabulary.kind == "upstream":
        message = (
            'decoder must be "file", because the library tokenizers computes and decodes this '
            "vocabulary"
        )
        raise InvalidRequest(message, where="decoder")
    return replace(vocabulary, decoder="inverse")


def _find(source: Any, pretokenizer: str | None, special_tokens: Mapping[str, int] | None) -> Found:
    has_arguments = pretokenizer is not None or special_tokens is not None
    if isinstance(source, str | os.PathLike):
        return _find_named(source, pretokenizer, special_tokens)
    if has_arguments:
        message = (
            "pretokenizer and special_tokens are only allowed for files; this object contains them"
        )
        raise InvalidRequest(message)
    if isinstance(source, Vocabulary):
        return Found(source, Defaults("vocabulary"))
    if hasattr(source, "_mergeable_ranks"):
        return _read_tiktoken(source)
    backend = getattr(source, "backend_tokenizer", source)
    if callable(getattr(backend, "to_str", None)):
        return _read_huggingface(source, backend)
    if hasattr(source, "convert_tokens_to_ids"):
        raise TypeError(
            f"{type(source).__name__} is a tokenizer in Python, whose rules cannot be read; load "
            "the fast one (AutoTokenizer.from_pretrained(..., use_fast=True)), or its built-in "
            "vocabulary, such as nt_v2, hyenadna or dnabert1_6mer"
        )
    raise TypeError(f"a {type(source).__name__} is not a tokenizer; give {SOURCES}")


def _find_named(
    source: str | os.PathLike[str],
    pretokenizer: str | None,
    special_tokens: Mapping[str, int] | None,
) -> Found:
    """Find a built-in vocabulary, or read a file or folder."""
    from vocabularies import builtin
    from vocabularies.formats import read_with_notes

    name, path = os.fspath(source), Path(source)
    if isinstance(source, str) and source in builtin.BUILTINS:
        if pretokenizer is not None or special_tokens is not None:
            raise InvalidRequest(
                f"{source} is built in; pretokenizer and special_tokens are only allowed for files"
            )
        return Found(builtin.load(source), Defaults(name))
    if path.is_dir():
        return _read_folder(path, pretokenizer, special_tokens)
    if not path.exists():
        near = difflib.get_close_matches(name, builtin.BUILTINS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"give {SOURCES}"
        message = f"{name!r} is neither a built-in vocabulary nor a file; {hint}"
        raise UnknownVocabulary(message)
    files = {path.name: path.read_bytes()}
    vocabulary, notes = read_with_notes(
        files, pretokenizer=pretokenizer, special_tokens=special_tokens
    )
    _warn(name, notes)
    return Found(vocabulary, Defaults(name))


def _read_folder(
    folder: Path, pretokenizer: str | None, special_tokens: Mapping[str, int] | None
) -> Found:
    """Read a model's folder, including the maximum length and the padding and truncation sides."""
    from service.registry.model_folder import LENGTH, read_folder
    from vocabularies.formats.folders import NoTokenizer

    if special_tokens is not None:
        message = (
            "special_tokens is not allowed for a folder, whose files contain them; give the path "
            "of a file"
        )
        raise InvalidRequest(message, where="special_tokens")
    try:
        model = read_folder(folder, pretokenizer=pretokenizer)
    except NoTokenizer as error:
        raise InvalidRequest(str(error), code="unsupported_format") from error
    _warn(str(folder), model.notes)
    values, vocabulary = model.config.values, model.vocabulary
    ids = {token.content: token.id for token in vocabulary.special_tokens}
    named = model.config.special_tokens()
    roles = {name.removesuffix("_token"): ids[text] for name, text in named.items() if text in ids}
    return Found(
        vocabulary,
        Defaults(
            str(folder),
            _as_length(values.get(LENGTH)),
            values.get("padding_side"),
            values.get("truncation_side", "right"),
            roles,
        ),
    )


def _read_huggingface(source: Any, backend: Any) -> Found:
    """Read a tokenizer of transformers, or a `tokenizers.Tokenizer`.

    Padding and truncation of a `tokenizers.Tokenizer` are ignored with a warning; those of
    transformers are ignored silently, as they are left over from its last call.
    """
    from vocabularies.formats import read_with_notes

    files = {"tokenizer.json": backend.to_str().encode()}
    vocabulary, notes = read_with_notes(files)
    if backend is source:
        _warn("tokenizers.Tokenizer", notes)
        return Found(vocabulary, Defaults("tokenizers.Tokenizer"))
    roles = {}
    for role in ROLES:
        token_id = getattr(source, f"{role}_token_id", None)
        if isinstance(token_id, int) and 0 <= token_id < len(vocabulary):
            roles[role] = token_id
    return Found(
        vocabulary,
        Defaults(
            getattr(source, "name_or_path", "") or type(source).__name__,
            _as_length(getattr(source, "model_max_length", None)),
            getattr(source, "padding_side", None),
            getattr(source, "truncation_side", "right"),
            roles,
        ),
    )


def _read_tiktoken(encoding: Any) -> Found:
    """Read a `tiktoken.Encoding`.

    Raises:
        VocabularyError: the pattern of the encoding is not known.
    """
    from vocabularies.formats.tiktoken.ranks import make_rank_vocabulary
    from vocabularies.preprocessing.pretokenizers import recognize_tiktoken_pattern

    pretokenizer = recognize_tiktoken_pattern(encoding._pat_str)
    if pretokenizer is None:
        message = "is not a published pattern; save a tokenizer.json and load its path"
        raise VocabularyError.at("pat_str", message)
    contents = sorted(encoding._special_tokens.items(), key=lambda item: item[1])
    special_tokens = [SpecialToken(content, token_id) for content, token_id in contents]
    vocabulary = make_rank_vocabulary(encoding._mergeable_ranks, pretokenizer, special_tokens, 0)
    return Found(vocabulary, Defaults(encoding.name))


def _as_length(length: Any) -> int | None:
    """Return a model's maximum length in ids; None: the model has no limit."""
    return length if isinstance(length, int) and 0 < length < MAX_LENGTH else None


def _warn(name: str, notes: tuple[str, ...]) -> None:
    """Warn about settings of a source that are ignored."""
    for note in notes:
        warnings.warn(f"{name}: {note}", UserWarning, stacklevel=STACKLEVEL)
