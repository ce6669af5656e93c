"""Calls a warptok tokenizer like Hugging Face's `AutoTokenizer`, with the same results.

    tok(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")

The options for training and inference are supported, with Hugging Face's defaults. Other options
are refused; the message names the call of warptok to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol, Unpack

import numpy as np

from warptok.errors import InvalidRequest
from warptok.options import SIDES, BatchOptions, Side, Unit, check_counts, choose
from warptok.results import EncodedBatch, import_library

Tensors = Literal["pt", "np"]
PaddingWord = Literal["longest", "max_length", "do_not_pad"]
PADDING: Mapping[object, PaddingWord] = MappingProxyType(
    {
        False: "do_not_pad",
        True: "longest",
        "longest": "longest",
        "max_length": "max_length",
        "do_not_pad": "do_not_pad",
    }
)
TRUNCATION: Mapping[object, bool] = MappingProxyType(
    {
        False: False,
        "do_not_truncate": False,
        True: True,
        "longest_first": True,
        "only_first": True,
    }
)
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "text_pair": "a pair of texts is not encoded; join them, or use Hugging Face's tokenizer",
        "text_target": "call tok(labels) for the targets",
        "stride": "call tok.chunks(text, chunk_size=..., chunk_overlap=...)",
        "return_overflowing_tokens": "call tok.chunks(text, chunk_size=..., chunk_overlap=...)",
        "is_split_into_words": "join the words to a text",
        "return_special_tokens_mask": "compare the ids with tok.special_tokens",
        "special": "call tok.encode_batch(texts, special=...)",
    }
)
"""What to use instead of each unsupported option."""


class BatchEncoder(Protocol):
    """The methods of a tokenizer that this module calls; see `warptok.Tokenizer`."""

    padding_side: Side
    truncation_side: Side
    model_max_length: int | None

    def encode_batch(
        self, texts: Any, *, return_offsets: Unit | None = None, **options: Unpack[BatchOptions]
    ) -> EncodedBatch:
        """Return the ids of several texts."""


class BatchEncoding(dict[str, Any]):
    """A model's arguments as a dict whose keys are also attributes: `model(**tok(texts, ...))`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device: Any) -> BatchEncoding:
        """Return a copy with all torch tensors moved to a device."""
        moved = {name: v.to(device) if hasattr(v, "to") else v for name, v in self.items()}
        return BatchEncoding(moved)


def encode_as_huggingface(
    tok: BatchEncoder,
    text: Any,
    text_pair: Any = None,
    *,
    add_special_tokens: bool = True,
    padding: bool | PaddingWord = False,
    truncation: bool | str | None = None,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    padding_side: Side | None = None,
    return_tensors: Tensors | None = None,
    return_attention_mask: bool = True,
    return_token_type_ids: bool = False,
    return_offsets_mapping: bool = False,
    return_length: bool = False,
    **others: Any,
) -> BatchEncoding:
    """Encode one or several texts like Hugging Face's fast tokenizers when they are called.

    Args:
        tok: the tokenizer.
        text: one str, for which the results are flat lists, or several texts as for
            `Tokenizer.encode_batch`.
        text_pair: refused.
        add_special_tokens: put begin and end tokens around each text.
        padding: True or "longest"; "max_length"; False or "do_not_pad".
        truncation: True, "longest_first" or "only_first"; False; None: truncate if `max_length` is
            given without padding, as Hugging Face does.
        max_length: the most ids of a text; None: `tok.model_max_length`.
        pad_to_multiple_of: round the padded length up to a multiple of this.
        padding_side: "right" or "left"; None: `tok.padding_side`.
        return_tensors: "pt" for torch, "np" for NumPy, int64; None for lists.
        return_attention_mask: whether the result has `attention_mask`.
        return_token_type_ids: whether the result has `token_type_ids`, which are all 0.
        return_offsets_mapping: whether the result has `offset_mapping`, in code points.
        return_length: whether the result has `length`.
        others: refused.

    Returns:
        `input_ids`, `attention_mask` and the other requested fields.

    Raises:
        TypeError: an option is not supported; the message names the call to use instead.
        InvalidRequest: a value is wrong, or the rows have different lengths and cannot form a
            tensor.
        RowRefused: a text cannot be encoded.
    """
    _refuse(others if text_pair is None else {"text_pair": text_pair, **others})
    kind = _word("padding", padding, PADDING)
    is_cut = (
        _word("truncation", truncation, TRUNCATION)
        if truncation is not None
        else (max_length is not None and kind == "do_not_pad")
    )
    if return_tensors not in (None, "pt", "np"):
        message = f'return_tensors is {return_tensors!r}; it must be "pt", "np" or None'
        raise InvalidRequest(message, where="return_tensors")
    is_one = isinstance(text, str)
    length = _find_length(tok, max_length, is_needed=is_cut or kind == "max_length")
    options: BatchOptions = {
        "add_special_tokens": add_special_tokens,
        "max_length": length if is_cut else None,
        "truncation_side": tok.truncation_side,
    }
    unit: Literal["codepoints"] | None = "codepoints" if return_offsets_mapping else None
    batch = tok.encode_batch([text] if is_one else text, return_offsets=unit, **options)
    if kind == "do_not_pad":
        fields = _ragged(batch)
    else:
        min_length = length or 0 if kind == "max_length" else 0
        side = tok.padding_side if padding_side is None else padding_side
        fields = _padded(batch, min_length, pad_to_multiple_of, choose("padding_side", side, SIDES))
    if return_token_type_ids:
        fields["token_type_ids"] = [np.zeros_like(row) for row in fields["input_ids"]]
    if return_length:
        fields["length"] = [np.int64(len(row)) for row in fields["input_ids"]]
    if not return_attention_mask:
        del fields["attention_mask"]
    if return_tensors is not None:
        return BatchEncoding({n: _tensor(rows, return_tensors) for n, rows in fields.items()})
    lists = {name: _to_lists(name, rows) for name, rows in fields.items()}
    if not is_one:
        return BatchEncoding(lists)
    # As Hugging Face's, the one length stays in a list.
    return BatchEncoding({n: rows if n == "length" else rows[0] for n, rows in lists.items()})


