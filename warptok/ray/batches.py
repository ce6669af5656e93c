"""Encodes the Arrow tables of Ray Data without making Python strings of the texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import ray

from warptok.devices import open_cpu, open_place
from warptok.errors import InvalidRequest
from warptok.loading import load_on
from warptok.options import BatchOptions, IdType, Refused
from warptok.results import import_library

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED = "refused"


class TokenizeBatch:
    """A class for `ray.data.Dataset.map_batches` that replaces a column of texts by their ids.

        dataset.map_batches(
            warptok.ray.TokenizeBatch,
            fn_constructor_kwargs={"vocabulary": "gpt2"},
            batch_format="pyarrow",
            batch_size=4096,
            num_gpus=1,
            compute=ray.data.ActorPoolStrategy(size=2),
        )

    Each actor has one engine, which uses the GPU that Ray assigns to it, or one thread per core.

    Args:
        vocabulary: a source as for `warptok.load`.
        column: the column of texts; its texts are strings or bytes.
        output: the name of the column of ids, a large_list, which is added as the last column.
        keeps_text: whether the column of texts stays in the table.
        device: as for `warptok.load`; "auto" is the CPU in an actor to which Ray assigned no GPU.
        pretokenizer, special_tokens, if_digest: as for `warptok.load`.
        dtype: "int32", or "uint16" or "uint8" where all ids fit.
        errors: "raise": a refused text fails the job; "keep": its ids are null, and the column
            `refused` contains the reason.
        options: see `warptok.options.BatchOptions`.

    Raises:
        UnknownVocabulary, InvalidRequest, DigestDiffers, DeviceUnavailable, OSError: as
            `warptok.load`.
    """

    def __init__(
        self,
        vocabulary: Any,
        *,
        column: str = "text",
        output: str = "input_ids",
        keeps_text: bool = False,
        device: str = "auto",
        pretokenizer: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        if_digest: str | None = None,
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> None:
        if column == output and keeps_text:
            raise InvalidRequest(
                "output must not be the name of the column of texts", where="output"
            )
        num_cpus, num_gpus = _find_resources()
        if device == "cpu" or (device == "auto" and num_gpus == 0):
            place = open_cpu(num_cpus)
        else:
            place = open_place(device)
        self.tokenizer = load_on(place, vocabulary, pretokenizer, special_tokens, if_digest)
        self._column, self._output, self._keeps_text = column, output, keeps_text
        self._dtype: IdType = dtype
        self._errors: Refused = errors
        self._options = options

    def __call__(self, table: pa.Table) -> pa.Table:
        """Encode a table of texts, and return it with the column of ids.

        Raises:
            InvalidRequest: a text is null, an option is wrong, or the table already has a column
                with the name of the ids or the reasons.
            RowRefused: a text cannot be encoded.
        """
        encoded = self.tokenizer.encode_batch(
            table.column(self._column), dtype=self._dtype, errors=self._errors, **self._options
        )
        if not self._keeps_text:
            table = table.drop_columns([self._column])
        for name in (self._output, REFUSED) if self._errors == "keep" else (self._output,):
            if name in table.column_names:
                raise InvalidRequest(f"the table already has a column {name}", where="output")
        table = table.append_column(self._output, encoded.to_arrow())
        if self._errors == "keep":
            pa = import_library("pyarrow", "TokenizeBatch")
            reasons = {row: f"{error.code}: {error}" for row, error in encoded.errors.items()}
            texts = [reasons.get(row) for row in range(len(encoded))]
            table = table.append_column(REFUSED, pa.array(texts, pa.string()))
        return table


def _find_resources() -> tuple[int, float]:
    """Return the number of cores, at least 1, and of GPUs of this actor; (0, 1) outside of Ray."""
    if not ray.is_initialized():
        return 0, 1
    assigned = ray.get_runtime_context().get_assigned_resources()
    return max(1, math.ceil(assigned.get("CPU", 0))), assigned.get("GPU", 0)
