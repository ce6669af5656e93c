"""Runs the commands `encode` and `count`, which read files and print ids or numbers of ids.

The CPU engine runs in this process; memory is bounded by the longest single text.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from tqdm import tqdm

from service.cli.unknown_ids import UnknownIds
from service.cli.vocabulary_files import open_vocabulary
from service.engines.base import Engine
from service.engines.cpu.engine import CpuEngine
from service.operations.rendering.offset_units import convert_spans
from service.seqio.reader import STDIN, Reading, Record, batches, read_records
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.model.types import Bpe, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.augmentation import Augmentation, NotASequence, StreamAugmenter

BATCH_BYTES = 4 * 1024 * 1024
BATCH_RECORDS = 4096
PROGRESS_DELAY_S = 2.0
AUGMENTATION = ("seed", "crop_letters", "substitution_rate", "first_row")
# What a token of a sequence's vocabulary spells; text has digits, blanks and other signs.
SEQUENCE_TOKEN = re.compile(rb"(?:##|\xe2\x96\x81)?[A-Za-z*-]*")


def run(arguments: argparse.Namespace) -> int:
    """Encode or count every text; return 1 if one was refused.

    Raises:
        VocabularyError, NoSuchVocabulary, BadRecords, OSError, ValueError: a vocabulary or a file
            cannot be read, or options contradict each other.
    """
    if arguments.text is not None and arguments.files:
        raise ValueError("give files or --text, not both")
    counting = arguments.command == "count"
    if not counting and not arguments.json and (arguments.offsets or arguments.tokens):
        raise ValueError("--offsets and --tokens are only allowed together with --json")
    special_tokens = None if arguments.special_tokens is None else dict(arguments.special_tokens)
    vocabulary = open_vocabulary(
        arguments.vocabulary, pretokenizer=arguments.pretokenizer, special_tokens=special_tokens
    )
    engine, unknown_ids = CpuEngine(), UnknownIds(vocabulary)
    augmenter = None if counting else _make_augmenter(vocabulary, arguments)
    num_refused = 0
    reading: Reading = arguments.reading or ("auto" if is_for_sequences(vocabulary) else "text")
    for records in batches(_progress(arguments, reading), BATCH_BYTES, BATCH_RECORDS):
        if counting:
            errors = _write_counts(engine, vocabulary, records, arguments)
        else:
            batch = Batch.from_bytes([record.data for record in records], _options(arguments))
            if augmenter is not None:
                batch = _augment(augmenter, records, batch)
            errors = _write_ids(engine, vocabulary, records, batch, arguments, unknown_ids)
        num_refused += len(errors)
        for row, error in sorted(errors.items()):
            print(_refusal(records[row], error), file=sys.stderr)
    unknown_ids.warn(uppercase=arguments.uppercase)
    return 1 if num_refused else 0


def _refusal(record: Record, error: RowError) -> str:
    place = f" ({error.where})" if error.where else ""
    return f"warptok: {record.name or 'the text'}: {error.message}{place} [{error.code}]"


def is_for_sequences(vocabulary: Vocabulary) -> bool:
    """Return whether a vocabulary is one of DNA or proteins, whose files are FASTA and FASTQ."""
    if not isinstance(vocabulary.model, Bpe | Upstream):
        return True
    special = {token.id for token in vocabulary.special_tokens}
    return all(
        SEQUENCE_TOKEN.fullmatch(token)
        for token_id, token in enumerate(vocabulary.tokens)
        if token is not None and token_id not in special
    )


def _records(arguments: argparse.Namespace, reading: Reading) -> Iterable[Record]:
    if arguments.text is None:
        return read_records(arguments.files or [STDIN], reading)
    # This restores bytes of an argument that are not UTF-8.
    texts = [os.fsencode(text) for text in arguments.text]
    if len(texts) == 1:
        return [Record("", texts[0])]
    return [Record(f"text {number}", text) for number, text in enumerate(texts, 1)]


def _progress(arguments: argparse.Namespace, reading: Reading) -> Iterator[Record]:
    """Yield the records; show a progress bar on stderr if that is a terminal and it takes long."""
    with tqdm(unit="B", unit_scale=True, delay=PROGRESS_DELAY_S, disable=None) as bar:
        for record in _records(arguments, reading):
            yield record
            bar.update(len(record.data))


def _options(arguments: argparse.Namespace) -> EncodeOptions:
    return EncodeOptions(
        add_special_tokens=not arguments.no_special_tokens,
        special=arguments.special,
        max_length=arguments.max_length,
        truncation_side=arguments.truncation_side,
        reverse_complement=arguments.reverse_complement,
        uppercase=arguments.uppercase,
        circular=arguments.circular,
        spans=getattr(arguments, "offsets", None) is not None,
    )


def _make_augmenter(
    vocabulary: Vocabulary, arguments: argparse.Namespace
) -> StreamAugmenter | None:
    """Make the object that changes sequences at random; None: no change is requested.

    Raises:
        ValueError: options contradict each other, or the vocabulary is of text.
    """
    given = {name: getattr(arguments, name) for name in AUGMENTATION}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    if "seed" not in given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{names} is only allowed together with --seed")
    if arguments.offsets:
        raise ValueError(
            "--offsets cannot be combined with --seed, because they would refer to the changed "
            "sequences"
        )
    if not vocabulary.supports_reverse_complement:
        raise ValueError("--seed changes sequences, but this is a vocabulary of text")
    return StreamAugmenter(Augmentation(**given))


def _augment(augmenter: StreamAugmenter, records: list[Record], batch: Batch) -> Batch:
    """Return the batch of the next records with its rows changed at random.

    Raises:
        ValueError: a record is not ASCII; the message has its name.
    """
    begin = augmenter.num_rows
    try:
        return augmenter.augment(batch)
    except NotASequence as error:
        name = records[error.row - begin].name or "the text"
        raise ValueError(f"{name}: {error}") from error


def _write_counts(
    engine: Engine, vocabulary: Vocabulary, records: list[Record], arguments: argparse.Namespace
) -> dict[int, RowError]:
    batch = Batch.from_bytes([record.data for record in records], _options(arguments))
    counted = engine.count(vocabulary, batch)
    counts, errors = counted.counts, counted.errors
    for row, record in enumerate(records):
        if arguments.json:
            _write_json(_describe_error(record, errors[row])) if row in errors else _write_json(
                {"name": record.name, "num_tokens": int(counts[row])}
            )
        else:
            number = "-" if row in errors else str(counts[row])
            print(number if not record.name else f"{number}\t{record.name}")
    return errors


def _write_ids(
    engine: Engine,
    vocabulary: Vocabulary,
    records: list[Record],
    batch: Batch,
    arguments: argparse.Namespace,
    unknown_ids: UnknownIds,
) -> dict[int, RowError]:
    encoded = engine.encode(vocabulary, batch)
    unknown_ids.add(batch, encoded)
    for row, record in enumerate(records):
        if arguments.json:
            _write_json(_answer(vocabulary, record, encoded, row, arguments))
        else:
            sys.stdout.buffer.write(_line(encoded.row(row)))
    sys.stdout.buffer.flush()
    return encoded.errors


def _line(ids: NDArray[np.integer[Any]]) -> bytes:
    """Write ids with spaces between and a line end; orjson is faster than str() of each id."""
    numbers = orjson.dumps(np.ascontiguousarray(ids), option=orjson.OPT_SERIALIZE_NUMPY)
    return numbers[1:-1].replace(b",", b" ") + b"\n"


def _write_json(answer: dict[str, Any]) -> None:
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    sys.stdout.buffer.write(orjson.dumps(answer, option=option))


def _describe_error(record: Record, error: RowError) -> dict[str, Any]:
    reason = {"code": error.code, "message": error.message, "where": error.where}
    return {"name": record.name, "error": reason}


def _answer(
    vocabulary: Vocabulary,
    record: Record,
    encoded: Encoded,
    row: int,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Make the object of a record, with the fields of the HTTP answer."""
    if row in encoded.errors:
        return _describe_error(record, encoded.errors[row])
    ids = np.ascontiguousarray(encoded.row(row))
    answer: dict[str, Any] = {
        "name": record.name,
        "ids": ids,
        "num_tokens": len(ids),
        "engine": encoded.engine,
    }
    if arguments.offsets is not None:
        assert encoded.spans is not None
        spans = encoded.spans[encoded.offsets[row] : encoded.offsets[row + 1]]
        if arguments.offsets != "bytes":
            spans = convert_spans(spans, record.data.decode(), arguments.offsets)
        answer["offsets"] = np.ascontiguousarray(spans)
    if arguments.tokens:
        answer["tokens"] = [
            vocabulary.show_token(token_id, arguments.token_form) for token_id in ids.tolist()
        ]
    if encoded.num_tokens is not None and encoded.kept is not None:
        num_tokens = int(encoded.num_tokens[row])
        if num_tokens > len(ids):
            answer["truncated"] = {"num_tokens": num_tokens, "kept": encoded.kept[row].tolist()}
    return answer
