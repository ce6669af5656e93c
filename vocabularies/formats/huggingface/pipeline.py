"""Reads a tokenizer.json's normalizer, pre_tokenizer, post_processor and decoder.

Each reader returns the value of a `Vocabulary` field, or raises NotRepresentable with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from vocabularies.errors import VocabularyError
from vocabularies.formats.huggingface.motif_pattern import motifs_of_split
from vocabularies.formats.parsing import NotRepresentable
from vocabularies.model.byte_alphabet import added_token_bytes
from vocabularies.model.types import Decoder
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS
from vocabularies.preprocessing.normalizers import Normalizer, compile_replacement
from vocabularies.preprocessing.pretokenizers import is_byte_level, recognize_hf_json


@dataclass(frozen=True, slots=True)
class PostProcessor:
    """The ids that a post-processor adds around a text, and the roles of its tokens."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    roles: dict[str, int] = field(default_factory=dict)


def steps_of(step: Any, list_name: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, step) of every step; nested sequences of steps are flattened.

    The depth is bounded, because `parsing.parse_json` refuses deeply nested documents.
    """
    if step is None:
        return
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        raise VocabularyError.at(where, "must be null or an object with a type")
    if step["type"] != "Sequence":
        yield where, step
        return
    parts = step.get(list_name)
    if not isinstance(parts, list):
        raise VocabularyError.at(f"{where}.{list_name}", "must be a list")
    for i, part in enumerate(parts):
        yield from steps_of(part, list_name, f"{where}.{list_name}[{i}]")


def read_normalizers(step: Any) -> tuple[Normalizer, ...]:
    """Read the normalizers in order.

    Raises:
        NotRepresentable: one of them has no equivalent `Normalizer`.
        VocabularyError: the block is damaged.
    """
    return tuple(_normalizer(*part) for part in steps_of(step, "normalizers", "normalizer"))


def _normalizer(where: str, step: dict[str, Any]) -> Normalizer:
    match step:
        case {"type": "NFC"}:
            return Normalizer("nfc")
        case {"type": "Lowercase"}:
            return Normalizer("lowercase")
        case {"type": "Strip", "strip_left": bool(left), "strip_right": bool(right)}:
            return Normalizer("strip", left=left, right=right)
        case {"type": "Replace", "pattern": {"String": str(literal)}, "content": str(content)}:
            if literal:
                return Normalizer("replace", literal, content)
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            try:
                compile_replacement(pattern)
            except ValueError as error:
                raise NotRepresentable(f"{where}: {error}") from error
            return Normalizer("replace_regex", pattern, content)
    raise NotRepresentable(f"{where}: {step['type']} is not a normalizer that is supported")


def read_pretokenizer(step: Any) -> tuple[str, tuple[str, ...], bool]:
    """Read the pretokenizer, its motifs, and whether it spells bytes in the byte alphabet.

    Raises:
        NotRepresentable: no named pretokenizer is equivalent.
        VocabularyError: the block is damaged.
    """
    parts = [*steps_of(step, "pretokenizers", "pre_tokenizer")]
    motifs = _motifs([part for _, part in parts])
    if motifs is not None:
        return MOTIFS, motifs, is_byte_level(step)
    name = recognize_hf_json(step)
    if name is None:
        types = ", ".join(part["type"] for _, part in parts)
        raise NotRepresentable(f"pre_tokenizer: this combination is not supported ({types})")
    return name, (), is_byte_level(step)


def _motifs(steps: list[dict[str, Any]]) -> tuple[str, ...] | None:
    """Read the motifs of a lone Split step, or of one before a ByteLevel that does not split."""
    match steps:
        case [split]:
            return motifs_of_split(split)
        case [split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]:
            return motifs_of_split(split)
    return None


def read_post_processor(step: Any) -> PostProcessor:
    """Read the begin and end tokens of a single text; templates of pairs are ignored.

    Raises:
        NotRepresentable: the template is more than ids before and after the text.
        VocabularyError: the block is damaged.
    """
    templates = []
    for where, part in steps_of(step, "processors", "post_processor"):
        match part["type"]:
            case "ByteLevel":  # It changes only offsets.
                continue
            case "TemplateProcessing":
                templates.append(_template(where, part))
            case "BertProcessing" | "RobertaProcessing":
                templates.append(_bert_template(where, part))
            case kind:
                raise NotRepresentable(f"{where}: the template {kind} is not supported")
    if len(templates) > 1:
        raise NotRepresentable("post_processor: several templates are nested")
    return templates[0] if templates else PostProcessor()


def read_decoder(step: Any, strings: Iterable[str], byte_level: bool) -> Decoder:
    """Read how ids are decoded.

    Args:
        step: the file's decoder.
        strings: the strings of all tokens of the file.
        byte_level: whether they are in the byte-level alphabet.

    Raises:
        NotRepresentable: it neither restores the encoded text nor joins tokens with blanks.
        VocabularyError: the block is damaged.
    """
    if step is None:
        return "blanks"
    steps = [part for _, part in steps_of(step, "decoders", "decoder")]
    types = [part["type"] for part in steps]
    if types[-1:] == ["Fuse"]:  # It has no effect, because the bytes are joined anyway.
        steps, types = steps[:-1], types[:-1]
    match steps:
        case [{"type": "ByteLevel"}]:
            if byte_level or all(added_token_bytes(each) == each.encode() for each in strings):
                return "inverse"
        case []:
            if not byte_level:
                return "inverse"
        case [{"type": "BPEDecoder", "suffix": str(suffix)}]:
            if not byte_level and suffix and not any(suffix in each for each in strings):
                return "inverse"
    message = f"decoder: {', '.join(types)} decodes to a text that differs from what was encoded"
    raise NotRepresentable(message)


def _bert_template(where: str, step: dict[str, Any]) -> PostProcessor:
    match step:
        case {"cls": [str(), cls], "sep": [str(), sep]} if type(cls) is type(sep) is int:
            return PostProcessor((cls,), (sep,), {"cls": cls, "sep": sep})
    raise VocabularyError.at(where, "cls and sep must each be [token, id]")


def _template(where: str, step: dict[str, Any]) -> PostProcessor:
    single, special = step.get("single"), step.get("special_tokens")
    if not isinstance(single, list) or not isinstance(special, dict):
        raise VocabularyError.at(where, "must have the list single and the object special_tokens")
    sides: list[list[int]] = [[]]
    for i, piece in enumerate(single):
        match piece:
            case {"Sequence": {"id": "A"}}:
                sides.append([])
            case {"SpecialToken": {"id": str(name)}}:
                sides[-1] += _template_ids(f"{where}.special_tokens[{name!r}]", special.get(name))
            case _:
                raise NotRepresentable(f"{where}.single[{i}]: must be a special token or the text")
    if len(sides) != 2:
        raise NotRepresentable(
            f"{where}.single: contains the text {len(sides) - 1} times; it must contain it once"
        )
    return PostProcessor(tuple(sides[0]), tuple(sides[1]))


def _template_ids(where: str, entry: Any) -> list[int]:
    ids = entry.get("ids") if isinstance(entry, dict) else None
    if not isinstance(ids, list) or not all(type(token_id) is int for token_id in ids):
        raise VocabularyError.at(where, "must be an object with a list of ids")
    return ids
