"""Writes the tokenizer.json of a SentencePiece model for a tokenizer class of transformers.

The documents mean what `convert_slow_tokenizer` of transformers 4.57 makes of the model, as do the
tokenizer.json files that are published beside such models. Decision record 0111 says why.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_FINDINGS
from vocabularies.formats.sentencepiece.class_config import (
    CONFIG,
    LISTED,
    AddedToken,
    ClassConfig,
)
from vocabularies.formats.sentencepiece.merges import Pair, divide
from vocabularies.formats.sentencepiece.model_file import ModelFile, ModelType, PieceType

Step = dict[str, Any]
SPACE = "▁"
MAX_EXTRA_IDS = 10_000
# The order in which the class adds tokens, which numbers those that are no pieces.
NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class Entry(NamedTuple):
    """A token of the document's vocabulary and its score; its id is its place in the list."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """What a tokenizer class makes of a model.

    Attributes:
        tokens: the contents of its named tokens, where no file says otherwise.
        entries: makes the vocabulary.
        normalizers: makes the normalizer's steps.
        pre_tokenizer, decoder, frame: make the other steps; `frame` returns the names of the tokens
            before and after a text.
        unknown_id: the id of the unknown token; None: the trainer's.
        byte_fallback: whether characters without a piece become bytes.
        strips_before_mask: whether the mask token includes the white space before it.
        special: user-defined symbols that are special tokens.
    """

    tokens: Mapping[str, str]
    entries: Callable[[ModelFile, ClassConfig, Mapping[str, AddedToken]], list[Entry]]
    normalizers: Callable[[ModelFile, ClassConfig], Iterator[Step]]
    pre_tokenizer: Callable[[ClassConfig], Step | None]
    decoder: Callable[[ClassConfig], Step]
    frame: Callable[[ClassConfig], tuple[list[str], list[str]]]
    unknown_id: int | None = None
    byte_fallback: bool = False
    strips_before_mask: bool = False
    special: frozenset[str] = frozenset()


def write_for_class(model: ModelFile, config: ClassConfig) -> dict[str, Any]:
    """Write the tokenizer.json of a model for the class that its configuration names.

    Raises:
        VocabularyError: the class is not known, or the files contradict each other.
    """
    assert config.name is not None, "the reader looks for it"
    rules = CLASSES.get(config.name)
    if rules is None:
        message = (
            f"{config.name} is not one of {', '.join(CLASSES)}; convert it to a tokenizer.json"
        )
        raise VocabularyError.at(f"{CONFIG}: tokenizer_class", message)
    if model.type not in (ModelType.UNIGRAM, ModelType.BPE):
        raise VocabularyError.at("trainer_spec.model_type", "a class needs unigram or bpe")
    named = _named_tokens(rules, config)
    entries = rules.entries(model, config, named)
    added = _number([*_added_tokens(model, config, rules, named)], entries, config)
    normalizers = [*rules.normalizers(model, config)]
    is_unigram = model.type == ModelType.UNIGRAM
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_entry(token_id, token) for token_id, token in added.items()],
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": rules.pre_tokenizer(config),
        "post_processor": _template(rules.frame(config), named, added),
        "decoder": rules.decoder(config),
        "model": _unigram(model, rules, entries) if is_unigram else _bpe(model, rules, entries),
    }


def _named_tokens(rules: TokenizerClass, config: ClassConfig) -> dict[str, AddedToken]:
    named = {}
    for name in NAMES:
        default = AddedToken(rules.tokens[name]) if name in rules.tokens else None
        if default and name == "mask" and rules.strips_before_mask:
            default = replace(default, lstrip=True)
        if token := config.token(f"{name}_token", default):
            named[name] = replace(token, special=True)
    return named


def _added_tokens(
    model: ModelFile, config: ClassConfig, rules: TokenizerClass, named: Mapping[str, AddedToken]
) -> Iterator[AddedToken]:
    """Yield the added tokens in the order of the class; of equal ones, the last one counts."""
    for piece in model.pieces:
        if piece.type in (PieceType.CONTROL, PieceType.USER_DEFINED):
            is_special = piece.type == PieceType.CONTROL or piece.text in rules.special
            yield AddedToken(piece.text, special=is_special)
    if config.name == "T5Tokenizer":
        yield from map(AddedToken, _extra_ids(config))
    for token_id in sorted(config.listed):
        yield config.listed[token_id]
    yield from named.values()
    yield from config.more_special_tokens()


def _number(
    added: Iterable[AddedToken], entries: list[Entry], config: ClassConfig
) -> dict[int, AddedToken]:
    """Number the added tokens as the library does: by the vocabulary, else from its end on.

    Raises:
        VocabularyError: a file lists one of them with another id.
    """
    ids = {entry.text: i for i, entry in enumerate(entries)}
    tokens: dict[int, AddedToken] = {}
    following = len(entries)
    for token in added:
        if ids.setdefault(token.content, following) == following:
            following += 1
        tokens[ids[token.content]] = token
    findings = []
    for token_id, token in config.listed.items():
        if ids[token.content] != token_id:
            message = f"{token.content!r} has the id {ids[token.content]} in the model's vocabulary"
            findings.append(Finding(f"{CONFIG}: {LISTED}.{token_id}", message))
    if findings:
        raise VocabularyError(findings[:MAX_FINDINGS])
    return dict(sorted(tokens.items()))


def _added_entry(token_id: int, token: AddedToken) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": token.content,
        "single_word": token.single_word,
        "lstrip": token.lstrip,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    }


def _template(
    frame: tuple[list[str], list[str]],
    named: Mapping[str, AddedToken],
    added: Mapping[int, AddedToken],
) -> Step | None:
    """Write the tokens before and after a text; None without any."""
    ids = {token.content: token_id for token_id, token in added.items()}
    before, after = ([_named(name, named) for name in names] for names in frame)
    if not before + after:
        return None
    pieces: list[Step] = [{"SpecialToken": {"id": each, "type_id": 0}} for each in before]
    pieces.append({"Sequence": {"id": "A", "type_id": 0}})
    pieces += [{"SpecialToken": {"id": each, "type_id": 0}} for each in after]
    special = {e: {"id": e, "ids": [ids[e]], "tokens": [e]} for e in before + after}
    pair = [*pieces, {"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": pair,
        "special_tokens": special,
    }


def _named(name: str, named: Mapping[str, AddedToken]) -> str:
    if name not in named:
        raise VocabularyError.at(
            f"{CONFIG}: {name}_token", "is null, but texts begin or end with it"
        )
    return named[name].content


def _unigram(model: ModelFile, rules: TokenizerClass, entries: list[Entry]) -> Step:
    unknown = _trainer_unknown_id(model) if rules.unknown_id is None else rules.unknown_id
    return {
        "type": "Unigram",
        "unk_id": unknown,
        "vocab": [[entry.text, entry.score] for entry in entries],
        "byte_fallback": rules.byte_fallback,
    }


def _trainer_unknown_id(model: ModelFile) -> int:
    if not 0 <= model.unk_id < len(model.pieces):
        message = f"{model.unk_id} is not an id of 0..{len(model.pieces) - 1}"
        raise VocabularyError.at("trainer_spec.unk_id", message)
    return model.unk_id


def _bpe(model: ModelFile, rules: TokenizerClass, entries: list[Entry]) -> Step:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.unk_piece,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": rules.byte_fallback,
        "ignore_merges": False,
        "vocab": {entry.text: i for i, entry in enumerate(entries)},
        "merges": [[pair.left, pair.right] for pair in _merges(model, entries)],
    }


def _merges(model: ModelFile, entries: list[Entry]) -> list[Pair]:
    """Find the merges: each way to divide an entry in two pieces, by score, long parts first."""
    ids = {piece.text: i for i, piece in enumerate(model.pieces)}
    ids |= {entry.text: i for i, entry in enumerate(entries) if entry.text == "\t"}
    ranked: list[tuple[float, Pair]] = []
    scores = dict(entries)
    for text, found in divide(scores, ids):
        found.sort(key=lambda pair: (ids[pair.left], ids[pair.right]))
        ranked += [(scores[text], pair) for pair in found]
    ranked.sort(key=lambda entry: (-entry[0], -len(entry[1].left), -len(entry[1].right)))
    return [pair for _, pair in ranked]


def _entries_of_pieces(model: ModelFile) -> list[Entry]:
    return [Entry(piece.text, piece.score) for piece in model.pieces]


def _llama_entries(
    model: ModelFile, config: ClassConfig, named: Mapping[str, AddedToken]
) -> list[Entry]:
    first = [Entry(piece.text, 0.0) for piece in model.pieces[:3]]
    return first + _entries_of_pieces(model)[3:]


def _gemma_entries(
    model: ModelFile, config: ClassConfig, named: Mapping[str, AddedToken]
) -> list[Entry]:
    first = [Entry(_named(name, named), 0.0) for name in ("pad", "eos", "bos")]
    entries = first + _entries_of_pieces(model)[3:]
    texts = [entry.text for entry in entries]
    if "\t" not in texts and "<0x09>" in texts:
        entries[texts.index("<0x09>")] = Entry("\t", 0.0)
    return entries


def _t5_entries(
    model: ModelFile, config: ClassConfig, named: Mapping[str, AddedToken]
) -> list[Entry]:
    return _entries_of_pieces(model) + [Entry(text, 0.0) for text in _extra_ids(config)]


def _extra_ids(config: ClassConfig) -> list[str]:
    """Return the sentinels of T5, by id."""
    num_ids = config.number("extra_ids", 100, MAX_EXTRA_IDS)
    return [f"<extra_id_{i}>" for i in reversed(range(num_ids))]


def _xlm_roberta_entries(
    model: ModelFile, config: ClassConfig, named: Mapping[str, AddedToken]
) -> list[Entry]:
    first = [Entry(text, 0.0) for text in ("<s>", "<pad>", "</s>", "<unk>")]
    return [*first, *_entries_of_pieces(model)[3:], Entry("<mask>", 0.0)]


def _albert_entries(
    model: ModelFile, config: ClassConfig, named: Mapping[str, AddedToken]
) -> list[Entry]:
    """Make the vocabulary, in which a digit and a comma are hardly ever one token."""
    return [
        Entry(
            text, score - 100 if len(text) > 1 and text[-1] == "," and text[-2].isdigit() else score
        )
        for text, score in _entries_of_pieces(model)
    ]


def _llama_normalizers(model: ModelFile, config: ClassConfig) -> Iterator[Step]:
    if not config.flag("legacy", True):
        return
    if config.flag("add_prefix_space", True):
        yield {"type": "Prepend", "prepend": SPACE}
    yield _replace(" ", SPACE)


def _gemma_normalizers(model: ModelFile, config: ClassConfig) -> Iterator[Step]:
    yield _replace(" ", SPACE)


def _usual_normalizers(model: ModelFile, config: ClassConfig) -> Iterator[Step]:
    yield from _charsmap(model)
    yield {"type": "Strip", "strip_left": False, "strip_right": True}
    yield {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE}


def _albert_normalizers(model: ModelFile, config: ClassConfig) -> Iterator[Step]:
    yield _replace("``", '"')
    yield _replace("''", '"')
    if not config.flag("keep_accents", False):
        yield {"type": "NFKD"}
        yield {"type": "StripAccents"}
    if config.flag("do_lower_case", True):
        yield {"type": "Lowercase"}
    yield from _charsmap(model)
    yield {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def _charsmap(model: ModelFile) -> Iterator[Step]:
    if model.charsmap:
        yield {
            "type": "Precompiled",
            "precompiled_charsmap": b64encode(model.charsmap).decode(),
        }


def _replace(literal: str, content: str) -> Step:
    return {"type": "Replace", "pattern": {"String": literal}, "content": content}


def _llama_pre_tokenizer(config: ClassConfig) -> Step | None:
    if config.flag("legacy", True):
        return None
    return _metaspace("first" if config.flag("add_prefix_space", True) else "never", split=False)


def _gemma_pre_tokenizer(config: ClassConfig) -> Step:
    step = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
    return step | {"invert": False}


def _t5_metaspace(config: ClassConfig) -> Step:
    if not config.flag("add_prefix_space", True):
        return _metaspace("never")
    return _metaspace("always" if config.flag("legacy", True) else "first")


def _usual_metaspace(config: ClassConfig) -> Step:
    return _metaspace("always")


def _metaspace(scheme: str, *, split: bool = True) -> Step:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def _llama_decoder(config: ClassConfig) -> Step:
    steps = _gemma_decoder(config)["decoders"]
    if config.flag("add_prefix_space", True):
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _gemma_decoder(config: ClassConfig) -> Step:
    return {
        "type": "Sequence",
        "decoders": [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}],
    }


def _frame_of_settings(config: ClassConfig) -> tuple[list[str], list[str]]:
    before = ["bos"] if config.flag("add_bos_token", True) else []
    return before, ["eos"] if config.flag("add_eos_token", False) else []


CLASSES = {
    "LlamaTokenizer": TokenizerClass(
        {"unk": "<unk>", "bos": "<s>", "eos": "</s>"},
        _llama_entries,
        _llama_normalizers,
        _llama_pre_tokenizer,
        _llama_decoder,
        _frame_of_settings,
        unknown_id=0,
        byte_fallback=True,
    ),
    "GemmaTokenizer": TokenizerClass(
        {"unk": "<unk>", "bos": "<bos>", "eos": "<eos>", "pad": "<pad>"},
        _gemma_entries,
        _gemma_normalizers,
        _gemma_pre_tokenizer,
        _gemma_decoder,
        _frame_of_settings,
        unknown_id=3,
        byte_fallback=True,
        special=frozenset(("<start_of_turn>", "<end_of_turn>")),
    ),
    "T5Tokenizer": TokenizerClass(
        {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"},
        _t5_entries,
        _usual_normalizers,
        _t5_metaspace,
        _t5_metaspace,
        lambda config: ([], ["eos"]),
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        {
            "bos": "<s>",
            "eos": "</s>",
            "unk": "<unk>",
            "sep": "</s>",
            "pad": "<pad>",
            "cls": "<s>",
            "mask": "<mask>",
        },
        _xlm_roberta_entries,
        _usual_normalizers,
        _usual_metaspace,
        _usual_metaspace,
        lambda config: (["bos"], ["eos"]),
        unknown_id=3,
        strips_before_mask=True,
    ),
    "AlbertTokenizer": TokenizerClass(
        {
            "bos": "[CLS]",
            "eos": "[SEP]",
            "unk": "<unk>",
            "sep": "[SEP]",
            "pad": "<pad>",
            "cls": "[CLS]",
            "mask": "[MASK]",
        },
        _albert_entries,
        _albert_normalizers,
        _usual_metaspace,
        _usual_metaspace,
        lambda config: (["cls"], ["sep"]),
        strips_before_mask=True,
    ),
}
