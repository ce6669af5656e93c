"""Models for the bodies and the answers of the encode, count, decode, windows and chunks calls.

The fast path validates requests with these models, and FastAPI describes them in openapi.json, so
that each body is defined only once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.core.json_bodies import Surrogates
from vocabularies.batch.batch import EncodeOptions
from vocabularies.model.vocabulary import TokenForm

Special = Literal["match", "plain", "refuse"]
Side = Literal["right", "left"]
Unit = Literal["bytes", "codepoints", "utf16"]
Junction = Literal["append", "prepend"]
# Report only the first wrong value of a list, as each report takes a kilobyte.
Texts = Annotated[list[str], Field(fail_fast=True)]
# true, 1.0 and "1" are no ids, even in models that convert other fields.
Ids = Annotated[list[Annotated[int, Field(strict=True)]], Field(fail_fast=True)]
Rows = Annotated[list[Ids], Field(fail_fast=True)]
Length = Annotated[int, Field(ge=0, le=2**31 - 1)]
Padding = Literal["longest"] | Annotated[int, Field(ge=0, le=1_048_576)]

ADD_SPECIAL = "Put the vocabulary's own begin and end tokens around the ids, as Hugging Face does."
SPECIAL = (
    "How to treat text of special tokens inside the input: 'match' gives the token's id, 'plain' "
    "encodes it as ordinary text, 'refuse' answers 422 with its place."
)
MAX_LENGTH = (
    "Maximum number of ids of a text, including begin and end tokens; further ids are cut off. "
    "null: no maximum."
)
TRUNCATION = "The side at which ids are cut off if a text has more than max_length."
OFFSETS = "Return where each id begins and ends in the text, counted in this unit."
TOKENS = "Return the token of each id as a string."
TOKEN_FORM = (
    "Form of the tokens. 'text': readable text, in which bytes that are not UTF-8 are written as "
    "<0xE2>. 'file': as in a tokenizer.json, where byte-level BPE uses the byte-level alphabet "
    "(Ġthe)."
)
REVERSE = (
    "DNA: encode the reverse complement (A-T, C-G and IUPAC codes are exchanged, upper and lower "
    "case stay). Refused if the vocabulary is one of text."
)
UPPERCASE = (
    "Convert the letters a to z to upper case before encoding, as for soft-masked genomes, whose "
    "lower-case letters many vocabularies do not know. Special-token text in the input is "
    "converted, too."
)
UNKNOWN_SHARE = (
    "Share of the ids, without begin and end tokens, that are the unknown token. Present only "
    "for vocabularies of DNA, and only if it is at least one fifth."
)
CIRCULAR = (
    "k-mer vocabularies: treat the sequence as circular, with k-mers across its end and start; "
    "null: as the vocabulary says."
)
JUNCTION = (
    "Position of the k-mers across the junction of a circular sequence: 'append' puts them last, "
    "'prepend' first; null: as the vocabulary says."
)
ADD_CLS = "Put the vocabulary's [CLS] before each window."
FIELD_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
DTYPE = "Type of the ids in binary answers; refused if the vocabulary has ids that do not fit."
IF_DIGEST = "Refuse the request with 412 if the digest of the vocabulary differs from this one."
SURROGATES = (
    "How to treat half a surrogate pair in a string, which occurs if a text was cut inside an "
    "emoji: 'refuse' answers 400 with its place, 'replace' encodes U+FFFD instead."
)
INVALID_UTF8 = (
    "How to treat a text that is not UTF-8: 'refuse' refuses it, 'bytes' encodes its bytes as "
    "tiktoken does. 'bytes' works only for byte-level BPE that has a token for every byte, and "
    "for texts of at most 65,536 bytes."
)
VOCABULARY = "Name of a vocabulary; GET /v1/vocabularies lists them."
KERNEL_TIME = (
    "Also return kernel_time: the seconds in which the engine computed the batch that contained "
    "the request, as in the stage encode of Server-Timing."
)
AUGMENTATION = (
    "DNA: crop the sequences and substitute letters at random before encoding; null: no changes. "
    "Offsets cannot be returned then."
)
SEED = "Seed of the random changes; the same seed makes the same changes."
CROP = "Crop longer sequences to this number of letters; null: no cropping."
SUBSTITUTION = "Fraction of the bases A, C, G and T that are replaced by another of them."
FIRST_ROW = (
    "Number of the first sequence within the whole data set, from which the random changes of "
    "each row follow."
)
ANSWERED_KERNEL_TIME = "Seconds of the engine; present only with `return_kernel_time`."
ANSWERED_OFFSETS = "Begin and end of each id in its text; present only with `return_offsets`."
ANSWERED_TOKENS = "The token of each id as a string; present only with `return_tokens`."
ANSWERED_BASE64 = "The exact bytes; present only with `as_base64`."
MAX_SEED, MAX_CROP, MAX_ROW = (1 << 64) - 1, (1 << 31) - 1, (1 << 63) - 1


class IgnoreExtra(BaseModel):
    """A body whose unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class Strict(BaseModel):
    """A body that rejects unknown fields, and values of another type instead of converting them."""

    model_config = ConfigDict(extra="forbid", strict=True, cache_strings="none")


