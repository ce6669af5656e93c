from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Options(_message.Message):
    __slots__ = ("add_special_tokens", "special", "max_length", "truncation_side", "reverse_complement", "circular", "dtype", "return_offsets", "if_digest", "invalid_utf8", "return_kernel_time", "uppercase", "augmentation", "return_tokens", "token_form")
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    REVERSE_COMPLEMENT_FIELD_NUMBER: _ClassVar[int]
    CIRCULAR_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    RETURN_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    IF_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INVALID_UTF8_FIELD_NUMBER: _ClassVar[int]
    RETURN_KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    UPPERCASE_FIELD_NUMBER: _ClassVar[int]
    AUGMENTATION_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FORM_FIELD_NUMBER: _ClassVar[int]
    add_special_tokens: bool
    special: str
    max_length: int
    truncation_side: str
    reverse_complement: bool
    circular: bool
    dtype: str
    return_offsets: bool
    if_digest: str
    invalid_utf8: str
    return_kernel_time: bool
    uppercase: bool
    augmentation: Augmentation
    return_tokens: bool
    token_form: str
    def __init__(self, add_special_tokens: _Optional[bool] = ..., special: _Optional[str] = ..., max_length: _Optional[int] = ..., truncation_side: _Optional[str] = ..., reverse_complement: _Optional[bool] = ..., circular: _Optional[bool] = ..., dtype: _Optional[str] = ..., return_offsets: _Optional[bool] = ..., if_digest: _Optional[str] = ..., invalid_utf8: _Optional[str] = ..., return_kernel_time: _Optional[bool] = ..., uppercase: _Optional[bool] = ..., augmentation: _Optional[_Union[Augmentation, _Mapping]] = ..., return_tokens: _Optional[bool] = ..., token_form: _Optional[str] = ...) -> None: ...

class Augmentation(_message.Message):
    __slots__ = ("seed", "crop_letters", "substitution_rate", "first_row")
    SEED_FIELD_NUMBER: _ClassVar[int]
    CROP_LETTERS_FIELD_NUMBER: _ClassVar[int]
    SUBSTITUTION_RATE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    seed: int
    crop_letters: int
    substitution_rate: float
    first_row: int
    def __init__(self, seed: _Optional[int] = ..., crop_letters: _Optional[int] = ..., substitution_rate: _Optional[float] = ..., first_row: _Optional[int] = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ("vocabulary", "text", "options")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    text: bytes
    options: Options
    def __init__(self, vocabulary: _Optional[str] = ..., text: _Optional[bytes] = ..., options: _Optional[_Union[Options, _Mapping]] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("ids", "num_tokens", "spans", "engine", "digest", "truncated", "kernel_time", "unknown_share", "tokens")
    IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_SHARE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    num_tokens: int
    spans: bytes
    engine: str
    digest: str
    truncated: Truncated
    kernel_time: float
    unknown_share: float
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[bytes] = ..., num_tokens: _Optional[int] = ..., spans: _Optional[bytes] = ..., engine: _Optional[str] = ..., digest: _Optional[str] = ..., truncated: _Optional[_Union[Truncated, _Mapping]] = ..., kernel_time: _Optional[float] = ..., unknown_share: _Optional[float] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class Truncated(_message.Message):
    __slots__ = ("row", "num_tokens", "kept_begin", "kept_end")
    ROW_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEPT_BEGIN_FIELD_NUMBER: _ClassVar[int]
    KEPT_END_FIELD_NUMBER: _ClassVar[int]
    row: int
    num_tokens: int
    kept_begin: int
    kept_end: int
    def __init__(self, row: _Optional[int] = ..., num_tokens: _Optional[int] = ..., kept_begin: _Optional[int] = ..., kept_end: _Optional[int] = ...) -> None: ...

class EncodeBatchRequest(_message.Message):
    __slots__ = ("vocabulary", "data", "offsets", "options")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    data: bytes
    offsets: bytes
    options: Options
    def __init__(self, vocabulary: _Optional[str] = ..., data: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., options: _Optional[_Union[Options, _Mapping]] = ...) -> None: ...

class RowError(_message.Message):
    __slots__ = ("row", "code", "message", "where")
    ROW_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    row: int
    code: str
    message: str
    where: str
    def __init__(self, row: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., where: _Optional[str] = ...) -> None: ...

class EncodeBatchResponse(_message.Message):
    __slots__ = ("ids", "offsets", "spans", "engine", "digest", "truncated", "errors", "kernel_time", "unknown_share", "tokens")
    IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_SHARE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    offsets: bytes
    spans: bytes
    engine: str
    digest: str
    truncated: _containers.RepeatedCompositeFieldContainer[Truncated]
    errors: _containers.RepeatedCompositeFieldContainer[RowError]
    kernel_time: float
    unknown_share: float
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., spans: _Optional[bytes] = ..., engine: _Optional[str] = ..., digest: _Optional[str] = ..., truncated: _Optional[_Iterable[_Union[Truncated, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[RowError, _Mapping]]] = ..., kernel_time: _Optional[float] = ..., unknown_share: _Optional[float] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class CountResponse(_message.Message):
    __slots__ = ("num_tokens", "engine", "digest", "errors", "kernel_time")
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    num_tokens: bytes
    engine: str
    digest: str
    errors: _containers.RepeatedCompositeFieldContainer[RowError]
    kernel_time: float
    def __init__(self, num_tokens: _Optional[bytes] = ..., engine: _Optional[str] = ..., digest: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[RowError, _Mapping]]] = ..., kernel_time: _Optional[float] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("vocabulary", "ids", "skip_special_tokens", "if_digest")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IF_DIGEST_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    ids: bytes
    skip_special_tokens: bool
    if_digest: str
    def __init__(self, vocabulary: _Optional[str] = ..., ids: _Optional[bytes] = ..., skip_special_tokens: _Optional[bool] = ..., if_digest: _Optional[str] = ...) -> None: ...

class DecodeResponse(_message.Message):
    __slots__ = ("text", "engine")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    engine: str
    def __init__(self, text: _Optional[bytes] = ..., engine: _Optional[str] = ...) -> None: ...

class DecodeBatchRequest(_message.Message):
    __slots__ = ("vocabulary", "ids", "offsets", "skip_special_tokens", "if_digest")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IF_DIGEST_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    ids: bytes
    offsets: bytes
    skip_special_tokens: bool
    if_digest: str
    def __init__(self, vocabulary: _Optional[str] = ..., ids: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., skip_special_tokens: _Optional[bool] = ..., if_digest: _Optional[str] = ...) -> None: ...

class DecodeBatchResponse(_message.Message):
    __slots__ = ("data", "offsets", "engine", "errors")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offsets: bytes
    engine: str
    errors: _containers.RepeatedCompositeFieldContainer[RowError]
    def __init__(self, data: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., engine: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[RowError, _Mapping]]] = ...) -> None: ...

