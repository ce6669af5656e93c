"""Defines the tokenizer of this process: one vocabulary on the engine of a device.

Calls have the same names, options and defaults as in the service. All calls are thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.operations.rendering.offset_units import convert_spans
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions
from vocabularies.batch.post_processing import NO_ADDED_IDS, AddedIds
from vocabularies.batch.upper_case import make_upper_case
from vocabularies.sequences.augmentation import Augmentation
from vocabularies.sequences.chunks import ChunkLayout, cut_chunks
from vocabularies.sequences.window_layout import (
    Junction,
    LayoutError,
    WindowLayout,
    make_layout,
)
from vocabularies.sequences.windows import Windows, token_positions
from warptok.devices import Place, encode_to_device, windows_to_device
from warptok.errors import InvalidRequest
from warptok.huggingface import BatchEncoding, encode_as_huggingface
from warptok.inputs import (
    as_channel,
    as_id_rows,
    as_ids,
    as_text,
    make_batch,
    one_text,
    refuse_invalid_utf8,
)
from warptok.options import (
    ID_TYPES,
    TOKEN_FORMS,
    BatchOptions,
    IdType,
    Padding,
    Refused,
    Side,
    Special,
    TextOptions,
    TokenForm,
    Unit,
    augment_rows,
    check_counts,
    check_padding,
    choose,
    make_augmentation,
    make_options,
)
from warptok.results import (
    DeviceBatch,
    EncodedBatch,
    PaddedBatch,
    TextChunks,
    find_truncated,
    map_offsets,
    raise_refused,
)
from warptok.token_names import TokenNames

if TYPE_CHECKING:
    from gpu.windows import DeviceWindows
    from service.engines.base import Decoded
    from vocabularies.model.vocabulary import Vocabulary

UNITS: tuple[Unit, ...] = ("codepoints", "utf16", "bytes")
REFUSED: tuple[Refused, ...] = ("raise", "keep")
JUNCTIONS: tuple[Junction | None, ...] = (None, "append", "prepend")


@dataclass(frozen=True, slots=True)
class Defaults:
    """The settings of a Hugging Face tokenizer or a model's folder that are not in the vocabulary.

    Attributes:
        name: the tokenizer's name.
        model_max_length: the model's maximum length in ids, for `truncation=True`; None: unknown.
        padding_side, truncation_side: the sides that Hugging Face's call pads and truncates; None:
            the vocabulary's sides.
        roles: ids by role, such as {"pad": 0}, in addition to those of the vocabulary.
    """

    name: str
    model_max_length: int | None = None
    padding_side: Side | None = None
    truncation_side: Side = "right"
    roles: Mapping[str, int] = field(default_factory=dict)


class Tokenizer(TokenNames):
    """A vocabulary on the engine of a device; `warptok.load` makes it.

    Attributes:
        name: the built-in name, the path of the file or folder, or the name of the source object.
        device: "cpu", or the GPU that gets large batches, such as "cuda:0".
        padding_side, truncation_side: the sides that the call `tok(texts, ...)` pads and truncates.
        model_max_length: the model's maximum length in ids, for `tok(texts, truncation=True)`;
            None: no limit is known.
    """

    def __init__(self, vocabulary: Vocabulary, place: Place, defaults: Defaults) -> None:
        super().__init__(vocabulary, defaults.roles)
        self._place = place
        self._engine = place.engine
        self._cpu = place.cpu
        self.name = defaults.name
        self.device = place.device
        self.padding_side: Side = defaults.padding_side or vocabulary.padding_side
        self.truncation_side: Side = defaults.truncation_side
        self.model_max_length = defaults.model_max_length
        place.load(vocabulary)

    def __repr__(self) -> str:
        vocabulary = self._vocabulary
        place = self._place.describe(vocabulary)
        return f"<warptok.Tokenizer {self.name!r}: {vocabulary.kind}, {len(self)} ids, {place}>"

    def __copy__(self) -> Tokenizer:
        """Return a tokenizer with the same vocabulary and engine, and settings of its own."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _roles=dict(self._roles))
        return made

    def __deepcopy__(self, memo: object) -> Tokenizer:
        """Return a copy; vocabularies and engines do not change, so it shares them."""
        return copy(self)

    def __reduce__(self) -> str:
        """Refuse to be pickled, because an engine belongs to its process."""
        raise TypeError(f"{self!r} is not pickled: call warptok.load(...) in each process")

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of all data that determines ids, as in the service's answers."""
        return self._vocabulary.digest

    def __call__(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """Encode like Hugging Face's `AutoTokenizer` when called; see `encode_as_huggingface`."""
        return encode_as_huggingface(self, text, text_pair, **options)

    def encode(self, text: str | bytes, **options: Unpack[TextOptions]) -> list[int]:
        """Return the ids of one text.

        For long texts, `encode_batch([text]).ids` returns the same ids as an array.

        Args:
            text: a string, or UTF-8 bytes.
            options: see `TextOptions`.

        Raises:
            TypeError: the text is neither str nor bytes, or an option is unknown.
            InvalidRequest: the value of an option is wrong.
            RowRefused: the text cannot be encoded.
        """
        if not options and type(text) is str and self._cpu is not None:
            ids = self._cpu.list_short(self._vocabulary, text)
            if ids is not None:
                return ids
        return self._encode_one("encode", text, options).ids.tolist()  # type: ignore[no-any-return]

    def count(self, text: str | bytes, **options: Unpack[TextOptions]) -> int:
        """Return the number of ids of one text; arguments and errors are those of `encode`."""
        made = make_options("count", options)
        batch = one_text("count", text, options).with_options(made)
        counted = self._engine.count(self._vocabulary, batch)
        raise_refused(counted.errors)
        return int(counted.counts[0])

    def offsets(
        self, text: str | bytes, unit: Unit = "codepoints", **options: Unpack[TextOptions]
    ) -> NDArray[np.int64]:
        """Return the begin and end in the text of each id that `encode` returns, int64[T, 2].

        Begin and end tokens have (0, 0). An id of part of a character spans the whole character.

        Args:
            text: the text.
            unit: "codepoints" (of a Python string), "utf16" or "bytes".
            options: see `TextOptions`.

        Raises:
            TypeError, InvalidRequest, RowRefused: as `encode`.
        """
        choose("unit", unit, UNITS)
        encoded = self._encode_one("offsets", text, options, spans=True)
        assert encoded.spans is not None
        return convert_spans(encoded.spans, as_text(text, unit, options), unit)

    @overload
    def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: None = None,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        token_form: TokenForm = "text",
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> EncodedBatch: ...

    @overload
    def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: Padding,
        padding_side: Side | None = None,
        pad_id: int | None = None,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        token_form: TokenForm = "text",
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> PaddedBatch: ...

    def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: Padding | None = None,
        padding_side: Side | None = None,
        pad_id: int | None = None,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        token_form: TokenForm = "text",
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> EncodedBatch | PaddedBatch:
        """Return the ids of several texts.

        Args:
            texts: strings or bytes in any form of `warptok.inputs`: a list, an Arrow array, a
                column of pandas or polars, a NumPy array, a matrix uint8[B, L], a batch of
                `read_batches`, or joined bytes with `offsets`.
            offsets: integers[B + 1], where each text begins in the joined bytes.
            padding: None: ragged rows, an `EncodedBatch`; "longest": a `PaddedBatch`, a matrix with
                an attention mask; a number: the same, with this many columns at least.
            padding_side: "right" or "left"; None: the tokenizer's `padding_side`.
            pad_id: the id to pad with; None: `pad_token_id`.
            augmentation: random crops and letters of sequences: `Augmentation(seed=...)`, or its
                fields by name; None: no changes.
            return_offsets: the unit of `offset_mapping`, the begin and end of each id in its text;
                None: do not compute it.
            return_tokens: whether `tokens` contains the token of each id as a string.
            token_form: "text": " the", and "<0xE2>" for a byte that is not UTF-8 by itself; "file":
                as in tokenizer.json and `convert_ids_to_tokens`, such as "Ġthe".
            dtype: "int32", or "uint16" or "uint8" if all ids of the vocabulary fit; only without
                padding.
            errors: "raise": raise RowRefused for a refused text; "keep": return no ids for it, and
                list it in `errors`.
            options: see `BatchOptions`; each may be a list with one value per text.

        Raises:
            TypeError: texts have another form, or an option is unknown.
            InvalidRequest: a value is wrong, a text is null, or the vocabulary has no padding
                token and `pad_id` is None.
            RowRefused: a text cannot be encoded; the error contains its number.
        """
        choose("errors", errors, REFUSED)
        choose("token_form", token_form, TOKEN_FORMS)
        id_dtype = self._id_dtype(dtype)
        check_padding(padding, padding_side, pad_id, dtype, len(self))
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        if return_offsets is not None:
            choose("return_offsets", return_offsets, UNITS)
        spans = return_offsets is not None
        made = make_options("encode_batch", options, len(batch), spans=spans)
        batch = batch.with_options(made)
        batch.id_dtype = id_dtype
        batch = self._augment(batch, augmentation, return_offsets)
        begin = perf_counter()
        encoded = self._engine.encode(self._vocabulary, batch)
        kernel_time = perf_counter() - begin
        if errors == "raise":
            raise_refused(encoded.errors)
        form = token_form if return_tokens else None
        rows = self._describe(encoded, batch, return_offsets, form, dtype, kernel_time)
        if padding is None:
            return rows
        min_length = 0 if padding == "longest" else padding
        return rows.pad(min_length, padding_side=padding_side, pad_id=pad_id)

    def count_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        **options: Unpack[BatchOptions],
    ) -> NDArray[np.int64]:
        """Return the number of ids of each text, int64[B].

        Args:
            texts: as for `encode_batch`.
            offsets: as for `encode_batch`.
            options: see `BatchOptions`.

        Raises:
            TypeError, InvalidRequest, RowRefused: as `encode_batch`.
        """
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        made = make_options("count_batch", options, len(batch))
        counted = self._engine.count(self._vocabulary, batch.with_options(made))
        raise_refused(counted.errors)
        return counted.counts

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of one row of ids; bytes that are not UTF-8 become U+FFFD.

        Args:
            ids: the ids: a list, an array or a tensor.
            skip_special_tokens: whether special tokens are left out.

        Raises:
            RowRefused: an id is not in the vocabulary.
        """
        return self.decode_bytes(ids, skip_special_tokens=skip_special_tokens).decode(
            errors="replace"
        )

    def decode_bytes(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> bytes:
        """Return the bytes that one row of ids represents; see `decode`."""
        row = as_ids(ids)
        decoded = self._decode(row, np.array([0, len(row)]), skip_special_tokens)
        return decoded.data.tobytes()

    def decode_batch(self, rows: Any, *, skip_special_tokens: bool = False) -> list[str]:
        """Return the texts of several rows of ids, each as `decode` returns it.

        Args:
            rows: an `EncodedBatch`, a list of rows, a matrix [B, L], or an Arrow array of lists.
            skip_special_tokens: whether special tokens are left out.

        Raises:
            RowRefused: an id is not in the vocabulary; the error contains the number of the row.
        """
        ids, offsets = as_id_rows(rows)
        decoded = self._decode(ids, offsets, skip_special_tokens)
        data, places = decoded.data.tobytes(), decoded.offsets.tolist()
        return [data[begin:end].decode(errors="replace") for begin, end in pairwise(places)]

    def chunks(
        self,
        text: str | bytes,
        *,
        chunk_size: int = 512,
        chunk_overlap: int = 0,
        add_special_tokens: bool = True,
        special: Special = "match",
        offset_unit: Unit = "codepoints",
        return_texts: bool = False,
    ) -> TextChunks:
        """Cut one text into chunks of at most `chunk_size` ids, begin and end tokens included.

        Args:
            text: the text.
            chunk_size: the most ids of a chunk.
            chunk_overlap: the number of tokens that neighbouring chunks share.
            add_special_tokens: put the begin and end tokens around each chunk.
            special: as in `TextOptions`.
            offset_unit: the unit of `offset_mapping`, the begin and end of each chunk in the text.
            return_texts: whether `texts` contains the text of each chunk.

        Raises:
            InvalidRequest: `chunk_size` leaves no room for a token, or neighbouring chunks would
                share all tokens.
            RowRefused: the text cannot be encoded.
        """
        choose("offset_unit", offset_unit, UNITS)
        check_counts(chunk_size=(chunk_size, 1), chunk_overlap=(chunk_overlap, 0))
        added = AddedIds.of(self._vocabulary) if add_special_tokens else NO_ADDED_IDS
        try:
            layout = ChunkLayout.of(added, chunk_size, chunk_overlap)
        except ValueError as error:
            message = f"chunk_size {chunk_size}, chunk_overlap {chunk_overlap}: {error}"
            raise InvalidRequest(message) from error
        own: TextOptions = {"add_special_tokens": False, "special": special}
        encoded, kernel_time = self._encode_timed("chunks", text, own, spans=True)
        assert encoded.spans is not None
        cut = cut_chunks(layout, encoded.ids, encoded.spans)
        whole = as_text(text, "codepoints", {})
        texts = None
        if return_texts:
            places = convert_spans(cut.spans, whole, "codepoints").tolist()
            texts = [whole[begin:end] for begin, end in places]
        mapping = convert_spans(cut.spans, whole, offset_unit)
        return TextChunks(
            ids=cut.ids,
            offsets=cut.offsets,
            offset_mapping=mapping,
            starts=cut.starts,
            texts=texts,
            num_tokens=cut.num_tokens,
            engine=encoded.engine,
            kernel_time=kernel_time,
        )

    def windows(
        self,
        sequence: str | bytes,
        *,
        window: int = 512,
        stride: int = 256,
        circular: bool | None = None,
        junction: Junction | None = None,
        channel: ArrayLike | None = None,
        add_cls: bool = False,
        reverse_complement: bool = False,
        uppercase: bool = False,
    ) -> Windows:
        """Cut one sequence into overlapping windows of tokens, as input for genome models.

        Args:
            sequence: the sequence, such as a mitochondrial genome.
            window: the number of tokens in a window.
            stride: the number of tokens from the begin of one window to the begin of the next.
            circular: treat the sequence as a circle; None: the vocabulary's setting.
            junction: where to put the k-mers across the junction of a circle: "append", after the
                others, or "prepend", before them; None: the vocabulary's setting.
            channel: one finite value for each base, such as heteroplasmy from 0 to 1, which is cut
                into windows like the ids; None: no channel.
            add_cls: put the vocabulary's [CLS] before each window.
            reverse_complement: encode the reverse complement of the sequence.
            uppercase: convert a to z to upper case first.

        Returns:
            W windows of C columns: `input_ids` int32[W, C], `attention_mask` int8[W, C],
            `position_ids` int64[W, C] (bases), `channel` float32[W, C], `starts` int64[W] and
            `kernel_time`, the seconds that the engine took;
            `fields("het_values")` returns them as a model's arguments.

        Raises:
            InvalidRequest: a value is wrong, or the vocabulary has no padding token or no [CLS].
            RowRefused: the sequence cannot be encoded.
        """
        layout = self._layout(window, stride, circular, junction, add_cls)
        options: TextOptions = {
            "add_special_tokens": False,
            "reverse_complement": reverse_complement,
            "circular": layout.circular,
            "uppercase": uppercase,
        }
        encoded, kernel_time = self._encode_timed("windows", sequence, options, spans=True)
        assert encoded.spans is not None
        text = as_text(sequence, "codepoints", {})
        positions = token_positions(
            convert_spans(encoded.spans, text, "codepoints"),
            circular=layout.circular,
            reverse_complement=reverse_complement,
        )
        windows = layout.cut(encoded.ids, positions, as_channel(channel, len(text)))
        return replace(windows, kernel_time=kernel_time)

    def encode_to_device(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        dtype: IdType = "int32",
        add_special_tokens: bool = True,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
    ) -> DeviceBatch:
        """Encode several texts into the memory of the GPU; the ids are not copied to the host.

        `torch.from_dlpack(batch.ids)` makes a tensor without a copy. Special tokens in texts are
        matched. For padding, or for begin and end tokens, use
        `encode_batch(...).to_torch("cuda:0")`.

        Args:
            texts: as for `encode_batch`.
            offsets: as for `encode_batch`.
            dtype: as for `encode_batch`.
            add_special_tokens: must be False if the vocabulary has begin or end tokens.
            augmentation: as for `encode_batch`; the changes are made on the host.

        Raises:
            DeviceUnavailable: the tokenizer has no GPU, or its kernels cannot compute a text.
            InvalidRequest: a value is wrong.
            RowRefused: a text is not UTF-8.
        """
        vocabulary = self._vocabulary
        if add_special_tokens and (vocabulary.prefix or vocabulary.suffix):
            message = "begin and end tokens cannot be put around ids in GPU memory"
            hint = 'add_special_tokens=False, or encode_batch(texts).to_torch("cuda:0")'
            raise InvalidRequest(f"{message}: {hint}", where="add_special_tokens")
        batch = make_batch(texts, offsets)
        refuse_invalid_utf8(batch)
        batch = self._augment(batch, augmentation)
        return encode_to_device(self._place.gpu_engine(), vocabulary, batch, self._id_dtype(dtype))

    def windows_to_device(
        self,
        sequences: Any,
        *,
        offsets: ArrayLike | None = None,
        window: int = 512,
        stride: int = 256,
        circular: bool | None = None,
        channel: ArrayLike | None = None,
        add_cls: bool = False,
        reverse_complement: bool = False,
        uppercase: bool = False,
    ) -> DeviceWindows:
        """Compute windows of several sequences of characters or k-mers in the memory of the GPU.

        Args:
            sequences: as `texts` of `encode_batch`.
            offsets: as for `encode_batch`.
            window: as for `windows`.
            stride: as for `windows`.
            circular: as for `windows`.
            channel: one value for each byte of all sequences, joined; None: no channel.
            add_cls: as for `windows`.
            reverse_complement: as for `windows`.
            uppercase: as for `windows`.

        Returns:
            The arrays of `windows` on the GPU, and `rows` int64[B + 1] on the host, the index of
            the first window of each sequence.

        Raises:
            DeviceUnavailable: the tokenizer has no GPU, or its kernels cannot compute these
                windows.
            InvalidRequest: a value is wrong.
            RowRefused: a sequence cannot be encoded.
        """
        layout = self._layout(window, stride, circular, None, add_cls)
        options = EncodeOptions(
            add_special_tokens=False,
            reverse_complement=reverse_complement,
            circular=layout.circular,
            uppercase=uppercase,
        )
        batch = make_upper_case(make_batch(sequences, offsets).with_options(options))
        values = as_channel(channel, len(batch.data))
        engine = self._place.gpu_engine()
        made = windows_to_device(engine, self._vocabulary, batch, layout, values)
        raise_refused(made.errors)
        return made

    def _encode_one(
        self, call: str, text: str | bytes, options: TextOptions, *, spans: bool = False
    ) -> Encoded:
        """Encode one text; raise RowRefused if it is refused."""
        encoded, _ = self._encode_timed(call, text, options, spans=spans)
        return encoded

    def _encode_timed(
        self, call: str, text: str | bytes, options: TextOptions, *, spans: bool = False
    ) -> tuple[Encoded, float]:
        """Encode one text as `_encode_one` does; also return the seconds that the engine took."""
        made = make_options(call, options, spans=spans)
        batch = one_text(call, text, options).with_options(made)
        begin = perf_counter()
        encoded = self._engine.encode(self._vocabulary, batch)
        seconds = perf_counter() - begin
        raise_refused(encoded.errors)
        return encoded, seconds

    def _augment(
        self,
        batch: Batch,
        augmentation: Augmentation | Mapping[str, Any] | None,
        unit: Unit | None = None,
    ) -> Batch:
        """Return the batch with augmented rows.

        Raises:
            TypeError, InvalidRequest: as `make_augmentation`, or the vocabulary is for text and not
                for sequences.
        """
        changes = make_augmentation(augmentation, unit)
        if changes is not None and not self._vocabulary.supports_reverse_complement:
            message = "augmentation is not possible for a vocabulary of text"
            raise InvalidRequest(message, where="augmentation")
        return augment_rows(batch, changes)

    def _decode(
        self, ids: NDArray[np.int64], offsets: NDArray[np.int64], skip_special_tokens: bool
    ) -> Decoded:
        decoded = self._engine.decode(self._vocabulary, ids, offsets, skip_special_tokens)
        raise_refused(decoded.errors)
        return decoded

    def _id_dtype(self, dtype: IdType) -> type[np.integer[Any]]:
        id_dtype = ID_TYPES[choose("dtype", dtype, tuple(ID_TYPES))]
        if len(self) - 1 > np.iinfo(id_dtype).max:
            raise InvalidRequest(
                f"the {len(self)} ids of the vocabulary do not fit in {dtype}", where="dtype"
            )
        return id_dtype

    def _describe(
        self,
        encoded: Encoded,
        batch: Batch,
        unit: Unit | None,
        token_form: TokenForm | None,
        dtype: IdType,
        kernel_time: float,
    ) -> EncodedBatch:
        """Make an `EncodedBatch` from an engine's output."""
        show = self._vocabulary.show_token
        places = encoded.offsets.tolist()
        tokens = None
        if token_form is not None:
            strings = [show(token_id, token_form) for token_id in encoded.ids.tolist()]
            tokens = [strings[begin:end] for begin, end in pairwise(places)]
        return EncodedBatch(
            ids=encoded.ids.astype(ID_TYPES[dtype], copy=False),
            offsets=encoded.offsets,
            engine=encoded.engine,
            digest=self.digest,
            offset_mapping=None if unit is None else map_offsets(encoded, batch, unit),
            tokens=tokens,
            truncated=find_truncated(encoded),
            errors=encoded.errors,
            pad_id=self.pad_token_id,
            padding_side=self.padding_side,
            kernel_time=kernel_time,
        )

    def _layout(
        self,
        window: int,
        stride: int,
        circular: bool | None,
        junction: Junction | None,
        add_cls: bool,
    ) -> WindowLayout:
        check_counts(window=(window, 1), stride=(stride, 1))
        choose("junction", junction, JUNCTIONS)
        try:
            return make_layout(
                self._vocabulary,
                window=window,
                stride=stride,
                circular=circular,
                junction=junction,
                add_cls=add_cls,
            )
        except LayoutError as error:
            raise InvalidRequest(str(error), where=error.option) from error
