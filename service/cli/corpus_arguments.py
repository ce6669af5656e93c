"""Declares the arguments of `corpus`, without importing the command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

FORMATS = ("megatron", "datatrove", "parquet", "arrow", "mds", "npy", "llm.c", "raw")
READ_AS = ("jsonl", "text", "lines", "parquet", "arrow", "fasta", "fastq")
PREFIX = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
MAX_INT64 = 2**63 - 1
Number = Callable[[int, int], Callable[[str], int]]


def add_corpus(parser: argparse.ArgumentParser, number: Number) -> None:
    """Add the arguments of `warptok corpus IN... --out DIR`, except for those of the vocabulary."""
    parser.description = (
        "Turns files of documents into shards of ids for training. After Ctrl-C, a crash or a full "
        "disk the same command goes on, and ends with the same bytes. Exits with 1 if a record was "
        "rejected; rejects_*.jsonl in DIR has the reasons."
    )
    parser.add_argument(
        "inputs", nargs="+", metavar="IN", help="files, folders, or URLs that fsspec knows"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the shards' folder")
    _add_reading(parser.add_argument_group("what documents are"), number)
    _add_ids(parser.add_argument_group("what their ids are"))
    _add_rows(parser.add_argument_group("what rows are (default: documents)"), number)
    _add_shards(parser.add_argument_group("what shards are"), number)
    _add_running(parser.add_argument_group("how it runs; the bytes stay the same"), number)


def _add_reading(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--read-as",
        choices=READ_AS,
        help="the format of all files (default: by the ends of their names; .txt is text, of which "
        "a file is a document; of lines each is one)",
    )
    group.add_argument("--key", metavar="NAME", help="key or column of the text (default: text)")
    group.add_argument(
        "--chats",
        action="store_true",
        help="of JSONL: --key (default: messages) has a list of messages, and the chat template in "
        "the vocabulary's folder makes a text of it",
    )
    group.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="with --chats: another template"
    )
    group.add_argument(
        "--max-document-bytes",
        type=number(1, 1 << 31),
        default=256 << 20,
        metavar="N",
        help="longer documents are rejected (default: 268435456); memory is about five times that",
    )
    group.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="leave out files that cannot be read, from the damaged place on, as rejects",
    )


def _add_ids(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--append-eod",
        action="store_true",
        help="put the vocabulary's end-of-text token, or that of --eod, behind each document",
    )
    group.add_argument("--eod", metavar="TOKEN", help="the token of --append-eod")
    group.add_argument("--begin", metavar="TOKEN", help="put this token before each document")
    group.add_argument(
        "--add-special-tokens",
        action="store_true",
        help="put the vocabulary's own begin and end tokens around each document",
    )
    group.add_argument(
        "--special",
        choices=("match", "plain", "refuse"),
        default="match",
        help="what special-token text inside a document is (default: match)",
    )


def _add_rows(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--pack",
        type=number(1, 1 << 24),
        metavar="N",
        help="rows of N ids: documents follow one another, and are cut where a row ends",
    )
    group.add_argument(
        "--window",
        type=number(1, 1 << 20),
        metavar="N",
        help="a row for each window of N ids of a document, such as a sequence of DNA",
    )
    group.add_argument(
        "--stride",
        type=number(1, 1 << 20),
        metavar="N",
        help="ids from the start of a window to the next (default: N of --window)",
    )
    group.add_argument("--reverse-complement", action="store_true", help="DNA: the other strand")
    group.add_argument(
        "--uppercase",
        action="store_true",
        help="make the letters a to z upper case first, such as those of soft-masked DNA",
    )
    group.add_argument(
        "--loss-mask",
        action="store_true",
        help="with --chats: say for each id whether it is the assistant's",
    )
    group.add_argument(
        "--shuffle",
        type=number(0, MAX_INT64),
        metavar="SEED",
        help="put the rows of each shard in an order that the seed decides",
    )


def _add_shards(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--format", choices=FORMATS, default="megatron", help="default: megatron, .bin and .idx"
    )
    group.add_argument(
        "--shard-tokens",
        type=number(1, MAX_INT64),
        metavar="N",
        help="most ids of a shard, unless one document has more (default: 1000000000, or the most "
        "that the format holds)",
    )
    group.add_argument(
        "--parts",
        type=number(1, 99_999),
        default=1,
        metavar="N",
        help="deal the files to so many parts with shards of their own, which are read and written "
        "side by side (default: 1)",
    )
    group.add_argument(
        "--prefix", type=_prefix, default="shard", metavar="NAME", help="begin of shards' names"
    )
    group.add_argument(
        "--no-digests",
        action="store_true",
        help="no SHA-256 of inputs and shards",
    )


def _prefix(argument: str) -> str:
    if PREFIX.fullmatch(argument) is None:
        raise argparse.ArgumentTypeError("letters, digits, '_', '.' and '-' only")
    return argument


def _add_running(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--engine",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="what computes the ids (default: auto, the GPUs where there are any)",
    )
    group.add_argument(
        "--threads", type=number(1, 1024), metavar="N", help="default: one a usable core"
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run the parts on a cluster of Ray, such as auto or 10.0.0.1:6379, whose nodes have "
        "all files and DIR under the same paths; --parts says how many there are, and --threads "
        "how many cores each has (default: one, or its share of a node with GPUs)",
    )
    group.add_argument(
        "--verify",
        type=number(1, 1_000_000),
        default=0,
        metavar="N",
        help="compare N documents with the reference while it runs",
    )
    group.add_argument("--fresh", action="store_true", help="remove another job's files first")
    group.add_argument("--json", action="store_true", help="print the result as a JSON object")
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")