class WindowsRequest(_message.Message):
    __slots__ = ("vocabulary", "sequence", "window", "stride", "circular", "reverse_complement", "channel", "add_cls", "junction", "uppercase", "if_digest", "return_kernel_time")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    CIRCULAR_FIELD_NUMBER: _ClassVar[int]
    REVERSE_COMPLEMENT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ADD_CLS_FIELD_NUMBER: _ClassVar[int]
    JUNCTION_FIELD_NUMBER: _ClassVar[int]
    UPPERCASE_FIELD_NUMBER: _ClassVar[int]
    IF_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RETURN_KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    sequence: bytes
    window: int
    stride: int
    circular: bool
    reverse_complement: bool
    channel: bytes
    add_cls: bool
    junction: str
    uppercase: bool
    if_digest: str
    return_kernel_time: bool
    def __init__(self, vocabulary: _Optional[str] = ..., sequence: _Optional[bytes] = ..., window: _Optional[int] = ..., stride: _Optional[int] = ..., circular: _Optional[bool] = ..., reverse_complement: _Optional[bool] = ..., channel: _Optional[bytes] = ..., add_cls: _Optional[bool] = ..., junction: _Optional[str] = ..., uppercase: _Optional[bool] = ..., if_digest: _Optional[str] = ..., return_kernel_time: _Optional[bool] = ...) -> None: ...

class WindowsResponse(_message.Message):
    __slots__ = ("input_ids", "attention_mask", "position_ids", "channel", "num_windows", "width", "starts", "kernel_time")
    INPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_MASK_FIELD_NUMBER: _ClassVar[int]
    POSITION_IDS_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    NUM_WINDOWS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    input_ids: bytes
    attention_mask: bytes
    position_ids: bytes
    channel: bytes
    num_windows: int
    width: int
    starts: bytes
    kernel_time: float
    def __init__(self, input_ids: _Optional[bytes] = ..., attention_mask: _Optional[bytes] = ..., position_ids: _Optional[bytes] = ..., channel: _Optional[bytes] = ..., num_windows: _Optional[int] = ..., width: _Optional[int] = ..., starts: _Optional[bytes] = ..., kernel_time: _Optional[float] = ...) -> None: ...

class ChunksRequest(_message.Message):
    __slots__ = ("vocabulary", "text", "chunk_size", "chunk_overlap", "add_special_tokens", "special", "if_digest", "return_kernel_time")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SIZE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FIELD_NUMBER: _ClassVar[int]
    IF_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RETURN_KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    text: bytes
    chunk_size: int
    chunk_overlap: int
    add_special_tokens: bool
    special: str
    if_digest: str
    return_kernel_time: bool
    def __init__(self, vocabulary: _Optional[str] = ..., text: _Optional[bytes] = ..., chunk_size: _Optional[int] = ..., chunk_overlap: _Optional[int] = ..., add_special_tokens: _Optional[bool] = ..., special: _Optional[str] = ..., if_digest: _Optional[str] = ..., return_kernel_time: _Optional[bool] = ...) -> None: ...

