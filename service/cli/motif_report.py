"""Runs the command `motifs report`, which measures how vocabularies split motifs."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np
import orjson

from service.cli.motif_plot import plot
from service.cli.vocabulary_files import open_vocabulary
from service.engines.base import Engine
from service.engines.cpu.engine import CpuEngine
from service.seqio.corpus import NamedCorpus, read_corpus
from service.seqio.reader import STDIN
from service.training.inputs import read_confidence_file, read_motif_file
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.motifs.bank import Spans
from vocabularies.motifs.metrics import MotifMetrics, measure_motifs
from vocabularies.training.layout import corpus_spans

BATCH_ROWS = 65536
OPTIONS = EncodeOptions(add_special_tokens=False, special="plain", circular=False, spans=True)


def run(arguments: argparse.Namespace) -> int:
    """Measure every vocabulary and print the figures.

    Raises:
        VocabularyError, NoSuchVocabulary, BadRecords, OSError, ValueError: see the modules that
            read; or a sequence is refused.
    """
    if arguments.motifs is None and arguments.seed_region is None:
        raise ValueError("give the motifs to measure with --motifs or --seed-region")
    vocabularies = {name: open_vocabulary(name) for name in arguments.vocabulary}
    sequences = read_corpus(
        arguments.files or [STDIN],
        arguments.reading or "auto",
        upper=arguments.upper,
        spell=arguments.spell,
    )
    spans = corpus_spans(
        sequences.corpus,
        read_motif_file(arguments.motifs),
        arguments.seed_region,
        read_confidence_file(arguments.confidence, sequences),
    )
    engine = CpuEngine()
    measured = {
        name: measure_vocabulary(engine, vocabulary, sequences, spans)
        for name, vocabulary in vocabularies.items()
    }
    if arguments.plot is not None:
        Path(arguments.plot).write_text(plot(measured))
    if arguments.json:
        for name, metrics in measured.items():
            answer = {"vocabulary": name, **dataclasses.asdict(metrics)}
            sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
    else:
        _print_table(measured)
    return 0


def measure_vocabulary(
    engine: Engine, vocabulary: Vocabulary, sequences: NamedCorpus, spans: Spans
) -> MotifMetrics:
    """Encode a corpus and measure how its motifs are split.

    Raises:
        ValueError: a sequence is refused; the message names it.
    """
    corpus = sequences.corpus
    found = [np.zeros((0, 2), np.int64)]
    for row in range(0, len(corpus), BATCH_ROWS):
        offsets = corpus.offsets[row : row + BATCH_ROWS + 1]
        data = corpus.data[offsets[0] : offsets[-1]]
        batch = Batch(data=data, offsets=offsets - offsets[0], options=OPTIONS)
        encoded = engine.encode(vocabulary, batch)
        for refused, error in sorted(encoded.errors.items()):
            name = sequences.names[row + refused] or f"sequence {row + refused + 1}"
            raise ValueError(f"{name}: {error.message} ({error.where}) [{error.code}]")
        assert encoded.spans is not None
        found.append(encoded.spans + np.repeat(offsets[:-1], np.diff(encoded.offsets))[:, None])
    begins, ends = np.ascontiguousarray(np.concatenate(found).T)
    return measure_motifs(corpus, spans, begins, ends)


def _print_table(measured: dict[str, MotifMetrics]) -> None:
    columns = {name: _cells(metrics) for name, metrics in measured.items()}
    labels = list(next(iter(columns.values())))
    table = [["", *columns]]
    table += [[label, *(column[label] for column in columns.values())] for label in labels]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        label, *cells = row
        shown = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print("  ".join((label.ljust(widths[0]), *shown)).rstrip())


def _cells(metrics: MotifMetrics) -> dict[str, str]:
    cells: dict[str, str] = {}
    for name, value in dataclasses.asdict(metrics).items():
        if isinstance(value, tuple):
            cells |= {f"{name}, k = {k}": f"{share:.4f}" for k, share in enumerate(value, 1)}
        else:
            cells[name] = f"{value:.4f}" if isinstance(value, float) else str(value)
    return cells
