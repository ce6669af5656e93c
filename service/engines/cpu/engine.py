"""Defines the CPU engine, which calls a vocabulary's encoder for each group of equal options.

It adds begin and end tokens, truncates, and makes reverse complements. It depends on neither HTTP
nor a device.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Counted, Decoded, EngineStatus, Holding, Residency, WithoutDevice
from service.engines.cpu.bpe.long_text import PIECE_BYTES, LongTextEncoder
from service.engines.cpu.decode import decode_rows, decode_with_blanks, list_strings
from service.engines.cpu.dna.encoder import DnaEncoder
from service.engines.cpu.patterns.isolated_encoder import US_PER_BYTE, choose_isolated
from service.engines.cpu.selection import ChosenEncoder, choose_encoder, host_bytes
from service.engines.cpu.symbols.encoder import SymbolEncoder
from service.engines.cpu.text.encoder import TextEncoder
from service.engines.encoder import (
    BytesEncoder,
    OneStepEncoder,
    ReferenceEncoder,
    encode_parts,
    refuse_rows,
)
from service.runtime.memory_pool import MemoryPool
from vocabularies.batch.batch import (
    DEFAULT_OPTIONS,
    Batch,
    Encoded,
    EncodeOptions,
    RowError,
)
from vocabularies.batch.post_processing import (
    NO_ADDED_IDS,
    AddedIds,
    Content,
    post_process,
    post_processed_lengths,
)
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.batch.upper_case import make_upper_case
from vocabularies.model.tables import ASCII, TokenTable, token_table
from vocabularies.model.types import Bpe, Kmers, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import NO_REVERSE_COMPLEMENT
from vocabularies.sequences.strand import reverse_complement

NOT_CIRCULAR = RowError(
    "circular_not_possible",
    "only a vocabulary with a k-mer at every base can have circular sequences",
)


@dataclass(slots=True, eq=False)
class _Loaded:
    """A loaded vocabulary; running calls still use it after it was unloaded.

    Attributes:
        strings: the tokens as in the vocabulary's file, if ids are decoded to these strings; else
            None.
        used: the perf_counter time at which the last call began.
    """

    vocabulary: Vocabulary
    table: TokenTable
    added: AddedIds
    chosen: ChosenEncoder
    long_texts: LongTextEncoder
    residency: Residency
    strings: list[bytes] | None
    used: float = field(default_factory=perf_counter)


class CpuEngine(WithoutDevice):
    """An `service.engines.base.Engine` that computes with NumPy, C++ and libraries.

    Args:
        pattern_us_per_byte: the most microseconds of CPU time per byte for a vocabulary with
            unknown regular expressions, in addition to one second per call.
        num_threads: the most threads that encode a batch in C++; 0: one per usable core. The
            threads of the library tokenizers are limited for the whole process
            (`bpe.library_threads`).
    """

    name = "cpu"

    def __init__(self, pattern_us_per_byte: float = US_PER_BYTE, num_threads: int = 0) -> None:
        self.pattern_us_per_byte = pattern_us_per_byte
        self.num_threads = num_threads
        self.memory = MemoryPool()
        self._loaded: dict[str, _Loaded] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._fallbacks: Counter[str] = Counter()

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Load a vocabulary and compare its ids with the witness's; a second call changes nothing.

        Args:
            vocabulary: the vocabulary.
            permanent: ignored, as this engine does not evict vocabularies; see `engines.eviction`.

        Raises:
            VocabularyError: no encoder can compute this vocabulary.
        """
        return self._get_or_load(vocabulary).residency

    def _get_or_load(self, vocabulary: Vocabulary) -> _Loaded:
        digest = vocabulary.digest
        loaded = self._loaded.get(digest)
        if loaded is not None:
            loaded.used = perf_counter()
            return loaded
        with self._lock:
            lock = self._locks.setdefault(digest, threading.Lock())
        with lock:
            loaded = self._loaded.get(digest)
            if loaded is None:
                loaded = self._loaded[digest] = self._load(vocabulary)
        with self._lock:
            self._locks.pop(digest, None)
        return loaded

    def settle(self) -> None:
        """Do nothing, as this engine has no background work."""

    def _load(self, vocabulary: Vocabulary) -> _Loaded:
        table = token_table(vocabulary)
        if vocabulary.may_take_long:
            chosen = choose_isolated(vocabulary, table, self.pattern_us_per_byte)
        else:
            chosen = choose_encoder(vocabulary, table, self.num_threads)
        encoder = chosen.encoder
        engine = "reference" if encoder.name == ReferenceEncoder.name else "cpu"
        residency = Residency(engine, encoder.name, chosen.self_test, chosen.fallback_reason)
        if isinstance(encoder, DnaEncoder | TextEncoder):
            long_texts = LongTextEncoder(vocabulary, encoder.other, self.memory.take)
            encoder.encode_left = long_texts.encode
            if isinstance(encoder, DnaEncoder):
                encoder.count_left = self._count_fallbacks
        else:
            long_texts = LongTextEncoder(vocabulary, encoder, self.memory.take)
        return _Loaded(
            vocabulary=vocabulary,
            table=table,
            added=AddedIds.of(vocabulary),
            chosen=chosen,
            long_texts=long_texts,
            residency=residency,
            strings=list_strings(vocabulary) if vocabulary.decoder == "blanks" else None,
        )

    def _count_fallbacks(self, reasons: Iterable[str]) -> None:
        with self._lock:
            self._fallbacks.update(reasons)

    def status(self) -> EngineStatus:
        """Return the engine's name, and the number of batches that used a slower encoder."""
        with self._lock:
            return EngineStatus((self.name,), fallbacks=dict(self._fallbacks))

    def unload(self, digest: str) -> None:
        """Unload a vocabulary; calls that are using it still finish."""
        if (loaded := self._loaded.pop(digest, None)) is not None:
            loaded.chosen.close()

    def residency(self, digest: str) -> Residency | None:
        """Return the state of a vocabulary; None if it is not loaded."""
        loaded = self._loaded.get(digest)
        return None if loaded is None else loaded.residency

    def holdings(self) -> dict[str, Holding]:
        """Return the loaded vocabularies by digest."""
        return {
            digest: Holding(host_bytes(loaded.vocabulary, loaded.chosen.encoder), loaded.used)
            for digest, loaded in list(self._loaded.items())
        }

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate ordinary memory from the pool."""
        return self.memory.take(num_bytes)[:num_bytes]

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row, and load the vocabulary if needed; refuse rows that cannot be encoded.

        Raises:
            Abandoned: no request waits for the batch any more.
            ValueError: the vocabulary's ids do not fit the batch's `id_dtype`.
        """
        batch.check_id_dtype(len(vocabulary))
        loaded = self._get_or_load(vocabulary)
        if (short := _encode_short(loaded, batch)) is not None:
            return short
        batch = make_upper_case(batch)
        options = batch.options
        if not isinstance(options, EncodeOptions):
            groups = list(batch.groups())
            if len(groups) != 1:
                encoded = _encode_groups(loaded, batch, groups)
                encoded.engine = loaded.residency.engine
                return encoded
            options = groups[0][0]
            batch = batch.with_options(options)
        if (at_once := _encode_at_once(loaded, batch, options)) is not None:
            return at_once
        content = _encode_content(loaded, batch, options)
        encoded = post_process(content, loaded.added, options)
        encoded.engine = loaded.residency.engine
        return encoded

    def list_short(self, vocabulary: Vocabulary, text: str) -> list[int] | None:
        """Return the ids of a short text with begin and end tokens; None: call `encode`."""
        loaded = self._get_or_load(vocabulary)
        if not isinstance(loaded.chosen.encoder, TextEncoder):
            return None
        ids = loaded.chosen.encoder.list_short(text)
        if ids is not None and len(loaded.added):
            return [*vocabulary.prefix, *ids, *vocabulary.suffix]
        return ids

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would return for each row."""
        batch = make_upper_case(batch)
        loaded = self._get_or_load(vocabulary)
        engine = loaded.residency.engine
        counts = np.zeros(len(batch), np.int64)
        errors: dict[int, RowError] = {}
        for options, rows in batch.groups():
            without_spans = replace(options, spans=False) if options.spans else options
            content = _count_content(loaded, batch.select(rows, without_spans), without_spans)
            lengths, refused = post_processed_lengths(content, loaded.added, options)
            if len(rows) == len(batch):
                return Counted(lengths, refused, engine)
            counts[rows] = lengths
            errors |= {rows[row]: error for row, error in refused.items()}
        return Counted(counts, errors, engine)

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes."""
        loaded = self._get_or_load(vocabulary)
        if isinstance(vocabulary.model, Upstream):
            assert loaded.chosen.decode is not None
            return loaded.chosen.decode(ids, offsets, skip_special_tokens)
        if loaded.strings is not None:
            return decode_with_blanks(
                loaded.strings, loaded.table, ids, offsets, skip_special_tokens
            )
        return decode_rows(vocabulary, loaded.table, ids, offsets, skip_special_tokens)

    def close(self) -> None:
        """Unload all vocabularies, and release the memory."""
        for digest in list(self._loaded):
            self.unload(digest)
        self.memory.close()


