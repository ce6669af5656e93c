"""Runs the command `statistics`: which tokens of a vocabulary occur in files of sequences."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import orjson

from service.cli.vocabulary_files import open_vocabulary
from service.engines.cpu.engine import CpuEngine
from service.seqio.reader import STDIN, read_batches
from vocabularies.batch.batch import EncodeOptions
from vocabularies.sequences.statistics import TokenCounter, VocabularyStatistics
from vocabularies.sequences.statistics_plot import plot

NUM_NEVER_SEEN = 10  # The table names so many k-mers that do not occur; --json has all.


def run(arguments: argparse.Namespace) -> int:
    """Count the tokens of all sequences and print the figures; return 1 if one was refused.

    Raises:
        VocabularyError, NoSuchVocabulary, BadRecords, OSError, ValueError: a vocabulary or a file
            cannot be read.
    """
    special_tokens = None if arguments.special_tokens is None else dict(arguments.special_tokens)
    vocabulary = open_vocabulary(
        arguments.vocabulary, pretokenizer=arguments.pretokenizer, special_tokens=special_tokens
    )
    options = EncodeOptions(
        add_special_tokens=False,
        special="plain",
        reverse_complement=arguments.reverse_complement,
        uppercase=arguments.uppercase,
        circular=arguments.circular,
    )
    engine, counter = CpuEngine(), TokenCounter(vocabulary)
    num_refused = 0
    for names, batch in read_batches(arguments.files or [STDIN], "sequences"):
        batch.options = options
        encoded = engine.encode(vocabulary, batch)
        for row, error in sorted(encoded.errors.items()):
            place = f" ({error.where})" if error.where else ""
            print(f"warptok: {names[row]}: {error.message}{place} [{error.code}]", file=sys.stderr)
        num_refused += len(encoded.errors)
        lengths = np.delete(np.diff(encoded.offsets), [*encoded.errors])
        counter.add(encoded.ids, lengths)
    statistics = counter.statistics()
    if arguments.plot is not None:
        Path(arguments.plot).write_text(plot(statistics))
    if arguments.json:
        answer = {"vocabulary": arguments.vocabulary, **statistics.as_dict(arguments.top)}
        answer["num_refused"] = num_refused
        sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
    else:
        _print_table(statistics, arguments.top)
    return 1 if num_refused else 0


def _print_table(statistics: VocabularyStatistics, number: int) -> None:
    lengths, unit = statistics.lengths, statistics.unit
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    never = statistics.never_seen()
    named = f": {' '.join(never[:NUM_NEVER_SEEN])}" if never else ""
    more = " ..." if len(never) > NUM_NEVER_SEEN else ""
    print(f"sequences             {statistics.num_sequences:,}")
    print(f"tokens                {statistics.num_tokens:,}")
    print(f"tokens of a sequence  {statistics.mean_tokens:,.1f} ({shortest:,} to {longest:,})")
    print(
        f"{unit} seen           {statistics.num_seen:,} of {statistics.num_possible:,} "
        f"({statistics.share_seen:.1%})"
    )
    print(f"{unit} never seen     {len(never):,}{named}{more}")
    print(
        f"[UNK]                 {statistics.num_unknown:,} "
        f"({statistics.unknown_share:.3%} of the tokens)"
    )
    print(f"the {number} most frequent {unit}, their number and share of the tokens")
    for count in statistics.most_frequent(number):
        print(f"  {count.token}  {count.count:,}  {count.share:.3%}")
