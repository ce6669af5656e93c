"""Defines the options of encode and count calls, with the same names as in the service.

Options are checked before a call computes anything. An unknown option is refused, and the message
names the call to use instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypedDict, TypeVar

import numpy as np

from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, EncodeOptions
from vocabularies.sequences.augmentation import Augmentation, NotASequence, augment_batch
from warptok.errors import InvalidRequest

Special = Literal["match", "plain", "refuse"]
Side = Literal["right", "left"]
Unit = Literal["bytes", "codepoints", "utf16"]
TokenForm = Literal["text", "file"]
IdType = Literal["int32", "uint16", "uint8"]
Refused = Literal["raise", "keep"]
Padding = Literal["longest"] | int
Value = TypeVar("Value")
SIDES: tuple[Side, ...] = ("right", "left")
TOKEN_FORMS: tuple[TokenForm, ...] = ("text", "file")
ID_TYPES: Mapping[str, type[np.integer[Any]]] = MappingProxyType(
    {"int32": np.int32, "uint16": np.uint16, "uint8": np.uint8}
)


class TextOptions(TypedDict, total=False):
    """The options of one text, with the same meaning as the service's options in docs/api.md.

    Attributes:
        add_special_tokens: put the vocabulary's begin and end tokens around the ids (default True).
        special: how the text of a special token in the input is handled: it becomes the token's id
            ("match", the default), is encoded as ordinary text ("plain"), or is refused ("refuse").
        max_length: the most ids, begin and end tokens included; None: no limit.
        truncation_side: the side from which ids are cut, "left" or "right" (default).
        reverse_complement: encode the reverse complement of DNA (default False).
        circular: treat the sequence as a circle, for k-mers; None: the vocabulary's setting.
        uppercase: convert a to z to upper case first, as for soft-masked genomes (default False).
        invalid_utf8: how bytes that are not UTF-8 are handled: they are refused ("refuse", the
            default), or encoded to the ids that tiktoken returns for bytes ("bytes").
        surrogates: how half a surrogate pair in a string is handled: it is refused ("refuse", the
            default), or replaced by U+FFFD ("replace").
    """

    add_special_tokens: bool
    special: Special
    max_length: int | None
    truncation_side: Side
    reverse_complement: bool
    circular: bool | None
    uppercase: bool
    invalid_utf8: Literal["refuse", "bytes"]
    surrogates: Literal["refuse", "replace"]


class BatchOptions(TypedDict, total=False):
    """The options of several texts: values as in `TextOptions`, or one value per text.

    These are lists or arrays of NumPy.
    """

    add_special_tokens: bool | Sequence[bool]
    special: Special | Sequence[Special]
    max_length: int | Sequence[int | None] | None
    truncation_side: Side | Sequence[Side]
    reverse_complement: bool | Sequence[bool]
    circular: bool | Sequence[bool | None] | None
    uppercase: bool | Sequence[bool]
    invalid_utf8: Literal["refuse", "bytes"]
    surrogates: Literal["refuse", "replace"]


NAMES = tuple(TextOptions.__annotations__)
WHOLE_BATCH = ("invalid_utf8", "surrogates")
BOOLEANS = ("add_special_tokens", "reverse_complement", "circular", "uppercase")
OF_THE_CALL = "call the tokenizer itself, as Hugging Face's: tok(texts, {name}=...)"
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "truncation": "max_length=512 cuts; or " + OF_THE_CALL,
        "return_tensors": "encode_batch(texts).to_torch() makes tensors; or " + OF_THE_CALL,
        "return_attention_mask": "encode_batch(texts, padding='longest') has it; or " + OF_THE_CALL,
        "return_offsets_mapping": "offsets(text), or encode_batch(texts, return_offsets='bytes')",
        "return_overflowing_tokens": "chunks(text, chunk_size=512, chunk_overlap=64)",
        "stride": "chunks(text, chunk_overlap=...), or windows(sequence, stride=...)",
        "allowed_special": "special='match' gives special tokens their ids",
        "disallowed_special": "special='refuse' refuses their text",
        "num_threads": "the engine chooses its threads",
        "padding": "encode_batch(texts, padding='longest')",
        "return_offsets": "offsets(text), or encode_batch([text], return_offsets='codepoints')",
        "return_tokens": "encode_batch([text], return_tokens=True)",
        "token_form": "encode_batch([text], return_tokens=True, token_form=...)",
        "augmentation": "encode_batch([text], augmentation=...)",
        "seed": "encode_batch(texts, augmentation=warptok.Augmentation(seed=...))",
        "crop_letters": "encode_batch(texts, augmentation=warptok.Augmentation(crop_letters=...))",
    }
)
"""What to call instead of an unknown option, by the option's name in other libraries or calls."""
OTHER_METHODS: Mapping[str, str] = MappingProxyType(
    {
        "apply_chat_template": "a service, which renders chats: docs/dialects.md",
        "batch_decode": "decode_batch(rows)",
        "batch_encode_plus": "the tokenizer itself: tok(texts, padding=True)",
        "encode_ordinary": "encode(text, special='plain')",
        "encode_ordinary_batch": "encode_batch(texts, special='plain')",
        "encode_plus": "the tokenizer itself: tok(text)",
        "get_vocab_size": "len(tok)",
        "id_to_token": "convert_ids_to_tokens([token_id])",
        "n_vocab": "len(tok)",
        "pad": "encode_batch(texts, padding='longest')",
        "token_to_id": "convert_tokens_to_ids(token)",
        "tokenize": "convert_ids_to_tokens(encode(text, add_special_tokens=False))",
        "tokenize_batch": "encode_batch(texts)",
    }
)
"""What to call instead of each method of other libraries."""


