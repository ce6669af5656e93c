"""Runs the command `train`, which learns a vocabulary from files of sequences."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
from tqdm import tqdm

from gpu.errors import OutOfMemory
from service.cli.vocabulary_files import output_format, write_files
from service.seqio.corpus import read_corpus
from service.seqio.reader import STDIN
from service.training.device import NO_GPU, Choice, choose_merger
from service.training.inputs import read_confidence_file, read_motif_file
from vocabularies.motifs.bank import FULL_WEIGHT
from vocabularies.training.merger import Merge
from vocabularies.training.options import TrainingOptions
from vocabularies.training.pair_table import UNIT
from vocabularies.training.train import Progress, Training, train

LEARNT_FORMATS = "tokenizer.json", "canonical"
INTERRUPTED = 128 + signal.SIGINT


def run(arguments: argparse.Namespace) -> int:
    """Learn a vocabulary and write it; return 130 if Ctrl-C stopped it.

    Raises:
        VocabularyError, BadRecords, OSError, ValueError: a file cannot be read or written, or an
            option is wrong.
    """
    out = Path(arguments.out)
    options = _options(arguments)
    format = output_format(arguments.format, out)
    # What cannot be written is refused before the training, which may take hours.
    if format not in LEARNT_FORMATS:
        known = " or ".join(LEARNT_FORMATS)
        raise ValueError(f"a learnt vocabulary cannot be written as {format}; use {known}")
    if arguments.log is not None and not Path(arguments.log).parent.is_dir():
        raise ValueError(f"--log: there is no folder {Path(arguments.log).parent}")
    if not out.parent.is_dir():
        raise ValueError(f"--out: there is no folder {out.parent}")
    if out.is_file() and not arguments.force:
        raise ValueError(f"{out} exists already; use --force to overwrite it")
    state = out.with_name(out.name + ".state")
    if arguments.fresh:
        state.unlink(missing_ok=True)
    training, choices = _train(arguments, options, state)
    if training.ending == "stopped":
        num_ids = len(training.vocabulary)
        message = f"stopped at {num_ids} ids; run the same command again to continue from {state}"
        print(f"warptok: {message}", file=sys.stderr)
        return INTERRUPTED
    _write(training, choices[0], out, format, arguments)
    state.unlink()
    return 0


def _train(
    arguments: argparse.Namespace, options: TrainingOptions, state: Path
) -> tuple[Training, list[Choice]]:
    """Train until the end or Ctrl-C; also return the device if one was chosen."""
    sequences = read_corpus(
        arguments.files or [STDIN],
        arguments.reading or "auto",
        upper=arguments.upper,
        spell=arguments.spell,
    )
    motifs = read_motif_file(arguments.motifs)
    confidence = read_confidence_file(arguments.confidence, sequences)
    choices: list[Choice] = []
    make_merger = choose_merger(arguments.device, choices.append)
    try:
        with _until_interrupted() as should_stop, _bar() as progress:
            training = train(
                sequences.corpus,
                options,
                motifs=motifs,
                confidence=confidence,
                state=state,
                progress=progress,
                should_stop=should_stop,
                make_merger=make_merger,
            )
    except (*NO_GPU, OutOfMemory) as error:
        raise ValueError(f"--device {arguments.device}: {error}") from error
    return training, choices


def _options(arguments: argparse.Namespace) -> TrainingOptions:
    """Make the options from the arguments; TrainingOptions has the defaults."""
    given: dict[str, Any] = {"vocabulary_size": arguments.size}
    names = {field.name for field in dataclasses.fields(TrainingOptions)}
    given |= {name: value for name, value in vars(arguments).items() if name in names}
    if given.get("special_tokens") is not None:
        given["special_tokens"] = tuple(given["special_tokens"])
    return TrainingOptions(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second one ends the process."""
    interrupts: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(interrupts)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress on stderr if that is a terminal."""
    with tqdm(unit="id", disable=None) as bar:

        def show(progress: Progress) -> None:
            bar.total = max(progress.target_ids, progress.num_ids) - progress.first_ids
            bar.set_postfix(letters_per_token=f"{progress.compression:.3f}", refresh=False)
            bar.update(progress.num_ids - progress.first_ids - bar.n)

        yield show


def _write(
    training: Training,
    choice: Choice,
    out: Path,
    format: str,
    arguments: argparse.Namespace,
) -> None:
    files = write_files(training.vocabulary, out, format, force=arguments.force)
    if arguments.log is not None:
        Path(arguments.log).write_text(_log(training))
    figures = {
        "files": [str(path) for path in files],
        "digest": training.vocabulary.digest,
        "num_ids": len(training.vocabulary),
        "num_merges": len(training.merges),
        "ending": training.ending,
        "compression": training.compression,
        "seconds": training.seconds,
        **{name: value for name, value in choice._asdict().items() if value},
    }
    if arguments.json:
        sys.stdout.buffer.write(orjson.dumps(figures, option=orjson.OPT_APPEND_NEWLINE))
        return
    for name, value in figures.items():
        shown = " ".join(value) if isinstance(value, list) else value
        print(f"{name:15} {shown:.3f}" if isinstance(value, float) else f"{name:15} {shown}")


def _log(training: Training) -> str:
    """Write a table of the merges: their tokens, ids, and the figures that chose them.

    The figures are Equation 9's, in occurrences: score = frequency + lambda * bonus - mu * penalty.
    """
    lines = ["\t".join(("rank", "left_token", "right_token", *Merge._fields))]
    name = training.vocabulary.token_string
    for rank, merge in enumerate(training.merges):
        cells = (
            rank,
            name(merge.left),
            name(merge.right),
            merge.left,
            merge.right,
            merge.frequency,
            _decimal(merge.bonus, FULL_WEIGHT),
            _decimal(merge.penalty, FULL_WEIGHT),
            _decimal(merge.score, UNIT),
        )
        lines.append("\t".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def _decimal(value: int, unit: int) -> str:
    """Write value / unit exactly: 2500 in units of 1000 is 2.5."""
    shown = f"{Decimal(value) / unit:f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
