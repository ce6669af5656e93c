"""Declares the arguments of `train` and `motifs report`, without importing these commands."""

from __future__ import annotations

import argparse

FILES = "FASTA, FASTQ or text, gzip or not ('-' or none: stdin)"


def add_train(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `warptok train -o OUT FILE...`."""
    parser.description = (
        "Learns a vocabulary: byte-pair encoding, or GeneticBPE where there are motifs. OUT.state "
        "keeps it while it runs: after Ctrl-C the same command goes on from there."
    )
    parser.add_argument(
        "-o", "--out", required=True, help="file to write, or folder for several files"
    )
    _add_corpus(parser)
    parser.add_argument("--format", help="the format of OUT (default: by its name)")
    parser.add_argument("--force", action="store_true", help="write over files that are there")
    parser.add_argument(
        "--fresh", action="store_true", help="begin anew although OUT.state is there"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="what learns; the vocabulary is the same (default: auto, the GPU where there is one "
        "and the corpus is large)",
    )
    parser.add_argument(
        "--log", metavar="FILE", help="write every merge with its figures, in occurrences, TSV"
    )
    parser.add_argument(
        "--json", action="store_true", help="say what came of it as one JSON object"
    )
    _add_sizes(parser.add_argument_group("how far"))
    _add_spans(parser.add_argument_group("motifs"))
    _add_rules(parser.add_argument_group("what motifs do"))


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help=FILES)
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument(
        "--lines",
        action="store_const",
        const="lines",
        dest="reading",
        help="each line of a file is a sequence",
    )
    reading.add_argument(
        "--whole",
        action="store_const",
        const="whole",
        dest="reading",
        help="each file is one sequence, whatever its first byte is",
    )
    parser.add_argument("--upper", action="store_true", help="make sequences upper case")
    parser.add_argument("--spell", choices=("T", "U"), help="write every U as T, or every T as U")


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--size", type=int, metavar="N", help="ids in all (default: 512)")
    group.add_argument("--min-frequency", type=int, metavar="N", help="of a pair (default: 2)")
    group.add_argument("--max-token-length", type=int, metavar="N", help="letters (default: any)")
    group.add_argument(
        "--min-compression", type=float, metavar="C", help="letters for each token of the corpus"
    )
    group.add_argument(
        "--stop",
        choices=("either", "both"),
        help="at the size or the compression, or at both of them (default: either)",
    )
    group.add_argument("--alphabet", metavar="LETTERS", help="(default: all that occur)")
    group.add_argument(
        "--t-and-u",
        choices=("alike", "apart"),
        help="one letter of nucleotide sequences, in training and in encoding, or two (default: "
        "alike)",
    )
    group.add_argument(
        "--special-token",
        action="append",
        dest="special_tokens",
        metavar="TEXT",
        help="the first ids; may be repeated (default: [UNK])",
    )


def _add_spans(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--motifs", metavar="BANK", help="a FASTA, TSV, JSON file, or one a line")
    group.add_argument(
        "--seed-region",
        type=_region,
        metavar="2-8",
        help="bases, from 1, that are a motif in every sequence",
    )
    group.add_argument(
        "--confidence",
        metavar="FILE",
        help="numbers from 0 to 1 for each base, by which motifs weigh: lines >name, then numbers",
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
        help="for each occurrence of a pair inside a motif (default: 2.5)",
    )
    group.add_argument(
        "--mu",
        type=float,
        dest="penalty_weight",
        metavar="M",
        help="against each that crosses a motif's border (default: 10)",
    )
    group.add_argument(
        "--merge-rule",
        choices=("global", "span_preserving"),
        help="motifs move the choice of merges, or are tokens that nothing splits "
        "(default: global)",
    )
    group.add_argument(
        "--motif-tokens", type=int, metavar="N", help="of span_preserving: how many (default: all)"
    )
    group.add_argument("--penalty", choices=("count", "binary"), help="(default: count)")
    group.add_argument(
        "--crossing",
        choices=("split", "any"),
        help="whether a token that has more than a whole motif crosses it (default: split, no)",
    )
    group.add_argument(
        "--merge-harmful", action="store_true", default=None, help="also pairs that score below 0"
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
        help="a built-in vocabulary's name or a file's path; may be repeated",
    )
    _add_corpus(report)
    _add_spans(report.add_argument_group("motifs"))
    report.add_argument("--json", action="store_true", help="one JSON object for each vocabulary")
    report.add_argument("--plot", metavar="FILE", help="draw the figures, SVG")
