"""A replacement of datatrove's `DocumentTokenizer` that computes ids with warptok.

    from warptok.integrations.datatrove import DocumentTokenizer

The files have the same bytes as datatrove's. datatrove loads the tokenizer, shuffles, and writes
metadata; its executors and `DocumentTokenizerMerger` accept this step in place of the original. The
threads of the process, or a GPU, encode a batch of documents, which is written as one array instead
of a list of Python integers for each document.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from datatrove.data import DocumentsPipeline
from datatrove.pipeline.tokens import DocumentTokenizer as OwnDocumentTokenizer
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from datatrove.utils.batching import batched
from numpy.typing import NDArray

from warptok.devices import open_place
from warptok.errors import InvalidRequest
from warptok.loading import load_on
from warptok.options import Unit
from warptok.results import EncodedBatch
from warptok.tokenizer import Tokenizer


class DocumentTokenizer(OwnDocumentTokenizer):
    """Tokenizes the documents of a pipeline, and writes .ds, .ds.index, .ds.metadata and .ds.loss.

    Args:
        arguments: those of datatrove's `DocumentTokenizer`, in its order.
        device: as for `warptok.load`: "auto", "cpu", "cuda" or "cuda:1".
        num_threads: the threads that encode in each process without a GPU; 0: one per usable core.
        options: keyword arguments of datatrove's `DocumentTokenizer`.

    Raises:
        InvalidRequest: raised by the run: the tokenizer pads or truncates, or warptok cannot read
            it.
    """

    def __init__(
        self, *arguments: Any, device: str = "auto", num_threads: int = 1, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.device = device
        self.num_threads = num_threads

    def write_unshuffled(self, data: DocumentsPipeline, filename: str) -> TokenizedFile:
        """Tokenize documents in batches, and write their ids to a file in order."""
        tokenizer = self._load()
        is_shuffled = self.shuffle_documents or self.shuffle_chunk_size
        file = TokenizedFile(
            self.local_working_dir
            if is_shuffled and self.local_working_dir
            else self.output_folder,
            filename,
            save_index=self.save_index or is_shuffled,
            save_loss_metadata=self.save_loss_metadata,
            upload_block_size=self.upload_block_size,
            tokenizer_name_or_path=self.tokenizer_name_or_path,
            save_final_metadata=self.save_final_metadata,
            token_size=self.token_size,
        )
        for documents in batched(data, self.batch_size):
            with self.track_time(unit="batch"):
                self._write(tokenizer, documents, file)
        file.close()
        return file

    def _load(self) -> Tokenizer:
        """Load the same tokenizer as datatrove, with its end-of-text token."""
        if self.tokenizer.padding is not None or self.tokenizer.truncation is not None:
            raise InvalidRequest(
                f"{self.tokenizer_name_or_path} pads or truncates, and datatrove would write that; "
                "take both out of its tokenizer.json"
            )
        return _load(self.tokenizer.to_str(), self.device, self.num_threads)

    def _write(self, tokenizer: Tokenizer, documents: list[Any], file: TokenizedFile) -> None:
        texts = [document.text for document in documents]
        unit: Unit | None = "codepoints" if self.save_loss_metadata else None
        encoded = tokenizer.encode_batch(texts, return_offsets=unit)
        ids, ends = encoded.ids, encoded.offsets[1:]
        if self.save_loss_metadata:
            ids, ends, loss = self._mask(documents, encoded)
            file.write_loss_bytes(loss.tobytes())
        if self.token_size == 2 and len(ids) and ids.max() > np.iinfo(np.uint16).max:
            raise InvalidRequest(
                f"{self.tokenizer_name_or_path}: the id {ids.max()} does not fit uint16, which "
                "datatrove takes for its vocabulary"
            )
        dtype = "<u2" if self.token_size == 2 else "<u4"
        file.write_bytes(ids.astype(dtype).tobytes(), ends.tolist())
        for length in np.diff(ends, prepend=0).tolist():
            self.stat_update("tokens", value=length)

    def _mask(
        self, documents: list[Any], encoded: EncodedBatch
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64], NDArray[np.bool_]]:
        """Return ids and ends without the trailing parts that carry no loss, and the loss mask."""
        assert encoded.offset_mapping is not None
        masks = []
        is_kept = np.ones(len(encoded.ids), np.bool_)
        for row, document in enumerate(documents):
            begin, end = encoded.offsets[row : row + 2]
            one = _Encoding(encoded.ids[begin:end], encoded.offset_mapping[begin:end])
            mask = self.get_loss_values(document, one)
            masks.append(mask.astype(np.bool_))
            is_kept[begin + len(mask) : end] = False
        lengths = [len(mask) for mask in masks]
        return encoded.ids[is_kept], np.cumsum(lengths), np.concatenate(masks)


class _Encoding(NamedTuple):
    """The part of an `Encoding` that datatrove reads to make a mask.

    Attributes:
        ids: the ids of a document.
        places: int64[T, 2], the begin and the end of each id in the text.
    """

    ids: NDArray[np.integer[Any]]
    places: NDArray[np.int64]

    def char_to_token(self, place: int) -> int | None:
        """Return the number of the id that covers a character; None: no id covers it."""
        found = np.flatnonzero((self.places[:, 0] <= place) & (place < self.places[:, 1]))
        return int(found[0]) if len(found) else None


@cache
def _load(tokenizer_json: str, device: str, num_threads: int) -> Tokenizer:
    """Load a tokenizer once per process; the ranks that run there one after another share it."""
    from tokenizers import Tokenizer as HuggingFaceTokenizer

    source = HuggingFaceTokenizer.from_str(tokenizer_json)
    return load_on(open_place(device, num_threads), source, None, None, None)
