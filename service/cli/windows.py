"""Runs the command `windows`, which cuts the tokens of sequences into overlapping windows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from service.cli.unknown_ids import UnknownIds
from service.cli.vocabulary_files import open_vocabulary
from service.engines.cpu.engine import CpuEngine
from service.seqio.reader import STDIN, read_batches
from vocabularies.batch.batch import EncodeOptions
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.channel import ChannelError, SparseChannel
from vocabularies.sequences.window_layout import LayoutError, WindowLayout, make_layout
from vocabularies.sequences.windows import FIELDS, Windows, token_positions

CHANNEL_NAME = "het_values"
GROUP_IDS = 1 << 20  # So many ids of a sequence's windows are in memory at a time.
TAKEN_NAMES = ("name", "start", *FIELDS)  # The other fields of an object.


class _Tokens(NamedTuple):
    """The tokens of one sequence.

    Attributes:
        name: the record's name.
        ids: [T], in the vocabulary's order.
        positions: int64[T], the position of the base at which each token begins.
        channel: float32[L], the value of each base; None without a channel.
    """

    name: str
    ids: NDArray[np.integer[Any]]
    positions: NDArray[np.int64]
    channel: NDArray[np.float32] | None


def run(arguments: argparse.Namespace) -> int:
    """Print the windows of every sequence; return 1 if one was refused.

    Raises:
        VocabularyError, NoSuchVocabulary, BadRecords, OSError, ValueError: a vocabulary or a file
            cannot be read, or an option is invalid for the input.
    """
    channel = _read_channel(arguments)
    channel_name = arguments.channel_name or CHANNEL_NAME
    special_tokens = None if arguments.special_tokens is None else dict(arguments.special_tokens)
    vocabulary = open_vocabulary(
        arguments.vocabulary, pretokenizer=arguments.pretokenizer, special_tokens=special_tokens
    )
    layout = _layout(arguments, vocabulary)
    options = EncodeOptions(
        add_special_tokens=False,
        reverse_complement=arguments.reverse_complement,
        uppercase=arguments.uppercase,
        circular=layout.circular,
        spans=True,
    )
    num_refused = 0
    engine, unknown_ids = CpuEngine(), UnknownIds(vocabulary)
    for names, batch in read_batches(arguments.files or [STDIN], "sequences"):
        batch.options = options
        encoded = engine.encode(vocabulary, batch)
        unknown_ids.add(batch, encoded)
        num_refused += len(encoded.errors)
        assert encoded.spans is not None
        for row, name in enumerate(names):
            num_bases = int(batch.offsets[row + 1] - batch.offsets[row])
            values = None
            if channel is not None:
                with _naming(arguments.channel):
                    values = channel.values(name, num_bases)
            if (error := encoded.errors.get(row)) is not None:
                place = f" ({error.where})" if error.where else ""
                print(f"warptok: {name}: {error.message}{place} [{error.code}]", file=sys.stderr)
                continue
            spans = encoded.spans[encoded.offsets[row] : encoded.offsets[row + 1]]
            positions = token_positions(
                spans, circular=layout.circular, reverse_complement=arguments.reverse_complement
            )
            tokens = _Tokens(name, encoded.row(row), positions, values)
            for windows in _cut(layout, tokens):
                write = _write_json if arguments.json else _write_lines
                write(name, windows, channel_name)
        sys.stdout.buffer.flush()
    if channel is not None:
        with _naming(arguments.channel):
            channel.check_used()
    unknown_ids.warn(uppercase=arguments.uppercase)
    return 1 if num_refused else 0


def _read_channel(arguments: argparse.Namespace) -> SparseChannel | None:
    if arguments.channel is None:
        if arguments.channel_name is not None:
            raise ValueError("--channel-name is only allowed together with --channel")
        return None
    if not arguments.json:
        raise ValueError("--channel is only allowed together with --json")
    if arguments.channel_name in TAKEN_NAMES:
        raise ValueError("--channel-name is already the name of another field of the answer")
    with _naming(arguments.channel):
        return SparseChannel(Path(arguments.channel).read_bytes())


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the file's name to errors of a channel's lines.

    Raises:
        ValueError: the code inside raised a ChannelError.
    """
    try:
        yield
    except ChannelError as error:
        raise ValueError(f"{path}: {error}") from error


def _layout(arguments: argparse.Namespace, vocabulary: Vocabulary) -> WindowLayout:
    try:
        return make_layout(
            vocabulary,
            window=arguments.window,
            stride=arguments.stride,
            circular=arguments.circular,
            junction=arguments.junction,
            add_cls=arguments.add_cls,
        )
    except LayoutError as error:
        raise ValueError(f"--{error.option.replace('_', '-')}: {error}") from error


def _cut(layout: WindowLayout, tokens: _Tokens) -> Iterator[Windows]:
    """Cut the windows of a sequence, some at a time, as they may be larger than the sequence."""
    num_windows = -(-len(tokens.ids) // layout.stride)
    group = max(1, GROUP_IDS // layout.window)
    for first in range(0, num_windows, group):
        numbers = range(first, min(first + group, num_windows))
        yield layout.cut(tokens.ids, tokens.positions, tokens.channel, numbers)


def _write_json(name: str, windows: Windows, channel_name: str) -> None:
    fields = windows.fields(channel_name)
    for row, start in enumerate(windows.starts.tolist()):
        answer = {"name": name, "start": start}
        answer |= {field: array[row] for field, array in fields.items()}
        option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        sys.stdout.buffer.write(orjson.dumps(answer, option=option))


def _write_lines(name: str, windows: Windows, channel_name: str) -> None:
    """Write the name, the first token's number and the ids of each window, without padding."""
    rows = zip(windows.starts.tolist(), windows.input_ids, windows.attention_mask, strict=True)
    for start, ids, mask in rows:
        numbers = " ".join(map(str, ids[mask != 0].tolist()))
        sys.stdout.buffer.write(f"{name}\t{start}\t{numbers}\n".encode())
