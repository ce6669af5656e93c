"""The compared engines: our own and other libraries, each called as its authors advise.

The input that suits an engine (strings, a list of bytes, pinned memory) is made before anything is
timed, and its ids are read in the form that it returns. A library that is not installed is absent,
and the results say so. This module does not depend on a corpus.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.engine.references.reference_libraries import tiktoken_encoding
from benchmarks.support.texts import Text
from gpu.host.cores import usable_cores
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.formats.huggingface.writer import tokenizer_json

Ids = NDArray[np.int32]
GPU_PINNED, GPU_NARROW = "gpu pinned", "gpu pinned, narrow ids"
GPU_CALL, GPU_ENCODE = "gpu encode_ids", "gpu encode"
CPU_ENGINE = "cpu engine"
LIBRARIES = "fastokens", "gigatoken", "tiktoken", "tokenizers"
ENGINES = GPU_PINNED, GPU_NARROW, GPU_CALL, GPU_ENCODE, CPU_ENGINE, *LIBRARIES
WITHOUT_FRAME = EncodeOptions(add_special_tokens=False)
COLD_LOADS = 3


class Absent(Exception):
    """A library is not installed."""


@dataclass(frozen=True, slots=True)
class Competitor:
    """An engine.

    Attributes:
        package: the package whose version is reported; "" for our own.
        cores: "all" or "1".
        form: makes the engine's input of a text.
        load: loads a vocabulary; returns a function that encodes a form and has seen no text yet.
        num_loads: how often the first call is timed, where there is one batch.
        most_bytes: the most bytes of a text; the engine gets the front of a larger one.
    """

    name: str
    package: str
    cores: str
    form: Callable[[Text], Any]
    load: Callable[[Published], Callable[[Any], Any]]
    num_loads: int = 1
    most_bytes: float = math.inf

    @property
    def key(self) -> str:
        """The name of its samples."""
        return f"{self.name} {self.cores}"

    @property
    def is_ours(self) -> bool:
        """Return whether other ids than the proved ones end the benchmark."""
        return self.name not in LIBRARIES

    def version(self) -> str:
        """Return the version of the library.

        Raises:
            Absent: it is not installed.
        """
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError as error:
            raise Absent(self.package) from error


def competitors(gpu: GpuWays, front_bytes: int) -> tuple[Competitor, ...]:
    """List all engines, those of `cpu_competitors` last."""
    return (
        Competitor(GPU_PINNED, "", "all", _pinned(gpu), _gpu(gpu, _stream, anew=True), COLD_LOADS),
        Competitor(GPU_NARROW, "", "all", _pinned(gpu), _gpu(gpu, _narrow, anew=True), COLD_LOADS),
        Competitor(GPU_CALL, "", "all", _rows, _gpu(gpu, _encode_ids)),
        Competitor(GPU_ENCODE, "", "all", _rows, _gpu(gpu, _encode)),
        *cpu_competitors(front_bytes),
    )


def cpu_competitors(front_bytes: int) -> tuple[Competitor, ...]:
    """List warptok's CPU engine and the other libraries.

    An engine with tens of MB per second gets `front_bytes` of a text, one with hundreds several
    times as many.
    """
    cores = usable_cores()
    return (
        Competitor(CPU_ENGINE, "", "all", _texts, _cpu_engine, most_bytes=16 * front_bytes),
        Competitor(
            "fastokens", "fastokens", "all", strings_of, _fastokens, most_bytes=16 * front_bytes
        ),
        Competitor("gigatoken", "gigatoken", "all", _gigatoken_form, _gigatoken, COLD_LOADS),
        Competitor("tiktoken", "tiktoken", "1", strings_of, _tiktoken(1), most_bytes=front_bytes),
        Competitor(
            "tiktoken", "tiktoken", "all", strings_of, _tiktoken(cores), most_bytes=2 * front_bytes
        ),
        Competitor(
            "tokenizers", "tokenizers", "all", strings_of, _tokenizers, most_bytes=front_bytes
        ),
    )


def _parts(text: Text) -> list[bytes]:
    data, places = text.data.tobytes(), text.borders.tolist()
    return [data[a:b] for a, b in itertools.pairwise(places)]


def strings_of(text: Text) -> list[str]:
    """Make a string of each part of a text that may be encoded by itself."""
    return [part.decode() for part in _parts(text)]


def _rows(text: Text) -> Text:
    return text


def _texts(text: Text) -> Text:
    """Make rows of parts, so that all cores have work."""
    return replace(text, offsets=text.borders)


def _pinned(gpu: GpuWays) -> Callable[[Text], Any]:
    """Put the text and room for its ids into pinned memory."""
    return lambda text: (
        replace(text, data=gpu.pinned(text.data)),
        gpu.device.allocate_pinned(4 * len(text.data)),
    )


def _gpu(
    gpu: GpuWays, encode: Callable[[GpuWays, Published, Any], Any], *, anew: bool = False
) -> Callable[[Published], Callable[[Any], Any]]:
    """Make a call of warptok's GPU engine; `anew` removes the vocabulary from the device first."""

    def load(timed: Published) -> Callable[[Any], Any]:
        if anew:
            gpu.engine.unload(timed.vocabulary.digest)
        gpu.engine.load(timed.vocabulary)
        return lambda form: encode(gpu, timed, form)

    return load