class EncodeRequest(Strict):
    """A request to encode one text."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"vocabulary": "gpt2", "text": "Hello, world!"}]}
    )

    vocabulary: str = Field(description=VOCABULARY)
    text: str = Field(description="The text or sequence.")
    add_special_tokens: bool = Field(True, description=ADD_SPECIAL)
    special: Special = Field("match", description=SPECIAL)
    max_length: Length | None = Field(None, description=MAX_LENGTH)
    truncation_side: Side = Field("right", description=TRUNCATION)
    return_offsets: Unit | None = Field(None, description=OFFSETS)
    return_tokens: bool = Field(False, description=TOKENS)
    token_form: TokenForm = Field("text", description=TOKEN_FORM)
    reverse_complement: bool = Field(False, description=REVERSE)
    circular: bool | None = Field(None, description=CIRCULAR)
    uppercase: bool = Field(False, description=UPPERCASE)
    dtype: Literal["int32", "uint16", "uint8"] = Field("int32", description=DTYPE)
    surrogates: Surrogates = Field("refuse", description=SURROGATES)
    return_kernel_time: bool = Field(False, description=KERNEL_TIME)
    if_digest: str | None = Field(None, description=IF_DIGEST)

    def options(self) -> EncodeOptions:
        """Return the encode options of the text."""
        return EncodeOptions(
            add_special_tokens=self.add_special_tokens,
            special=self.special,
            max_length=self.max_length,
            truncation_side=self.truncation_side,
            reverse_complement=self.reverse_complement,
            circular=self.circular,
            spans=self.return_offsets is not None,
            uppercase=self.uppercase,
        )


class PlainEncodeRequest:
    """An `EncodeRequest` with only a vocabulary and a text, which is three times as fast to create.

    All other fields are class attributes with the default values of `EncodeRequest`.
    """

    __slots__ = ("text", "vocabulary")
    model_fields_set = frozenset(("vocabulary", "text"))

    def __init__(self, vocabulary: str, text: str) -> None:
        self.vocabulary = vocabulary
        self.text = text


for _name, _field in EncodeRequest.model_fields.items():
    if not _field.is_required():
        setattr(PlainEncodeRequest, _name, _field.default)


class TextListRequest(Strict):
    """A request with many texts; an option that is a list contains one value for each text."""

    vocabulary: str = Field(description=VOCABULARY)
    texts: Texts = Field(description="The texts or sequences.")
    add_special_tokens: bool | list[bool] = Field(True, description=ADD_SPECIAL)
    special: Special | list[Special] = Field("match", description=SPECIAL)
    max_length: Length | list[Length | None] | None = Field(None, description=MAX_LENGTH)
    truncation_side: Side | list[Side] = Field("right", description=TRUNCATION)
    reverse_complement: bool | list[bool] = Field(False, description=REVERSE)
    circular: bool | list[bool | None] | None = Field(None, description=CIRCULAR)
    uppercase: bool | list[bool] = Field(False, description=UPPERCASE)
    surrogates: Surrogates = Field("refuse", description=SURROGATES)
    return_kernel_time: bool = Field(False, description=KERNEL_TIME)
    if_digest: str | None = Field(None, description=IF_DIGEST)


class AugmentationOptions(Strict):
    """Random changes to sequences, which depend only on the seed and each row's number."""

    seed: int = Field(ge=0, le=MAX_SEED, description=SEED)
    crop_letters: Annotated[int, Field(ge=1, le=MAX_CROP)] | None = Field(None, description=CROP)
    substitution_rate: float = Field(0.0, ge=0, le=1, description=SUBSTITUTION)
    first_row: int = Field(0, ge=0, le=MAX_ROW, description=FIRST_ROW)


class EncodeBatchRequest(TextListRequest):
    """A request to encode many texts; a list as an option has one value for each text."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"vocabulary": "gpt2", "texts": ["Hello", "world"], "padding": None}]
        }
    )

    return_offsets: Unit | list[Unit | None] | None = Field(None, description=OFFSETS)
    return_tokens: bool | list[bool] = Field(False, description=TOKENS)
    token_form: TokenForm = Field("text", description=TOKEN_FORM)
    dtype: Literal["int32", "uint16", "uint8"] = Field("int32", description=DTYPE)
    padding: Padding | None = Field(
        None,
        description="Pad each row to the length of the longest row, or to this number of ids; "
        "null: do not pad.",
    )
    padding_side: Side | None = Field(
        None,
        description="Side at which rows are padded; null: the vocabulary's own side, which "
        "is mostly the right.",
    )
    pad_id: Length | None = Field(
        None, description="Id with which rows are padded; null: the vocabulary's padding token."
    )
    augmentation: AugmentationOptions | None = Field(None, description=AUGMENTATION)


class CountRequest(TextListRequest):
    """A request to count the ids of each text, without returning the ids."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"vocabulary": "gpt2", "texts": ["Hello, world!"]}]}
    )


