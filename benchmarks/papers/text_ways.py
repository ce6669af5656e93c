"""The ways from GPT-2 text to ids that the papers of text compare, and the kernels of ours.

Ids of every way but the papers' own kernels are compared with Hugging Face's, those of the kernels
with Hugging Face's without the pattern.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.kernels.block_merge import BlockMerges
from benchmarks.papers.kernels.merges_alone import Ids, MergesAlone, MergeTable, with_pattern
from benchmarks.papers.session import Differs, Session
from benchmarks.support.timing import Run, clocked
from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.builtin import load

WITHOUT_FRAME = EncodeOptions(add_special_tokens=False)
HUGGING_FACE, TIKTOKEN = "HF tokenizers", "tiktoken"
OURS_CPU, OURS_GPU, OURS_KERNELS = "warptok CPU", "warptok GPU", "warptok GPU, kernels"
Encode = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class TextWay:
    """A way to encode texts on the host.

    Attributes:
        encode: encodes texts.
        ids: makes rows of ids of what `encode` returns.
    """

    encode: Encode
    ids: Callable[[Any], list[Ids]]


class TextWays:
    """GPT-2 by each library that is installed, by our engines, and by merges alone."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.vocabulary = load("gpt2")
        self.tokenizer = with_pattern(self.vocabulary)

    @cached_property
    def merges_alone(self) -> MergesAlone:
        """Hugging Face's merges without the pattern."""
        return MergesAlone(self.vocabulary)

    @cached_property
    def kernels(self) -> BlockMerges:
        """The papers' kernels on the GPU."""
        return BlockMerges(MergeTable.of(self.vocabulary))

    @cached_property
    def ways(self) -> dict[str, TextWay]:
        """The ways that this machine has, by name."""
        ways = {HUGGING_FACE: TextWay(self._hugging_face, lambda rows: [row.ids for row in rows])}
        if (encoding := tiktoken_encoding(self.session.data)) is not None:
            ways[TIKTOKEN] = TextWay(_tiktoken(encoding), lambda rows: rows)
        else:
            self.session.leave_out("tiktoken is not installed, or its rank file is not there")
        ways[OURS_CPU] = TextWay(self._engine(self._cpu), _rows_of)
        if self.session.gpu is not None:
            ways[OURS_GPU] = TextWay(self._engine(self.session.gpu.engine), _rows_of)
        return ways

    def prove(self, texts: Sequence[str]) -> list[Ids]:
        """Compare all ways on texts, and return the ids.

        Raises:
            Differs: a way has other ids than Hugging Face.
        """
        expected = self.ways[HUGGING_FACE].ids(self.ways[HUGGING_FACE].encode(texts))
        for name, way in self.ways.items():
            if way.ids(way.encode(texts)) != expected:
                raise Differs(f"{name} has other ids than {HUGGING_FACE}")
        return expected

    def runs(self, texts: Sequence[str]) -> dict[str, Run]:
        """Return the functions that time each way on the same texts."""

        def timed(way: TextWay) -> Run:
            return clocked(lambda: way.encode(texts))

        return {name: timed(way) for name, way in self.ways.items()}

    @contextmanager
    def our_kernels(self, texts: Sequence[str], expected: list[Ids]) -> Iterator[Run]:
        """Compare our kernels' ids, and time them alone, from text on the device to ids there.

        Raises:
            Differs: the ids are not the expected ones.
        """
        assert self.session.gpu is not None
        encoded = [text.encode() for text in texts]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        offsets = offsets_from_lengths(np.array([*map(len, encoded)], np.int64))
        with self.session.gpu.kernels(self.vocabulary, data, offsets) as kernels:
            kernels.run()
            if kernels.ids().tolist() != [*itertools.chain.from_iterable(expected)]:
                raise Differs(f"{OURS_KERNELS} have other ids than {HUGGING_FACE}")
            yield kernels.run

    def _hugging_face(self, texts: Sequence[str]) -> Any:
        if len(texts) == 1:
            return [self.tokenizer.encode(texts[0], add_special_tokens=False)]
        return self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)

    @cached_property
    def _cpu(self) -> CpuEngine:
        engine = CpuEngine()
        engine.load(self.vocabulary)
        return engine

    def _engine(self, engine: Any) -> Encode:
        engine.load(self.vocabulary)
        return lambda texts: engine.encode(self.vocabulary, Batch([*texts], options=WITHOUT_FRAME))


def _rows_of(encoded: Any) -> list[Ids]:
    ids, offsets = encoded.ids.tolist(), encoded.offsets.tolist()
    return [ids[begin:end] for begin, end in itertools.pairwise(offsets)]


def tiktoken_encoding(data: Path) -> Any:
    """Make tiktoken's GPT-2 encoding; return None if tiktoken or the rank file is missing."""
    import base64

    try:
        import tiktoken
    except ImportError:
        return None
    path = data / "vocab/tiktoken/r50k_base.tiktoken"
    if not path.is_file():
        return None
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return tiktoken.Encoding(
        "gpt2",
        pat_str=GPT2_PATTERN,
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens={"<|endoftext|>": 50256},
    )


GPT2_PATTERN = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
)


def _tiktoken(encoding: Any) -> Encode:
    """Encode one text by tiktoken, or several texts with a thread for each core."""
    from gpu.host.cores import usable_cores

    def encode(texts: Sequence[str]) -> Any:
        if len(texts) == 1:
            return [encoding.encode_ordinary(texts[0])]
        return encoding.encode_ordinary_batch([*texts], num_threads=usable_cores())

    return encode