def _one_step_encoder(loaded: _Loaded, options: EncodeOptions) -> OneStepEncoder | None:
    """Return the encoder if it is a `OneStepEncoder`; else None."""
    encoder = loaded.chosen.encoder
    if options.invalid_utf8 == "bytes":
        return None
    if options.reverse_complement and not loaded.vocabulary.supports_reverse_complement:
        return None
    if isinstance(encoder, DnaEncoder) and not (options.reverse_complement or options.circular):
        return encoder
    if isinstance(encoder, SymbolEncoder) and (encoder.kmers or not options.circular):
        return encoder
    return None


def _encode_short(loaded: _Loaded, batch: Batch) -> Encoded | None:
    """Encode a batch of one short text with usual options fast; None for any other batch."""
    encoder, options = loaded.chosen.encoder, batch.options
    if not isinstance(encoder, TextEncoder) or not _is_usual(options):
        return None
    if (text := batch.only_text) is None or (ids := encoder.encode_short(text)) is None:
        return None
    offsets = np.array((0, len(ids)), np.int64)
    if options.add_special_tokens and len(loaded.added):
        return post_process(Content(ids, offsets), loaded.added, options)
    return Encoded(ids, offsets)


def _is_usual(options: EncodeOptions | Sequence[EncodeOptions]) -> TypeGuard[EncodeOptions]:
    """Return whether texts are encoded unchanged, with or without begin and end tokens."""
    return options is DEFAULT_OPTIONS or (
        isinstance(options, EncodeOptions)
        and options.special == "match"
        and options.invalid_utf8 == "refuse"
        and options.max_length is None
        and not (
            options.spans or options.uppercase or options.reverse_complement or options.circular
        )
    )