def refuse_unknown(call: str, given: Mapping[str, object]) -> None:
    """Refuse options that a call does not have.

    Raises:
        TypeError: an option is unknown; the message names the call to use instead.
    """
    for name in given:
        if name in INSTEAD:
            hint = INSTEAD[name].format(name=name)
            raise TypeError(f"{call}() has no option {name!r}: {hint}")
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"its options are {', '.join(NAMES)}"
        raise TypeError(f"{call}() has no option {name!r}; {hint}")


def check_options(call: str, given: Mapping[str, Any], num_rows: int | None = None) -> None:
    """Check the names and types of options.

    Args:
        call: the name of the method, for errors.
        given: the options.
        num_rows: the number of texts, for which options may be lists; None: one text.

    Raises:
        TypeError: a name is unknown.
        InvalidRequest: a value is wrong, or the length of a list is not the number of texts.
    """
    refuse_unknown(call, {name: value for name, value in given.items() if name not in NAMES})
    for name, value in given.items():
        if not is_list(value):
            values = [value]
        elif num_rows is None or name in WHOLE_BATCH:
            raise InvalidRequest(f"{name} must be one value, not a list", where=name)
        elif len(value) != num_rows:
            raise InvalidRequest(
                f"{name} has {len(value)} values, but there are {num_rows} texts", where=name
            )
        else:
            values = value
        for one in values:
            _check_type(name, one)
    if given.get("surrogates", "refuse") not in ("refuse", "replace"):
        message = f"surrogates is {given['surrogates']!r}, neither refuse nor replace"
        raise InvalidRequest(message, where="surrogates")


