"""The GPU engine: a batch through the stages, all on one screen.

    pack          texts joined in pinned host memory, with what each row asks for
    take in       to the device, hard bits where texts begin, rows that are not UTF-8 noted
    special       hard bits around special tokens
    pretokenize   a start bit for every pretoken
    cut           start bits inside pretokens, at borders of their own encoding
    look up       the id of every piece that is a token; lists of the others
    merge         the ids of the others
    compact       ids one after another, and where each row's begin
    frame         begin and end tokens, truncation, spans
    answer        to host memory

Computes ids and nothing else: self-tests, fallbacks and routing are the service's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.batches import NO_BYTE, RowOptions, row_errors, row_options
from gpu.contents import first_kernels, launch_content, rare_kernels
from gpu.decoding import decode_rows
from gpu.device import Device
from gpu.families import frame_kernels
from gpu.launches import (
    STATUS,
    DeviceFault,
    checked,
    fetch,
    launch,
    pack,
    pack_rows,
    status_of,
)
from gpu.memory import Workspace
from gpu.prepared import prepare
from gpu.residents import Resident, Residents
from gpu.small import CLUSTER_BYTES, ONE_BLOCK_BYTES, launch_fused, size_of
from gpu.tables import NotCovered
from gpu.workspaces import Workspaces
from vocabularies.batch import Batch, Encoded, RowError
from vocabularies.framing import offsets_of, ragged
from vocabularies.vocabulary import Vocabulary

__all__ = ["DeviceFault", "GpuEngine", "NotCovered"]

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class GpuEngine:
    """Encodes and decodes batches on one device; every method may be called from several threads.

    Args:
        device: the device.
        workspace_bytes: device memory for batches in flight.
        vocabulary_bytes: device memory for vocabularies.

    Attributes:
        fused_bytes: text of the largest batch whose stages are one launch.
    """

    def __init__(
        self, device: Device, workspace_bytes: int, vocabulary_bytes: int | None = None
    ) -> None:
        self.device, info = device, device.info
        self.processors = info.processors
        self.fused_bytes = CLUSTER_BYTES if info.has_clusters else ONE_BLOCK_BYTES
        self.workspaces = Workspaces(device, workspace_bytes)
        self.residents = Residents(device, vocabulary_bytes or workspace_bytes, prepare)

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> int:
        """Put a vocabulary on the device, pinned if it is never to make room for another.

        Returns:
            Its bytes there.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit.
        """
        return self.residents.load(vocabulary, pinned)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""
        self.residents.unload(digest)

    def is_resident(self, digest: str) -> bool:
        """Whether a vocabulary is on the device now."""
        return digest in self.residents

    def close(self) -> None:
        """Give all memory back."""
        self.residents.close()
        self.workspaces.close()

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row; a row that cannot be encoded is refused alone.

        Raises:
            NotCovered: the kernels cannot compute this vocabulary, or what a row asks for.
            OutOfMemory: the batch does not fit.
            DeviceFault: a kernel found itself wrong.
        """
        with (
            self.residents.using(vocabulary) as resident,
            self.workspaces.lend(len(batch.data), len(batch), resident.family.layout) as workspace,
        ):
            options = row_options(vocabulary, batch, resident.family)
            call = _Call(self.processors, vocabulary, workspace, resident, batch, options)
            if workspace.is_small and options.spans is None:
                fused = resident.is_fused and size_of(batch) <= self.fused_bytes
                return call.encode_small(fused)
            return call.encode()

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """int64[B]: how many ids `encode` would give each row; and the refused rows."""
        with (
            self.residents.using(vocabulary) as resident,
            self.workspaces.lend(len(batch.data), len(batch), resident.family.layout) as workspace,
        ):
            options = row_options(vocabulary, batch, resident.family)
            call = _Call(self.processors, vocabulary, workspace, resident, batch, options)
            return call.count()

    def encode_ids(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s
    ) -> tuple[NDArray[np.int32], Int64s]:
        """int32[T] and int64[B + 1]: ids of UTF-8 rows, special tokens matched, nothing added.

        What `encode` does without options and errors, for bulk: the bytes are taken as they are.
        """
        with (
            self.residents.using(vocabulary) as resident,
            self.workspaces.lend(len(data), len(offsets) - 1, resident.family.layout) as workspace,
        ):
            pack_rows(workspace, resident, data, offsets, self.processors, staged=True)
            launch_content(workspace, resident, self.processors)
            num_ids = int(status_of(workspace)[STATUS["NUM_IDS"]])
            ids = fetch(workspace, "ids", np.int32, num_ids)
            return ids, fetch(workspace, "id_offsets", np.int64, len(offsets))

    def decode(
        self, vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[Bytes, Int64s, dict[int, RowError]]:
        """The bytes uint8[N], int64[B + 1] of ids int64[T] in rows int64[B + 1], and the errors."""
        with self.residents.using(vocabulary) as resident:
            return decode_rows(
                self.workspaces,
                resident,
                len(vocabulary),
                ids,
                offsets,
                skip_special_tokens,
                self.processors,
            )


class _Call:
    """One batch in a workspace of its own."""

    def __init__(
        self,
        processors: int,
        vocabulary: Vocabulary,
        workspace: Workspace,
        resident: Resident,
        batch: Batch,
        options: RowOptions,
    ) -> None:
        self.processors, self.vocabulary, self.workspace = processors, vocabulary, workspace
        self.resident, self.batch, self.options = resident, batch, options
        self.family = resident.family
        takes_bytes = resident.fields.get("letters_are_bytes")
        self.validate = not (batch.has_texts or takes_bytes)
        self.framed = options.framed or options.spans is not None

    def pack(self) -> None:
        """The batch to the device."""
        pack(self.workspace, self.resident, self.batch, self.options, self.processors)

    def launch(self, kernels: tuple[str, ...]) -> None:
        """Queue kernels."""
        launch(self.workspace, kernels, self.processors)

    def launch_content(self, *, count_only: bool = False) -> None:
        """Queue what makes ids of the text."""
        launch_content(
            self.workspace,
            self.resident,
            self.processors,
            validate=self.validate,
            count_only=count_only,
            turned=self.options.turned,
            with_spans=self.options.spans is not None,
        )

    def count(self) -> tuple[Int64s, dict[int, RowError]]:
        """Lengths of the rows' answers, and the refused rows."""
        self.pack()
        self.launch_content(count_only=True)
        self.launch(frame_kernels(self.family, spans=False, count_only=True))
        status_of(self.workspace)
        offsets = fetch(self.workspace, "framed_offsets", np.int64, len(self.batch) + 1)
        return np.diff(offsets), self.errors()

    def encode(self) -> Encoded:
        """All stages, the answer fetched from the device."""
        self.pack()
        with_spans = self.options.spans is not None
        self.launch_content()
        if with_spans:
            self.workspace.reserve("spans", 16 * max(1, self.most_ids()))
        if self.framed:
            self.launch(frame_kernels(self.family, spans=with_spans))
        status, errors = status_of(self.workspace), self.errors()
        if errors and not self.framed:
            # Takes the refused rows' ids away.
            self.launch(frame_kernels(self.family, spans=False))
            status, self.framed = status_of(self.workspace), True
        total = int(status[STATUS["NUM_FRAMED" if self.framed else "NUM_IDS"]])
        names = ("framed_ids", "framed_offsets") if self.framed else ("ids", "id_offsets")
        was_cut = bool(status[STATUS["CUT"]])
        ids = fetch(self.workspace, names[0], np.int32, total)
        offsets = fetch(self.workspace, names[1], np.int64, len(self.batch) + 1)
        encoded = Encoded(ids, offsets, errors=errors, engine="gpu")
        if self.options.spans is not None:
            spans = fetch(self.workspace, "spans", np.int64, 2 * total).reshape(-1, 2)
            if not self.options.spans.all():
                spans[np.repeat(~self.options.spans, np.diff(offsets))] = 0
            encoded.spans = spans
        if was_cut:
            self.add_cuts(encoded)
        return encoded

    def encode_small(self, fused: bool) -> Encoded:
        """All stages in one launch or in a recording, the answer in pinned memory at the end."""
        workspace, rows = self.workspace, len(self.batch)
        workspace.answer_in(self.framed)
        if not (fused and launch_fused(workspace, self.resident, self.batch, self.options)):
            self.pack()
            self.launch_small()
        status = checked(workspace)
        offsets = workspace.offsets[: rows + 1].copy()
        encoded = Encoded(workspace.ids[: offsets[-1]].copy(), offsets, engine="gpu")
        if status[STATUS["CUT"]]:
            self.add_cuts(encoded)
        if status[STATUS["NOT_UTF8"]] or self.options.may_refuse:
            encoded.errors = self.errors()
            if encoded.errors and not self.framed:
                _drop_rows(encoded)
        return encoded

    def launch_small(self) -> None:
        """All stages, as often as need be, the answer in pinned memory at the end."""
        workspace = self.workspace
        frames = frame_kernels(self.family, spans=False) if self.framed else ()
        first = first_kernels(self.resident, validate=self.validate, turned=self.options.turned)
        workspace.status[STATUS["NOT_UTF8"]] = 0
        self.launch((*first, *frames, "put_out"))
        workspace.stream.synchronize()
        rare = int(workspace.status[STATUS["RARE"]]) if self.family.plain else 0
        if rare:
            others = rare_kernels(workspace, self.resident, rare, validate=self.validate)
            self.launch((*others, *frames, "put_out"))
            workspace.stream.synchronize()

    def most_ids(self) -> int:
        """Ids of the answer at most, begin and end tokens included; waits for the count."""
        added = len(self.vocabulary.prefix) + len(self.vocabulary.suffix)
        num_ids = int(status_of(self.workspace)[STATUS["NUM_IDS"]])
        pieces = num_ids // (self.resident.fields.get("piece_ids") or NO_BYTE) + len(self.batch)
        return num_ids + added * pieces

    def add_cuts(self, encoded: Encoded) -> None:
        """What truncation left of each row."""
        rows = len(self.batch)
        encoded.num_tokens = fetch(self.workspace, "num_tokens", np.int64, rows)
        encoded.kept = fetch(self.workspace, "kept", np.int64, 2 * rows).reshape(-1, 2)

    def errors(self) -> dict[int, RowError]:
        """The refused rows; asks the device only where a row could have been refused."""
        rows = len(self.batch)
        bad = refused = np.full(rows, NO_BYTE, np.uint32)
        if not self.batch.has_texts:
            bad = fetch(self.workspace, "row_errors", np.uint32, rows)
        if self.options.refuses or self.family.turns_rows:
            refused = fetch(self.workspace, "row_refused", np.uint32, rows)
        return row_errors(self.vocabulary, self.batch, self.options, bad, refused)


def _drop_rows(encoded: Encoded) -> None:
    """Take the ids of refused rows out of an answer."""
    sizes = np.diff(encoded.offsets)
    begins = encoded.offsets[:-1].copy()
    sizes[list(encoded.errors)] = 0
    encoded.ids = encoded.ids[ragged(begins, sizes)]
    encoded.offsets = offsets_of(sizes)