def _encode_at_once(loaded: _Loaded, batch: Batch, options: EncodeOptions) -> Encoded | None:
    """Encode rows with begin and end tokens in one step; None if this takes several steps."""
    encoder = _one_step_encoder(loaded, options)
    if encoder is None or options.max_length is not None:
        return None
    added = loaded.added if options.add_special_tokens else NO_ADDED_IDS
    return encoder.encode_with_added(batch.with_options(options), options, added)


def _count_content(loaded: _Loaded, batch: Batch, options: EncodeOptions) -> Content:
    """Encode rows without begin and end tokens; may return offsets without the ids."""
    encoder = _one_step_encoder(loaded, options)
    content = None if encoder is None else encoder.count(batch, options)
    return _encode_content(loaded, batch, options) if content is None else content


def _encode_content(loaded: _Loaded, batch: Batch, options: EncodeOptions) -> Content:
    """Encode rows without begin and end tokens; all rows have these options."""
    if options.reverse_complement:
        encoder = _one_step_encoder(loaded, options)
        if encoder is not None:
            encoded = encoder.encode_with_added(batch, options, NO_ADDED_IDS)
            if encoded is not None:
                return Content(encoded.ids, encoded.offsets, encoded.spans)
        return _encode_other_strand(loaded, batch, options)
    return _encode_own_strand(loaded, batch, options)


def _encode_own_strand(loaded: _Loaded, batch: Batch, options: EncodeOptions) -> Content:
    if options.circular and not isinstance(loaded.vocabulary.model, Kmers):
        return _refuse_all(batch, NOT_CIRCULAR)
    if options.invalid_utf8 == "bytes":
        return _encode_with_invalid_rows(loaded, batch, options)
    encoder = loaded.chosen.encoder
    takes_long_rows = isinstance(encoder, DnaEncoder | SymbolEncoder | TextEncoder)
    if not takes_long_rows and _longest_row(batch) > PIECE_BYTES:
        return loaded.long_texts.encode(batch, options)
    return encoder.encode(batch, options)


def _encode_with_invalid_rows(loaded: _Loaded, batch: Batch, options: EncodeOptions) -> Content:
    """Encode rows of which some may not be UTF-8, from their bytes."""
    options = replace(options, invalid_utf8="refuse")
    encode = partial(_encode_own_strand, loaded)
    if not isinstance(loaded.vocabulary.model, Bpe):  # Characters that are bytes have them all.
        return encode(batch, options)
    _, invalid_rows = batch.texts()
    rows = np.array(sorted(invalid_rows), np.int64)
    encode_invalid = BytesEncoder(loaded.vocabulary, batch.should_continue).encode
    return encode_parts(batch, options, [(rows, encode_invalid)], encode)


def _longest_row(batch: Batch) -> int:
    """Return the length of the longest row, in bytes, or in characters if the rows are strings."""
    if batch.has_texts:
        texts, _ = batch.texts()
        return max(map(len, texts), default=0)
    return int(np.diff(batch.offsets).max(initial=0))