def plain_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with Python's values and lists in the place of NumPy's scalars and arrays.

    Example: {"reverse_complement": np.array([True, False])} becomes {"reverse_complement":
    [True, False]}.
    """
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in given.items()
    }


def is_list(value: object) -> bool:
    """Return whether an option has a list with a value for each row."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _check_type(name: str, value: object) -> None:
    """Check the type of one value; `EncodeOptions` checks the value itself."""
    if name in BOOLEANS and not (isinstance(value, bool) or (name == "circular" and value is None)):
        raise InvalidRequest(f"{name} is {value!r}; it must be True or False", where=name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if name == "max_length" and not (value is None or is_number):
        raise InvalidRequest(f"max_length is {value!r}; it must be a whole number", where=name)


def make_options(
    call: str, given: Mapping[str, Any], num_rows: int | None = None, *, spans: bool = False
) -> EncodeOptions | list[EncodeOptions]:
    """Make the engine's options: one object, or one for each row if an option is a list.

    Args:
        call: the name of the method, for errors.
        given: the options.
        num_rows: the number of texts, for which options may be lists; None: one text.
        spans: whether the begin and end of each id are computed.

    Raises:
        TypeError, InvalidRequest: as `check_options`.
    """
    given = plain_options(given)
    check_options(call, given, num_rows)
    fields = {name: value for name, value in given.items() if name != "surrogates"}
    lists = {name: value for name, value in fields.items() if is_list(value)}
    if not lists:
        return _of_row(fields | {"spans": spans})
    return [
        _of_row(fields | {name: values[row] for name, values in lists.items()} | {"spans": spans})
        for row in range(num_rows or 0)
    ]


def _of_row(fields: Mapping[str, Any]) -> EncodeOptions:
    try:
        options = EncodeOptions(**fields)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options


def make_augmentation(value: object, unit: Unit | None = None) -> Augmentation | None:
    """Make the object that describes random changes to sequences; None: no changes.

    Args:
        value: an Augmentation, its fields by name, or None.
        unit: the requested unit of offsets, which must be None, as changed sequences have no
            offsets.

    Raises:
        TypeError: the value has another type, or a field's name is unknown.
        InvalidRequest: a value is out of range, or offsets are requested.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        try:
            value = Augmentation(**value)
        except ValueError as error:
            raise InvalidRequest(str(error), where="augmentation") from error
    if not isinstance(value, Augmentation):
        raise TypeError(f"augmentation is {value!r}; it must be a warptok.Augmentation(seed=...)")
    if unit is not None:
        message = (
            "return_offsets is not possible with augmentation, because offsets would refer to "
            "the changed sequences"
        )
        raise InvalidRequest(message, where="return_offsets")
    return value


def augment_rows(batch: Batch, augmentation: Augmentation | None) -> Batch:
    """Return a batch with changed rows, or the batch itself if no changes are requested.

    Raises:
        InvalidRequest: a row has letters beyond ASCII.
    """
    if augmentation is None:
        return batch
    try:
        return augment_batch(batch, augmentation)
    except NotASequence as error:
        raise InvalidRequest(f"{error} (row {error.row})", where="texts") from error


def choose(name: str, value: Any, choices: Sequence[Value]) -> Value:
    """Return a value if it is one of the allowed ones.

    Raises:
        InvalidRequest: the value is not allowed.
    """
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InvalidRequest(f"{name} is {value!r}; it must be one of {listed}", where=name)
    return choices[choices.index(value)]


def check_counts(**counts: tuple[int, int]) -> None:
    """Check that options are whole numbers, and none is below its minimum.

    Args:
        counts: the value and the minimum of each option.

    Raises:
        InvalidRequest: an option is not a whole number, or is below its minimum.
    """
    for name, (value, least) in counts.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InvalidRequest(f"{name} is {value!r}; it must be at least {least}", where=name)


def check_padding(
    padding: Padding | None,
    padding_side: Side | None,
    pad_id: int | None,
    dtype: IdType,
    num_ids: int,
) -> None:
    """Check the options of padding.

    Raises:
        InvalidRequest: a value is wrong, or they contradict each other.
    """
    if padding is None:
        if padding_side is not None or pad_id is not None:
            message = "padding_side and pad_id are only allowed together with padding"
            raise InvalidRequest(message, where="padding")
        return
    if padding != "longest":
        if isinstance(padding, str | bool):
            message = f'padding is {padding!r}; it must be "longest" or a number of ids'
            raise InvalidRequest(message, where="padding")
        check_counts(padding=(padding, 0))
    if dtype != "int32":
        raise InvalidRequest("dtype must be int32 with padding", where="dtype")
    if padding_side is not None:
        choose("padding_side", padding_side, SIDES)
    if pad_id is not None and not 0 <= pad_id < num_ids:
        raise InvalidRequest(
            f"pad_id must be an id of the vocabulary, 0 to {num_ids - 1}", where="pad_id"
        )
