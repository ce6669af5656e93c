"""The options of encode and count calls, with the names of the service's options.

They are checked before anything runs. No option is ignored: an unknown one is refused, and the
message names the call that does the same.
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
    """The options of one text; docs/api.md has them for the service, with the same meaning.

    Attributes:
        add_special_tokens: put the vocabulary's begin and end tokens around the ids (True).
        special: the text of a special token inside the input is its id ("match"), ordinary text
            ("plain"), or refused ("refuse").
        max_length: most ids, begin and end tokens included; None: no limit.
        truncation_side: the side that is cut ("right").
        reverse_complement: DNA: encode the other strand (False).
        circular: k-mers: the sequence wraps; None: as the vocabulary says.
        uppercase: make a to z upper case first, as of soft-masked genomes (False).
        invalid_utf8: bytes that are not UTF-8 are refused ("refuse"), or have the ids that tiktoken
            gives bytes ("bytes").
        surrogates: half a surrogate pair in a string is refused ("refuse"), or U+FFFD ("replace").
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
    """The options of several texts: as `TextOptions`, each one value or one value for each text."""

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
"""What to call instead, by the words of other libraries and of other calls."""
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
"""What to call instead of other libraries' methods."""


def refuse_unknown(call: str, given: Mapping[str, object]) -> None:
    """Refuse options that a call does not have.

    Raises:
        TypeError: there is one; the message says what to call instead.
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
        num_rows: the number of rows, where options may be lists; None: there is one text.

    Raises:
        TypeError: a name is unknown.
        InvalidRequest: a value is wrong, or a list has not one value for each row.
    """
    refuse_unknown(call, {name: value for name, value in given.items() if name not in NAMES})
    for name, value in given.items():
        if not is_list(value):
            values = [value]
        elif num_rows is None or name in WHOLE_BATCH:
            raise InvalidRequest(f"{name} has one value, and not a list", where=name)
        elif len(value) != num_rows:
            raise InvalidRequest(f"{len(value)} values for {num_rows} texts", where=name)
        else:
            values = value
        for one in values:
            _check_type(name, one)
    if given.get("surrogates", "refuse") not in ("refuse", "replace"):
        message = f"surrogates is {given['surrogates']!r}, neither refuse nor replace"
        raise InvalidRequest(message, where="surrogates")


def is_list(value: object) -> bool:
    """Whether an option has a value for each row."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _check_type(name: str, value: object) -> None:
    """Check the type of one value; `EncodeOptions` checks its words and numbers."""
    if name in BOOLEANS and not (isinstance(value, bool) or (name == "circular" and value is None)):
        raise InvalidRequest(f"{name} is {value!r}, neither True nor False", where=name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if name == "max_length" and not (value is None or is_number):
        raise InvalidRequest(f"max_length is {value!r}, no whole number", where=name)


def make_options(
    call: str, given: Mapping[str, Any], num_rows: int | None = None, *, spans: bool = False
) -> EncodeOptions | list[EncodeOptions]:
    """Make the engine's options: one value, or one for each row if an option is a list.

    Args:
        call: the name of the method, for errors.
        given: the options.
        num_rows: the number of rows, where options may be lists; None: there is one text.
        spans: whether the place of each id is needed.

    Raises:
        TypeError, InvalidRequest: as `check_options`.
    """
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
    """Make the random changes to sequences; None: there are none.

    Args:
        value: an Augmentation, its fields by name, or None.
        unit: the unit of the places of ids, which changed sequences do not have.

    Raises:
        TypeError: it is something else, or a name is unknown.
        InvalidRequest: a value is out of range, or places are requested.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        try:
            value = Augmentation(**value)
        except ValueError as error:
            raise InvalidRequest(str(error), where="augmentation") from error
    if not isinstance(value, Augmentation):
        raise TypeError(f"augmentation is {value!r}; it is warptok.Augmentation(seed=...)")
    if unit is not None:
        message = "places of ids would be those in the changed sequences"
        raise InvalidRequest(message, where="return_offsets")
    return value


def augment_rows(batch: Batch, augmentation: Augmentation | None) -> Batch:
    """Return a batch with its rows changed; the batch itself where there are no changes.

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
    """Return a value that is one of several.

    Raises:
        InvalidRequest: it is another one.
    """
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InvalidRequest(f"{name} is {value!r}; it is one of {listed}", where=name)
    return choices[choices.index(value)]


def check_counts(**counts: tuple[int, int]) -> None:
    """Check that options are whole numbers, each at least as large as its minimum.

    Args:
        counts: the value and the minimum of each option.

    Raises:
        InvalidRequest: one is not.
    """
    for name, (value, least) in counts.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InvalidRequest(f"{name} is {value!r}; it is {least} or more", where=name)


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
            message = 'padding_side and pad_id need padding="longest", or a number of ids'
            raise InvalidRequest(message, where="padding")
        return
    if padding != "longest":
        if isinstance(padding, str | bool):
            message = f'padding is {padding!r}; it is "longest" or a number of ids'
            raise InvalidRequest(message, where="padding")
        check_counts(padding=(padding, 0))
    if dtype != "int32":
        raise InvalidRequest("padded ids are int32", where="dtype")
    if padding_side is not None:
        choose("padding_side", padding_side, SIDES)
    if pad_id is not None and not 0 <= pad_id < num_ids:
        raise InvalidRequest(f"the vocabulary's ids are 0..{num_ids - 1}", where="pad_id")
