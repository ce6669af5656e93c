"""Declares the arguments of `train` and `motifs report`, without importing these commands."""

from __future__ import annotations

import argparse

FILES = "FASTA, FASTQ or text files, plain or gzip ('-' or none: stdin)"


def add_train(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `warptok train -o OUT FILE...`."""
    parser.description = (
        "Trains a vocabulary: byte-pair encoding, or GeneticBPE if motifs are given. OUT.state "
        "has the state of the training while it runs; after Ctrl-C the same command continues "
        "from there."
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        help="file to write, or folder if the format has several files",
    )
    _add_corpus(parser)
    parser.add_argument("--format", help="format of OUT (default: the format that its name says)")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start again from the beginning, even if OUT.state exists",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device that trains; it does not change the vocabulary (default: auto, the GPU if "
        "there is one and the corpus is large)",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="also write a TSV file with each merge and the numbers of "
        "occurrences by which it was chosen",
    )
    parser.add_argument("--json", action="store_true", help="print a summary as one JSON object")
    _add_sizes(parser.add_argument_group("size and alphabet"))
    _add_spans(parser.add_argument_group("motifs"))
    _add_rules(parser.add_argument_group("how motifs are weighted"))


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help=FILES)
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument(
        "--lines",
        action="store_const",
        const="lines",
        dest="reading",
        help="treat each line of a file as a sequence",
    )
    reading.add_argument(
        "--whole",
        action="store_const",
        const="whole",
        dest="reading",
        help="treat each file as one sequence, even if it begins like FASTA or FASTQ",
    )
    parser.add_argument("--upper", action="store_true", help="convert sequences to upper case")
    parser.add_argument("--spell", choices=("T", "U"), help="replace every U by T, or every T by U")


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--size", type=int, metavar="N", help="number of ids of the vocabulary (default: 512)"
    )
    group.add_argument(
        "--min-frequency",
        type=int,
        metavar="N",
        help="minimum number of occurrences of a pair that is merged (default: 2)",
    )
    group.add_argument(
        "--max-token-length",
        type=int,
        metavar="N",
        help="maximum number of letters of a token (default: any)",
    )
    group.add_argument(
        "--min-compression",
        type=float,
        metavar="C",
        help="stop when the corpus has at least C letters for each token",
    )
    group.add_argument(
        "--stop",
        choices=("either", "both"),
        help="whether training stops when the size or the compression is reached, or only when "
        "both are (default: either)",
    )
    group.add_argument(
        "--alphabet", metavar="LETTERS", help="letters that are tokens (default: all that occur)"
    )
    group.add_argument(
        "--t-and-u",
        choices=("alike", "apart"),
        help="whether T and U are the same letter, in training and in encoding, or two letters "
        "(default: alike)",
    )
    group.add_argument(
        "--special-token",
        action="append",
        dest="special_tokens",
        metavar="TEXT",
        help="a special token; these have the first ids; may be repeated (default: [UNK])",
    )


def _add_spans(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--motifs",
        metavar="BANK",
        help="file of motifs: FASTA, TSV, JSON, or text with a motif on each line",
    )
    group.add_argument(
        "--seed-region",
        type=_region,
        metavar="2-8",
        help="treat these bases of every sequence, counted from 1, as a motif",
    )
    group.add_argument(
        "--confidence",
        metavar="FILE",
        help="file with a number from 0 to 1 for each base, by which motifs are weighted: a line "
        "with > and the name of a sequence, then its numbers",
    )


def _region(argument: str) -> tuple[int, int]:
    first, dash, last = argument.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(argument) < 20):
        raise argparse.ArgumentTypeError(f"{argument!r} is not FIRST-LAST, such as 2-8")
    return int(first), int(last)


def _add_rules(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--lambda",
        type=float,
        dest="motif_weight",
        metavar="L",
        help="score for each occurrence of a pair inside a motif (default: 2.5)",
    )
    group.add_argument(
        "--mu",
        type=float,
        dest="penalty_weight",
        metavar="M",
        help="penalty for each occurrence of a pair across the border of a motif (default: 10)",
    )
    group.add_argument(
        "--merge-rule",
        choices=("global", "span_preserving"),
        help="whether motifs influence which pairs are merged (global), or become tokens that "
        "are never split (span_preserving) (default: global)",
    )
    group.add_argument(
        "--motif-tokens",
        type=int,
        metavar="N",
        help="with span_preserving: how many motifs become tokens (default: all)",
    )
    group.add_argument(
        "--penalty",
        choices=("count", "binary"),
        help="whether the penalty "
        "counts each occurrence across a border, or only whether there is one (default: count)",
    )
    group.add_argument(
        "--crossing",
        choices=("split", "any"),
        help="which tokens count as crossing a motif's border: those that split the motif, or "
        "any token that reaches across it (default: split)",
    )
    group.add_argument(
        "--merge-harmful",
        action="store_true",
        default=None,
        help="also merge pairs whose score is not above 0",
    )


def add_motifs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `warptok motifs report -v NAME FILE...`."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    report = commands.add_parser("report", help="measure how vocabularies split motifs")
    report.description = (
        "Measures vocabularies on a corpus: distortion, motifs preserved, split rate, border "
        "violations, compression, fertility. --motifs or --seed-region says what the motifs are."
    )
    report.add_argument(
        "-v",
        "--vocabulary",
        action="append",
        required=True,
        metavar="NAME",
        help="name of a built-in vocabulary or path of a vocabulary file; may be repeated",
    )
    _add_corpus(report)
    _add_spans(report.add_argument_group("motifs"))
    report.add_argument(
        "--json", action="store_true", help="print one JSON object for each vocabulary"
    )
    report.add_argument("--plot", metavar="FILE", help="also draw the figures as an SVG file")
