"""Declares the arguments of `corpus`, without importing the command."""

from __future__ import annotations

import argparse
import re
import threading
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
        "Encodes files of documents as shards of ids for training. After Ctrl-C, a crash or a "
        "full disk, run the same command again: it continues, and the shards have the same "
        "bytes. Exits with 1 if a document was rejected; rejects_*.jsonl in DIR has the reasons."
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IN",
        help="files, folders, or URLs with a scheme that fsspec reads",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to which the shards are written",
    )
    _add_reading(parser.add_argument_group("what documents are"), number)
    _add_ids(parser.add_argument_group("what their ids are"))
    _add_rows(parser.add_argument_group("what rows are (default: documents)"), number)
    _add_shards(parser.add_argument_group("what shards are"), number)
    _add_running(parser.add_argument_group("how it runs; the bytes stay the same"), number)


def start_early(arguments: argparse.Namespace) -> None:
    """Start the server of a job's processes, and the driver of GPUs, if the job may need them.

    They start while the command is imported.
    """
    if arguments.ray is not None or (arguments.processes or arguments.parts) == 1:
        return
    from gpu.host.cores import limit_threads
    from service.corpus.runners.fork_server import choose_num_processes, start_server, sum_sizes

    if arguments.processes is None:
        num_threads = limit_threads(arguments.threads or 0)
        num_bytes = sum_sizes(arguments.inputs)
        if choose_num_processes(arguments.parts, num_threads, num_bytes) == 1:
            return
    start_server()
    if arguments.engine != "cpu":
        from gpu.runtime.driver_devices import count_driver_devices

        threading.Thread(target=count_driver_devices, daemon=True).start()


def _add_reading(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--read-as",
        choices=READ_AS,
        help="read all files in this format (default: the format that each name's ending says; "
        "in .txt each file is a document, in lines each line is one)",
    )
    group.add_argument(
        "--key", metavar="NAME", help="key or column that contains the text (default: text)"
    )
    group.add_argument(
        "--chats",
        action="store_true",
        help="JSONL only: --key (default: messages) names a list of messages, which the chat "
        "template in the vocabulary's folder renders as text",
    )
    group.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="with --chats: use this template instead"
    )
    group.add_argument(
        "--max-document-bytes",
        type=number(1, 1 << 31),
        default=256 << 20,
        metavar="N",
        help="reject documents of more than N bytes (default: 268435456); the run needs about "
        "five times as much memory",
    )
    group.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="report files that cannot be read as rejects and go on; the documents before the "
        "reported place of a damaged file are used",
    )


def _add_ids(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--append-eod",
        action="store_true",
        help="put the vocabulary's end-of-text token, or the token of --eod, after each document",
    )
    group.add_argument(
        "--eod", metavar="TOKEN", help="token that --append-eod puts after each document"
    )
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
        help="text of special tokens in a document: give it its id (match), treat it as plain "
        "text, or refuse the document (default: match)",
    )


def _add_rows(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--pack",
        type=number(1, 1 << 24),
        metavar="N",
        help="join the documents and cut them into rows of N ids",
    )
    group.add_argument(
        "--window",
        type=number(1, 1 << 20),
        metavar="N",
        help="write a row for each window of N ids of a document, such as a DNA sequence",
    )
    group.add_argument(
        "--stride",
        type=number(1, 1 << 20),
        metavar="N",
        help="number of ids between the starts of two windows (default: N of --window)",
    )
    group.add_argument(
        "--reverse-complement", action="store_true", help="DNA: encode the reverse complement"
    )
    group.add_argument(
        "--uppercase",
        action="store_true",
        help="convert the letters a to z to upper case first, as for soft-masked DNA",
    )
    group.add_argument(
        "--loss-mask",
        action="store_true",
        help="with --chats: also write for each id whether it belongs to the assistant",
    )
    group.add_argument(
        "--shuffle",
        type=number(0, MAX_INT64),
        metavar="SEED",
        help="shuffle the rows of each shard, in an order that depends on the seed only",
    )


def _add_shards(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--format",
        choices=FORMATS,
        default="megatron",
        help="format of the shards (default: megatron, which writes .bin and .idx)",
    )
    group.add_argument(
        "--shard-tokens",
        type=number(1, MAX_INT64),
        metavar="N",
        help="maximum number of ids in a shard; a longer document gets a shard of its own "
        "(default: 1000000000, or the maximum of the format)",
    )
    group.add_argument(
        "--parts",
        type=number(1, 99_999),
        default=1,
        metavar="N",
        help="divide the files into N parts, which run in parallel and write separate shards "
        "(default: 1)",
    )
    group.add_argument(
        "--prefix",
        type=_prefix,
        default="shard",
        metavar="NAME",
        help="prefix of the names of the shards",
    )
    group.add_argument(
        "--no-digests",
        action="store_true",
        help="do not compute SHA-256 of inputs and shards",
    )


def _prefix(argument: str) -> str:
    if PREFIX.fullmatch(argument) is None:
        raise argparse.ArgumentTypeError("must consist of letters, digits, '_', '.' and '-'")
    return argument


def _add_running(group: argparse._ArgumentGroup, number: Number) -> None:
    group.add_argument(
        "--engine",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="engine that computes the ids (default: auto, which uses the GPUs for a gibibyte of "
        "files or more, if there are any)",
    )
    group.add_argument(
        "--threads",
        type=number(1, 1024),
        metavar="N",
        help="number of threads (default: one for each usable core)",
    )
    group.add_argument(
        "--processes",
        type=number(1, 256),
        metavar="N",
        help="run the parts in N processes, each with its share of the threads and one GPU "
        "(default: one for every four threads and 2 GiB of files, at most one a part)",
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run the parts on a Ray cluster, such as auto or 10.0.0.1:6379. All nodes must have "
        "the input files and DIR under the same paths. --parts sets the number of parts, "
        "--threads the cores of each (default: one, or an equal share of a node with GPUs)",
    )
    group.add_argument(
        "--verify",
        type=number(1, 1_000_000),
        default=0,
        metavar="N",
        help="compare the ids of N documents with the reference during the run",
    )
    group.add_argument(
        "--fresh", action="store_true", help="delete the files of an earlier job in DIR first"
    )
    group.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group.add_argument("--quiet", action="store_true", help="do not write progress to stderr")