def _refuse(others: Mapping[str, Any]) -> None:
    """Refuse unsupported options, unless they have the value that switches them off."""
    for name, value in others.items():
        if name in REFUSED and (value is None or value is False or (name, value) == ("stride", 0)):
            continue
        hint = REFUSED.get(name, "see docs/python.md for the options")
        raise TypeError(f"the call of a tokenizer has no option {name!r}: {hint}")


def _word(name: str, value: Any, words: Mapping[object, Any]) -> Any:
    is_known = isinstance(value, bool | str) and value in words
    if not is_known:
        listed = ", ".join(map(repr, words))
        raise InvalidRequest(f"{name} is {value!r}; it must be one of {listed}", where=name)
    return words[value]


def _find_length(tok: BatchEncoder, max_length: int | None, *, is_needed: bool) -> int | None:
    """Return the most ids of a text; None: neither padding nor truncation needs a length."""
    length = tok.model_max_length if max_length is None else max_length
    if not is_needed:
        return None
    if length is None:
        message = "the maximum length of the model is not known; give max_length="
        raise InvalidRequest(message, where="max_length")
    check_counts(max_length=(length, 0))
    return length


def _ragged(batch: EncodedBatch) -> dict[str, Any]:
    """Return the fields of unpadded rows, each as a list of arrays."""
    rows = list(batch)
    fields: dict[str, Any] = {
        "input_ids": rows,
        "attention_mask": [np.ones(len(row), np.int64) for row in rows],
    }
    if batch.offset_mapping is not None:
        fields["offset_mapping"] = np.split(batch.offset_mapping, batch.offsets[1:-1])
    return fields


def _padded(
    batch: EncodedBatch, min_length: int, multiple: int | None, side: Side
) -> dict[str, Any]:
    """Return the fields of rows padded to one length, each as a matrix."""
    if multiple is not None:
        check_counts(pad_to_multiple_of=(multiple, 1))
        longest = max(min_length, int(batch.num_tokens.max(initial=0)))
        min_length = -(-longest // multiple) * multiple
    padded = batch.pad(min_length, padding_side=side)
    fields = {"input_ids": padded.ids, "attention_mask": padded.attention_mask}
    if padded.offset_mapping is not None:
        return {**fields, "offset_mapping": padded.offset_mapping}
    return fields


def _tensor(rows: Any, kind: Tensors) -> Any:
    """Make an int64 tensor or array of rows of equal length.

    Raises:
        InvalidRequest: the rows have different lengths.
    """
    if len({np.shape(row) for row in rows}) > 1:
        message = (
            "rows of different lengths cannot be a tensor; use padding=True, or return_tensors=None"
        )
        raise InvalidRequest(message, where="padding")
    array = np.asarray(rows, np.int64)
    if kind == "np":
        return array
    return import_library("torch", 'return_tensors="pt"').from_numpy(array)


def _to_lists(name: str, rows: Any) -> list[Any]:
    lists = [row.tolist() for row in rows]
    if name == "offset_mapping":
        return [[tuple(span) for span in row] for row in lists]
    return lists
