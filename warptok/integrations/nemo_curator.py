"""A replacement of NeMo Curator's `MegatronTokenizerWriter` that computes ids with warptok.

    from warptok.integrations.nemo_curator import MegatronTokenizerWriter

The files are the same. Curator names them and reports the results of a task; only the tokenizer and
the writing of ids are replaced. The stage reserves a whole GPU, or with `device="cpu"` some cores,
and encodes with one thread per core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from nemo_curator.backends.base import WorkerMetadata
from nemo_curator.stages.resources import Resources
from nemo_curator.stages.text.io.writer.megatron_tokenizer import (
    MegatronTokenizerWriter as OwnMegatronTokenizerWriter,
)
from numpy.typing import NDArray

from warptok.devices import open_place
from warptok.errors import InvalidRequest
from warptok.loading import load_on
from warptok.results import EncodedBatch
from warptok.tokenizer import Tokenizer


@dataclass
class MegatronTokenizerWriter(OwnMegatronTokenizerWriter):
    """Writes each DocumentBatch as .bin and .idx.

    It has the fields of Curator's `MegatronTokenizerWriter`, and these:

    Attributes:
        device: "cuda": encode on the reserved GPU; "cpu": encode on the reserved cores.
        resources: the resources that Curator reserves; None: a GPU, or one core with
            `device="cpu"`. Without a GPU, one thread encodes per reserved core, and at least one.
        tokenization_batch_size: the documents that are encoded at once.
    """

    name: str = "warptok_megatron_tokenizer_writer"
    tokenization_batch_size: int = 10_000
    device: str = "cuda"
    resources: Resources | None = field(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resources is None:
            self.resources = Resources(gpus=0.0 if self.device == "cpu" else 1.0)

    def setup(self, _worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the Hugging Face tokenizer as Curator does, and make a warptok tokenizer from it.

        Raises:
            TypeError, InvalidRequest: the tokenizer is not a fast one, or warptok does not know its
                rules.
            DeviceUnavailable: there is no GPU, or its kernels cannot compute the vocabulary.
        """
        super().setup(_worker_metadata)
        assert self.resources is not None
        num_threads = max(1, math.ceil(self.resources.cpus))
        self.tokenizer: Any = _BatchTokenizer.of(self.tokenizer, self.device, num_threads)

    def ray_stage_spec(self) -> dict[str, Any]:
        """Return Ray's options for a stage whose workers keep the state that `setup` has loaded."""
        return {**super().ray_stage_spec(), "is_actor_stage": True}

    def write_data(
        self,
        bin_file: BinaryIO,
        token_dtype: type[np.integer[Any]],
        eod_token_id: int,
        tokens_batch: EncodedBatch,
        sequence_lengths: list[int],
    ) -> None:
        """Write the ids of documents, with the end-of-text token after each if `append_eod` is set.

        Raises:
            InvalidRequest: an id does not fit the type that Curator chose by `vocab_size`.
        """
        ids, ends = tokens_batch.ids, tokens_batch.offsets[1:]
        most = max(int(ids.max(initial=0)), eod_token_id if self.append_eod else 0)
        if most > np.iinfo(token_dtype).max:
            raise InvalidRequest(
                f"{self.model_identifier}: the id {most} does not fit {np.dtype(token_dtype)}, "
                "which NeMo Curator takes for its vocab_size"
            )
        if self.append_eod:
            ids = np.insert(ids, ends, eod_token_id)
        bin_file.write(ids.astype(token_dtype).tobytes())
        sequence_lengths.extend((tokens_batch.num_tokens + self.append_eod).tolist())

    @staticmethod
    def _sequence_pointers(sequence_lengths: Sequence[int], token_size: int) -> NDArray[np.int64]:
        """Return where each document begins; Curator's function overflows at 2 GiB with NumPy 2."""
        sizes = np.asarray(sequence_lengths, np.int64) * token_size
        return np.cumsum(sizes) - sizes


class _Rows(NamedTuple):
    """The part of a `BatchEncoding` that Curator reads."""

    input_ids: EncodedBatch


class _BatchTokenizer(NamedTuple):
    """The part of a tokenizer that Curator's `process` uses.

    Attributes:
        tokenizer: computes the ids.
        vocab_size: the number of ids, by which Curator chooses the type of ids in the files.
        eos_token_id: the id of the end-of-text token; None if there is none.
    """

    tokenizer: Tokenizer
    vocab_size: int | None
    eos_token_id: int | None

    @classmethod
    def of(cls, own: Any, device: str, num_threads: int) -> _BatchTokenizer:
        """Load a tokenizer of transformers on a device."""
        tokenizer = load_on(open_place(device, num_threads), own, None, None, None)
        return cls(tokenizer, own.vocab_size, own.eos_token_id)

    def batch_encode_plus(self, texts: Sequence[str], **_: Any) -> _Rows:
        """Return the ids of texts without begin and end tokens."""
        return _Rows(self.tokenizer.encode_batch(list(texts), add_special_tokens=False))