SKIP_SPECIAL = "Leave out special tokens."
AS_BASE64 = (
    "Also return the exact bytes in base64, because the text has U+FFFD in place of bytes "
    "that are not UTF-8."
)


class DecodeRequest(Strict):
    """A request to decode one row of ids."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"vocabulary": "gpt2", "ids": [15496, 11, 995, 0]}]}
    )

    vocabulary: str = Field(description=VOCABULARY)
    ids: Ids = Field(description="Token ids.")
    skip_special_tokens: bool = Field(False, description=SKIP_SPECIAL)
    as_base64: bool = Field(False, description=AS_BASE64)
    if_digest: str | None = Field(None, description=IF_DIGEST)


class DecodeBatchRequest(Strict):
    """A request to decode many rows of ids."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"vocabulary": "gpt2", "ids": [[15496], [995, 0]]}]}
    )

    vocabulary: str = Field(description=VOCABULARY)
    ids: Rows = Field(description="Rows of token ids.")
    skip_special_tokens: bool = Field(False, description=SKIP_SPECIAL)
    as_base64: bool = Field(False, description=AS_BASE64)
    if_digest: str | None = Field(None, description=IF_DIGEST)


class WindowsRequest(Strict):
    """A request to cut a sequence into overlapping windows of tokens."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "vocabulary": "mtdna6",
                    "sequence": "GATCACAGGTCTATCACCCT",
                    "window": 8,
                    "stride": 4,
                    "circular": True,
                }
            ]
        }
    )

    vocabulary: str = Field(description=VOCABULARY)
    sequence: str = Field(description="The sequence.")
    window: int = Field(512, ge=1, le=1_048_576, description="Number of tokens in a window.")
    stride: int = Field(
        256, ge=1, description="Number of tokens between the starts of two windows."
    )
    circular: bool | None = Field(None, description=CIRCULAR)
    junction: Junction | None = Field(None, description=JUNCTION)
    channel: Annotated[list[float], Field(fail_fast=True)] | None = Field(
        None,
        description="A value for each base, such as its heteroplasmy level. The answer "
        "contains the values in the same windows as the ids.",
    )
    channel_name: str = Field(
        "het_values",
        pattern=FIELD_NAME,
        description="Name of the field of the answer that contains the values of channel.",
    )
    add_cls: bool = Field(False, description=ADD_CLS)
    reverse_complement: bool = Field(False, description=REVERSE)
    uppercase: bool = Field(False, description=UPPERCASE)
    return_kernel_time: bool = Field(False, description=KERNEL_TIME)
    if_digest: str | None = Field(None, description=IF_DIGEST)


class ChunksRequest(Strict):
    """A request to cut a text into overlapping chunks of ids."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "vocabulary": "gpt2",
                    "text": "A long text, cut into chunks.",
                    "chunk_size": 4,
                    "chunk_overlap": 1,
                }
            ]
        }
    )

    vocabulary: str = Field(description=VOCABULARY)
    text: str = Field(description="The text or sequence.")
    chunk_size: int = Field(
        512,
        ge=1,
        le=2**31 - 1,
        description="Maximum number of ids in a chunk, including begin and end tokens.",
    )
    chunk_overlap: int = Field(
        0, ge=0, le=2**31 - 1, description="Number of tokens that two neighbouring chunks share."
    )
    add_special_tokens: bool = Field(
        True, description="Put the vocabulary's own begin and end tokens around each chunk."
    )
    special: Special = Field("match", description=SPECIAL)
    offset_unit: Unit = Field(
        "codepoints",
        description="Unit in which the begin and the end of each chunk in the text are counted.",
    )
    return_texts: bool = Field(False, description="Also return the text of each chunk.")
    surrogates: Surrogates = Field("refuse", description=SURROGATES)
    return_kernel_time: bool = Field(False, description=KERNEL_TIME)
    if_digest: str | None = Field(None, description=IF_DIGEST)


# Not a tuple: pydantic describes it with prefixItems, which few tools for openapi.json support.
Range = Annotated[list[int], Field(min_length=2, max_length=2)]
"""A start and an end."""


class Truncated(BaseModel):
    """How truncation changed a row."""

    num_tokens: int = Field(
        description="Number of ids before truncation, including begin and end tokens."
    )
    kept: Range = Field(
        description="Begin and end of the ids that were kept, counted among the "
        "ids of the text without begin and end tokens."
    )