class ChunksResponse(_message.Message):
    __slots__ = ("ids", "offsets", "spans", "starts", "num_tokens", "engine", "digest", "kernel_time")
    IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    KERNEL_TIME_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    offsets: bytes
    spans: bytes
    starts: bytes
    num_tokens: int
    engine: str
    digest: str
    kernel_time: float
    def __init__(self, ids: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., spans: _Optional[bytes] = ..., starts: _Optional[bytes] = ..., num_tokens: _Optional[int] = ..., engine: _Optional[str] = ..., digest: _Optional[str] = ..., kernel_time: _Optional[float] = ...) -> None: ...

class ListVocabulariesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListVocabulariesResponse(_message.Message):
    __slots__ = ("vocabularies",)
    VOCABULARIES_FIELD_NUMBER: _ClassVar[int]
    vocabularies: _containers.RepeatedCompositeFieldContainer[Vocabulary]
    def __init__(self, vocabularies: _Optional[_Iterable[_Union[Vocabulary, _Mapping]]] = ...) -> None: ...

class GetVocabularyRequest(_message.Message):
    __slots__ = ("vocabulary",)
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    def __init__(self, vocabulary: _Optional[str] = ...) -> None: ...

class Vocabulary(_message.Message):
    __slots__ = ("name", "state", "builtin", "source", "licence", "digest", "kind", "size", "engine", "encoder", "residency", "device_bytes", "fallback_reason", "error", "notes", "aliases")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LICENCE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    builtin: bool
    source: str
    licence: str
    digest: str
    kind: str
    size: int
    engine: str
    encoder: str
    residency: _containers.RepeatedScalarFieldContainer[str]
    device_bytes: int
    fallback_reason: str
    error: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    aliases: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., builtin: _Optional[bool] = ..., source: _Optional[str] = ..., licence: _Optional[str] = ..., digest: _Optional[str] = ..., kind: _Optional[str] = ..., size: _Optional[int] = ..., engine: _Optional[str] = ..., encoder: _Optional[str] = ..., residency: _Optional[_Iterable[str]] = ..., device_bytes: _Optional[int] = ..., fallback_reason: _Optional[str] = ..., error: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., aliases: _Optional[_Iterable[str]] = ...) -> None: ...

class PutVocabularyRequest(_message.Message):
    __slots__ = ("vocabulary", "format", "replace", "pretokenizer", "special_tokens", "id_offset", "file", "data", "aliases", "decoder")
    class SpecialTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    PRETOKENIZER_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ID_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    DECODER_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    format: str
    replace: bool
    pretokenizer: str
    special_tokens: _containers.ScalarMap[str, int]
    id_offset: int
    file: str
    data: bytes
    aliases: _containers.RepeatedScalarFieldContainer[str]
    decoder: str
    def __init__(self, vocabulary: _Optional[str] = ..., format: _Optional[str] = ..., replace: _Optional[bool] = ..., pretokenizer: _Optional[str] = ..., special_tokens: _Optional[_Mapping[str, int]] = ..., id_offset: _Optional[int] = ..., file: _Optional[str] = ..., data: _Optional[bytes] = ..., aliases: _Optional[_Iterable[str]] = ..., decoder: _Optional[str] = ...) -> None: ...

class PutVocabularyResponse(_message.Message):
    __slots__ = ("vocabulary", "created")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    vocabulary: Vocabulary
    created: bool
    def __init__(self, vocabulary: _Optional[_Union[Vocabulary, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class DeleteVocabularyRequest(_message.Message):
    __slots__ = ("vocabulary",)
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    def __init__(self, vocabulary: _Optional[str] = ...) -> None: ...

class DeleteVocabularyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PutAliasRequest(_message.Message):
    __slots__ = ("alias", "vocabulary", "replace")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    alias: str
    vocabulary: str
    replace: bool
    def __init__(self, alias: _Optional[str] = ..., vocabulary: _Optional[str] = ..., replace: _Optional[bool] = ...) -> None: ...

class PutAliasResponse(_message.Message):
    __slots__ = ("vocabulary", "created")
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    vocabulary: str
    created: bool
    def __init__(self, vocabulary: _Optional[str] = ..., created: _Optional[bool] = ...) -> None: ...

class DeleteAliasRequest(_message.Message):
    __slots__ = ("alias",)
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    alias: str
    def __init__(self, alias: _Optional[str] = ...) -> None: ...

class DeleteAliasResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