def _stream(gpu: GpuWays, timed: Published, form: tuple[Text, Any]) -> Ids:
    text, out = form
    return gpu.stream(timed.vocabulary, text.data, text.offsets, out.view(np.int32))


def _narrow(gpu: GpuWays, timed: Published, form: tuple[Text, Any]) -> NDArray[Any]:
    text, out = form
    return gpu.narrow(timed.vocabulary, text.data, text.offsets, out)


def _encode_ids(gpu: GpuWays, timed: Published, text: Text) -> Ids:
    return gpu.encode(timed.vocabulary, text.data, text.offsets)[0]


def _encode(gpu: GpuWays, timed: Published, text: Text) -> NDArray[Any]:
    batch = Batch(data=text.data, offsets=text.offsets, options=WITHOUT_FRAME)
    return gpu.engine.encode(timed.vocabulary, batch).ids


def _cpu_engine(timed: Published) -> Callable[[Text], Any]:
    from service.engines.cpu.engine import CpuEngine

    engine = CpuEngine()
    engine.load(timed.vocabulary)

    def encode(text: Text) -> NDArray[Any]:
        batch = Batch(data=text.data, offsets=text.offsets, options=WITHOUT_FRAME)
        return engine.encode(timed.vocabulary, batch).ids

    return encode


def _fastokens(timed: Published) -> Callable[[list[str]], Ids]:
    """Make fastokens' call for bulk."""
    tokenizer = importlib.import_module("fastokens").Tokenizer.from_json_str(_known(timed))
    return lambda texts: np.frombuffer(
        tokenizer.encode_batch_flat(texts, False, False)[0], np.int32
    )


def _gigatoken_form(text: Text) -> Any:
    """Make gigatoken's input: one buffer, which it splits itself, or rows."""
    if text.rows_are_texts:
        return _parts(text)
    return importlib.import_module("gigatoken").BytesSource(text.data.tobytes())


def _gigatoken(timed: Published) -> Callable[[Any], Any]:
    tokenizer = importlib.import_module("gigatoken").Tokenizer.from_json(_known(timed))
    return lambda form: tokenizer.encode_batch(form)


def _tiktoken(num_threads: int) -> Callable[[Published], Callable[[list[str]], Any]]:
    """Make tiktoken's call: for batches with a thread a core, or on one core for a text."""

    def load(timed: Published) -> Callable[[list[str]], Any]:
        encoding = tiktoken_encoding(timed.files)
        if num_threads == 1:
            return lambda texts: [encoding.encode_ordinary(text) for text in texts]
        return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=num_threads)

    return load


def _tokenizers(timed: Published) -> Callable[[list[str]], Any]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(timed.json)
    return lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def _known(timed: Published) -> str:
    """Return a tokenizer.json; cl100k has llama3's pattern, which those libraries recognize.

    They differ only in white space at the end of a text.
    """
    if timed.vocabulary.pretokenizer == "cl100k":
        return tokenizer_json(replace(timed.vocabulary, pretokenizer="llama3"))
    return timed.json