class RowFault(BaseModel):
    """A refused row of a batch; the other rows are answered."""

    row: int
    code: str
    message: str


class EncodeResponse(BaseModel):
    """The ids of one text."""

    vocabulary: str
    digest: str = Field(
        description="SHA-256 of the vocabulary. A later request that sends it as "
        "if_digest is refused if the vocabulary has changed."
    )
    ids: list[int]
    num_tokens: int
    engine: Literal["gpu", "cpu", "reference"] = Field(description="Engine that computed the ids.")
    offsets: list[Range] = Field(default=[], description=ANSWERED_OFFSETS)
    tokens: list[str] = Field(default=[], description=ANSWERED_TOKENS)
    truncated: Truncated | None = Field(
        default=None, description="How the ids were truncated; present only if ids were cut off."
    )
    kernel_time: float | None = Field(default=None, description=ANSWERED_KERNEL_TIME)
    unknown_share: float | None = Field(default=None, description=UNKNOWN_SHARE)


class EncodeBatchResponse(BaseModel):
    """The ids of each text; a refused text has no ids and an entry in `errors`."""

    vocabulary: str
    digest: str
    ids: list[list[int]]
    num_tokens: list[int] = Field(description="Number of ids of each row, without padding.")
    engine: Literal["gpu", "cpu", "reference"]
    attention_mask: list[list[int]] = Field(
        default=[], description="1 for each id and 0 for padding; present only with `padding`."
    )
    offsets: list[list[Range] | None] = Field(default=[], description=ANSWERED_OFFSETS)
    tokens: list[list[str] | None] = Field(default=[], description=ANSWERED_TOKENS)
    truncated: list[Truncated | None] = Field(
        default=[],
        description="How each row was truncated, null for a row that was not; present only if any "
        "row was.",
    )
    kernel_time: float | None = Field(default=None, description=ANSWERED_KERNEL_TIME)
    errors: list[RowFault] = Field(
        default=[], description="The refused rows; present only if there are any."
    )
    unknown_share: float | None = Field(default=None, description=UNKNOWN_SHARE)


class CountResponse(BaseModel):
    """The number of ids of each text."""

    vocabulary: str
    digest: str
    num_tokens: list[int]
    engine: Literal["gpu", "cpu", "reference"]
    kernel_time: float | None = Field(default=None, description=ANSWERED_KERNEL_TIME)
    errors: list[RowFault] = Field(
        default=[], description="The refused rows; present only if there are any."
    )


class DecodeResponse(BaseModel):
    """The text of one row of ids."""

    vocabulary: str
    digest: str
    text: str
    base64: str = Field(default="", description=ANSWERED_BASE64)


class DecodeBatchResponse(BaseModel):
    """The text of each row of ids."""

    vocabulary: str
    digest: str
    texts: list[str]
    base64: list[str] = Field(default=[], description=ANSWERED_BASE64)
    errors: list[RowFault] = Field(
        default=[], description="The refused rows; present only if there are any."
    )


class WindowsResponse(BaseModel):
    """Windows of one sequence, one row each; the field of the channel is named by the request."""

    model_config = ConfigDict(extra="allow")

    vocabulary: str
    digest: str
    input_ids: list[list[int]]
    attention_mask: list[list[int]]
    position_ids: list[list[int]] = Field(
        description="Position of the base at which each token begins."
    )
    starts: list[int] = Field(
        description="Number of the first token of each window within the sequence."
    )
    num_tokens: int = Field(description="Number of tokens of the whole sequence.")
    engine: Literal["gpu", "cpu", "reference"]
    kernel_time: float | None = Field(default=None, description=ANSWERED_KERNEL_TIME)
    unknown_share: float | None = Field(default=None, description=UNKNOWN_SHARE)


class ChunksResponse(BaseModel):
    """The chunks of one text, in order."""

    vocabulary: str
    digest: str
    ids: list[list[int]] = Field(description="The ids of each chunk.")
    offsets: list[Range] = Field(
        description="Begin and end of each chunk in the text. If the tokens of a character are "
        "in two chunks, both chunks contain the character."
    )
    starts: list[int] = Field(
        description="Number of the first token of each chunk within the text."
    )
    texts: list[str] = Field(
        default=[], description="The text of each chunk; present only with `return_texts`."
    )
    num_tokens: int = Field(description="Number of tokens of the whole text.")
    engine: Literal["gpu", "cpu", "reference"]
    kernel_time: float | None = Field(default=None, description=ANSWERED_KERNEL_TIME)


def row_options(value: Any, num_rows: int) -> list[Any]:
    """Return one value for each row, from one value for all rows or a list of values."""
    return value if isinstance(value, list) else [value] * num_rows