def _refuse_all(batch: Batch, error: RowError) -> Content:
    """Refuse all rows for one reason; for a row that is not UTF-8, this is the reason instead."""
    _, invalid_rows = batch.texts()
    errors = dict.fromkeys(range(len(batch)), error) | invalid_rows
    return Content(np.zeros(0, np.int32), np.zeros(len(batch) + 1, np.int64), None, errors)


def _encode_other_strand(loaded: _Loaded, batch: Batch, options: EncodeOptions) -> Content:
    """Encode the reverse complements of rows; spans and errors refer to the original rows."""
    if not loaded.vocabulary.supports_reverse_complement:
        return _refuse_all(batch, NO_REVERSE_COMPLEMENT)
    data, offsets = batch.data, batch.offsets
    errors = _find_non_ascii_rows(batch)
    strand = Batch(data=reverse_complement(data, offsets), offsets=offsets, options=options)
    if errors:
        kept = [b"" if row in errors else strand.row_bytes(row) for row in range(len(batch))]
        strand = Batch.from_bytes(kept, options)
    content = _encode_own_strand(loaded, strand, replace(options, reverse_complement=False))
    sizes = np.diff(offsets)
    if content.spans is not None:
        content.spans = np.repeat(sizes, np.diff(content.offsets))[:, None] - content.spans[:, ::-1]
    for row, error in content.errors.items():
        word, _, byte = error.where.partition(" ")
        if word == "byte":
            errors.setdefault(row, replace(error, where=f"byte {sizes[row] - 1 - int(byte)}"))
        else:
            errors.setdefault(row, error)
    content.errors = {}
    return refuse_rows(content, errors) if errors else content


def _find_non_ascii_rows(batch: Batch) -> dict[int, RowError]:
    """Return errors for rows with non-ASCII bytes; invalid UTF-8 has an error of its own."""
    data, offsets = batch.data, batch.offsets
    places = np.flatnonzero(data >= ASCII)
    if not len(places):
        return {}
    rows, first = np.unique(np.searchsorted(offsets, places, side="right") - 1, return_index=True)
    errors = {}
    for row, place in zip(rows.tolist(), places[first].tolist(), strict=True):
        text = batch.row_bytes(row)
        try:
            # The first non-ASCII byte begins a character, and every character before it is a byte.
            character = text.decode()[place - offsets[row]]
            message = f"{character!r} is not ASCII, so the sequence has no reverse complement"
            errors[row] = RowError("not_a_sequence", message, f"byte {place - offsets[row]}")
        except UnicodeDecodeError as error:
            where = f"byte {error.start}"
            errors[row] = RowError("not_utf8", f"the text is not UTF-8: {error.reason}", where)
    return errors


def _encode_groups(
    loaded: _Loaded, batch: Batch, groups: list[tuple[EncodeOptions, Sequence[int]]]
) -> Encoded:
    """Encode each group of rows with equal options, and join the results in row order."""
    parts = []
    counts = np.zeros(len(batch), np.int64)
    own_sizes = np.zeros(len(batch), np.int64)
    for options, numbers in groups:
        content = _encode_content(loaded, batch.select(numbers, options), options)
        part = post_process(content, loaded.added, options)
        rows = np.asarray(numbers, np.int64)
        counts[rows] = np.diff(part.offsets)
        own_sizes[rows] = np.diff(content.offsets)
        parts.append((rows, part))
    joined = Encoded(np.empty(int(counts.sum()), np.int32), offsets_from_lengths(counts))
    if any(part.spans is not None for _, part in parts):
        joined.spans = np.zeros((len(joined.ids), 2), np.int64)
    if any(part.kept is not None for _, part in parts):
        joined.num_tokens = counts.copy()
        joined.kept = np.stack([np.zeros_like(counts), own_sizes], axis=1)
    for rows, part in parts:
        _copy_rows(joined, rows, part)
    return joined


def _copy_rows(joined: Encoded, rows: NDArray[np.int64], part: Encoded) -> None:
    """Copy the result of a part to the rows int64[R] of the whole batch."""
    places = ragged_indices(joined.offsets[rows], np.diff(part.offsets))
    joined.ids[places] = part.ids
    if joined.spans is not None and part.spans is not None:
        joined.spans[places] = part.spans
    if part.kept is not None and part.num_tokens is not None:
        assert joined.kept is not None
        assert joined.num_tokens is not None
        joined.kept[rows] = part.kept
        joined.num_tokens[rows] = part.num_tokens
    joined.errors |= {int(rows[row]): error for row, error in part.errors.items()}
