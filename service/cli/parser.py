"""Parses the command line `warptok`, or `python -m service`, and runs the command.

Only modules that the command needs are imported: `warptok encode` starts without the web framework.
Exit codes: 0; 1 if something was refused; 2 if the command, a file or a setting is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from service.cli.corpus_arguments import add_corpus, start_early
from service.cli.training_arguments import add_motifs, add_train
from service.core.version import package_version
from service.server.startup import USAGE_ERROR
from vocabularies.errors import VocabularyError

# Shells return 128 + signal for a command that a signal ended.
BROKEN_PIPE, INTERRUPTED = 128 + signal.SIGPIPE, 128 + signal.SIGINT
MAX_INT64 = 2**63 - 1
MAX_SAMPLES = 1_000_000
MAX_WINDOW = 1_048_576
MAX_DIGITS = 30  # No valid number here has so many.
VOCABULARY = (
    "name of a built-in vocabulary, path of a vocabulary file or folder, or a name that the "
    "service knows from WARPTOK_STORE_DIR or WARPTOK_ALIASES"
)
INPUTS = (
    "files, plain or gzip ('-' or none: stdin); each is one text, except FASTA and FASTQ files, "
    "which are recognized by their first byte if the vocabulary is one of sequences"
)
SEQUENCE_INPUTS = "FASTA or FASTQ files, plain or gzip ('-' or none: stdin)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parsed = make_parser().parse_args(arguments)
    if sys.stderr is None:
        # The caller closed it, so print would write errors to stdout.
        sys.stderr = open(os.devnull, "w")
    try:
        code = _run(parsed)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except VocabularyError as error:
        for finding in error.findings:
            print(f"warptok: {finding}", file=sys.stderr)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"warptok: {place}{error.strerror or error}", file=sys.stderr)
    except ValueError as error:
        print(f"warptok: {error}", file=sys.stderr)
    except ImportError as error:
        from service.core.errors import NotInstalled

        if not isinstance(error, NotInstalled):
            raise
        print(f"warptok: {error}", file=sys.stderr)
    return USAGE_ERROR


def _run(parsed: argparse.Namespace) -> int:
    if parsed.command in ("serve", "render"):
        from service.cli import serve

        return serve.run(parsed)
    # None means that the caller closed it; only a service may run like that.
    if sys.stdout is None:
        raise ValueError("stdout is closed")
    if parsed.command in ("encode", "count"):
        from service.cli import encode as encode_command

        return encode_command.run(parsed)
    if parsed.command == "windows":
        from service.cli import windows

        return windows.run(parsed)
    if parsed.command == "statistics":
        from service.cli import statistics

        return statistics.run(parsed)
    if parsed.command in ("train", "motifs"):
        from service.core.extras import check_installed

        check_installed("training and motifs", "dna")
    if parsed.command == "train":
        from service.cli import train

        return train.run(parsed)
    if parsed.command == "motifs":
        from service.cli import motif_report

        return motif_report.run(parsed)
    if parsed.command == "corpus":
        start_early(parsed)
        from service.cli import corpus

        return corpus.run(parsed)
    if parsed.command == "doctor":
        from service.cli.doctor import command

        return command.run(parsed)
    from service.cli import commands

    return commands.COMMANDS[parsed.command](parsed)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands and their options."""
    parser = argparse.ArgumentParser(
        prog="warptok",
        description="Compute exact token ids of text and DNA, as a service or at the command line.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {package_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(
        commands.add_parser(
            "serve", help="start the service, which answers requests over HTTP and gRPC"
        )
    )
    _add_render(
        commands.add_parser(
            "render", help="start a service that renders requests for the model in one folder"
        )
    )
    encode = commands.add_parser(
        "encode", help="encode texts as ids", description=_encode_description()
    )
    _add_inputs(encode)
    _add_answer(encode)
    _add_augmentation(encode.add_argument_group("random changes"))
    _add_inputs(commands.add_parser("count", help="count the ids of texts"))
    _add_windows(
        commands.add_parser("windows", help="encode sequences as overlapping windows of ids")
    )
    _add_statistics(
        commands.add_parser("statistics", help="report how often tokens occur in sequences")
    )
    _add_decode(commands.add_parser("decode", help="decode ids to text"))
    listing = commands.add_parser("vocabularies", help="list the built-in vocabularies")
    listing.add_argument(
        "--json", action="store_true", help="print one JSON object for each vocabulary"
    )
    _add_verify(
        commands.add_parser(
            "verify", help="compare the ids of an engine with those of the reference"
        )
    )
    _add_convert(commands.add_parser("convert", help="write a vocabulary in another format"))
    add_train(commands.add_parser("train", help="train a vocabulary on sequences"))
    corpus = commands.add_parser("corpus", help="encode files of documents as shards of ids")
    _add_vocabulary(corpus)
    add_corpus(corpus, _number)
    add_motifs(commands.add_parser("motifs", help="measure how vocabularies split motifs"))
    doctor = commands.add_parser(
        "doctor", help="check the machine and the settings, and whether `serve` would start"
    )
    doctor.description = (
        "Checks the installation, the cards, the settings of the environment and what they name. "
        "Prints a line for each finding; exits with 1 if the service would not start."
    )
    doctor.add_argument(
        "--json", action="store_true", help="print one JSON object with all findings"
    )
    _add_key(commands.add_parser("key", help="make an API key for a client of the service"))
    return parser


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a new secret once and adds its SHA-256 to the file that WARPTOK_API_KEYS_FILE "
        "names. A running service reads the changed file by itself."
    )
    parser.add_argument("name", help="name of the client")
    parser.add_argument(
        "--file", type=Path, required=True, help="file of API keys, to which the new key is added"
    )
    parser.add_argument(
        "--scopes",
        nargs="+",
        choices=("encode", "decode", "manage", "train"),
        default=["encode", "decode"],
        help="scopes of the key (default: encode decode)",
    )
    limit = _number(1, 10**12)
    for rate, what in (("requests", "requests"), ("bytes", "bytes of text and ids")):
        text = f"maximum number of {what} per second (default: any)"
        parser.add_argument(f"--{rate}-per-s", type=limit, metavar="N", help=text)


def _encode_description() -> str:
    return (
        "Prints one line of ids for each text or record. For a refused text the line is empty, "
        "stderr gives the name of the text and the reason, and the exit code is 1."
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Settings come from the variables WARPTOK_...; the options here override them."
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="TCP port; 0 chooses a free one (default: 8000)")
    parser.add_argument(
        "--frontends",
        type=int,
        metavar="N",
        help="number of HTTP processes in front of one engine process (default: 0, one process "
        "does everything)",
    )
    parser.add_argument(
        "--engine", help="engine that computes the ids: auto, cpu or gpu (default: auto)"
    )


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Answers over HTTP like `vllm launch render`: it converts requests for generation to "
        "ids, and ids to answers. Loads only the tokenizer of one model's folder, listens on "
        "every address, refuses a request that takes more than a second, and lets no request "
        "change anything. The variables WARPTOK_... override these defaults, and options "
        "override both."
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder with the files of the model"
    )
    parser.add_argument(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="further names by which requests may call the model; the name in its config.json, "
        "the folder's name and its path work as well",
    )
    parser.add_argument(
        "--max-model-len",
        type=_number(1, MAX_INT64),
        metavar="N",
        help="context length of the model in ids (default: the length that its files give)",
    )
    parser.add_argument(
        "--pretokenizer", metavar="RULE", help="pretokenizer for a rank file, such as llama3"
    )
    parser.add_argument("--host", help="address to listen on (default: 0.0.0.0)")
    parser.add_argument("--port", type=int, help="TCP port; 0 chooses a free one (default: 8000)")
    parser.add_argument(
        "--frontends",
        type=int,
        metavar="N",
        help="number of HTTP processes, each of which uses one core (default: 0, one process does "
        "everything)",
    )
    parser.add_argument(
        "--engine", help="engine that computes the ids: auto, cpu or gpu (default: cpu)"
    )
    tls = parser.add_argument_group("TLS, with vLLM's options")
    tls.add_argument(
        "--ssl-certfile", type=Path, metavar="FILE", help="PEM file with the certificate for TLS"
    )
    tls.add_argument(
        "--ssl-keyfile",
        type=Path,
        metavar="FILE",
        help="PEM file with the private key of the certificate",
    )
    tls.add_argument(
        "--enable-ssl-refresh",
        action="store_true",
        help="accepted for compatibility: the service always reads changed files again",
    )


def _add_vocabulary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--vocabulary", required=True, metavar="NAME", help=VOCABULARY)
    _add_file_options(parser)


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for vocabulary files without this information")
    group.add_argument(
        "--pretokenizer",
        metavar="RULE",
        help="pretokenizer for a file that does not name one, such as cl100k",
    )
    group.add_argument(
        "--special-token",
        action="append",
        dest="special_tokens",
        type=_special_token,
        metavar="TEXT=ID",
        help="a special token and its id, for a file that does not list them; may be repeated",
    )


def _special_token(argument: str) -> tuple[str, int]:
    content, equals, token_id = argument.rpartition("=")
    if not (content and equals and token_id.isdecimal()):
        raise argparse.ArgumentTypeError(f"{argument!r} is not TEXT=ID")
    return content, int(token_id)


def _number(lowest: int, highest: int) -> Callable[[str], int]:
    """Make a function that parses an argument as a number between two bounds."""

    def read(argument: str) -> int:
        # Python's own error for thousands of digits does not help.
        is_number = argument.isdecimal() and len(argument) <= MAX_DIGITS
        if not is_number or not lowest <= int(argument) <= highest:
            shown = argument if len(argument) <= MAX_DIGITS else f"{argument[:MAX_DIGITS]}..."
            problem = f"{shown!r} is not a number from {lowest} to {highest}"
            raise argparse.ArgumentTypeError(problem)
        return int(argument)

    return read


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    _add_vocabulary(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help=INPUTS)
    parser.add_argument(
        "--text", action="append", metavar="TEXT", help="text to encode, instead of files"
    )
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument(
        "--lines",
        action="store_const",
        const="lines",
        dest="reading",
        help="treat each line of a file as a text, without its line end",
    )
    reading.add_argument(
        "--whole",
        action="store_const",
        const="whole",
        dest="reading",
        help="treat each file as one text, even if it begins like FASTA or FASTQ",
    )
    reading.add_argument(
        "--sequences",
        action="store_const",
        const="sequences",
        dest="reading",
        help="treat each record of FASTA or FASTQ as a text, and each line of other files",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each text")
    _add_options(parser.add_argument_group("options of encoding"))


def _add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--no-special-tokens",
        action="store_true",
        help="do not put begin and end tokens around the ids",
    )
    group.add_argument(
        "--special",
        choices=("match", "plain", "refuse"),
        default="match",
        help="text of special tokens in the input: give it its id (match), treat it as plain text, "
        "or refuse the text (default: match)",
    )
    group.add_argument(
        "--max-length", type=_number(0, MAX_INT64), metavar="N", help="truncate each text to N ids"
    )
    group.add_argument(
        "--truncation-side",
        choices=("right", "left"),
        default="right",
        help="side at which ids are removed (default: right)",
    )
    _add_strand_and_circle(group)


def _add_augmentation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--seed",
        type=_number(0, (1 << 64) - 1),
        metavar="N",
        help="DNA: change sequences at random with the options below; the same seed makes the "
        "same changes",
    )
    group.add_argument(
        "--crop-letters",
        type=_number(1, (1 << 31) - 1),
        metavar="N",
        help="with --seed: crop sequences of more than N letters to N letters",
    )
    group.add_argument(
        "--substitution-rate",
        type=_share,
        metavar="R",
        help="with --seed: fraction of the bases A, C, G and T that are replaced by another of "
        "them",
    )
    group.add_argument(
        "--first-row",
        type=_number(0, MAX_INT64),
        metavar="N",
        help="with --seed: number of the first sequence within the whole data set (default: 0)",
    )


def _share(argument: str) -> float:
    try:
        share = float(argument)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number from 0 to 1")
    return share


def _add_strand_and_circle(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--reverse-complement", action="store_true", help="DNA: encode the reverse complement"
    )
    group.add_argument(
        "--uppercase", action="store_true", help="convert the letters a to z to upper case first"
    )
    group.add_argument(
        "--circular",
        action=argparse.BooleanOptionalAction,
        help="k-mers: treat sequences as circular, with k-mers across the end and the start "
        "(default: as the vocabulary says)",
    )


def _add_windows(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Cuts the tokens of FASTA and FASTQ files into overlapping windows, as POST /v1/windows "
        "does. Prints a line for each window: name, number of its first token and ids, separated "
        "by tabs; or with --json an object with input_ids, attention_mask and position_ids."
    )
    _add_vocabulary(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help=SEQUENCE_INPUTS)
    parser.add_argument(
        "--window",
        type=_number(1, MAX_WINDOW),
        default=512,
        metavar="N",
        help="number of tokens in a window, not counting [CLS] (default: 512)",
    )
    parser.add_argument(
        "--stride",
        type=_number(1, MAX_INT64),
        default=256,
        metavar="N",
        help="number of tokens between the starts of two windows (default: 256)",
    )
    _add_strand_and_circle(parser)
    parser.add_argument(
        "--junction",
        choices=("append", "prepend"),
        help="circular sequences: put the k-mers across the junction last or first (default: as "
        "the vocabulary says)",
    )
    parser.add_argument("--add-cls", action="store_true", help="put [CLS] before each window")
    parser.add_argument(
        "--channel",
        metavar="FILE",
        help="with --json: file with a value for each base, such as a heteroplasmy level. Each "
        "line has the name of a record, a position from 0 on and a value, separated by tabs; "
        "bases that are not listed have 0",
    )
    parser.add_argument(
        "--channel-name",
        type=_field_name,
        metavar="NAME",
        help="name of the values of --channel in the answer (default: het_values)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each window")


def _field_name(argument: str) -> str:
    if not (argument.isidentifier() and argument.isascii() and len(argument) <= 64):
        raise argparse.ArgumentTypeError(
            f"{argument!r} must consist of letters, digits and _, and not begin with a digit"
        )
    return argument


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Counts the tokens of FASTA and FASTQ files: how many k-mers of the vocabulary occur, "
        "which are the most frequent, how many are [UNK], and how many tokens a sequence has."
    )
    _add_vocabulary(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help=SEQUENCE_INPUTS)
    _add_strand_and_circle(parser)
    parser.add_argument(
        "--top",
        type=_number(0, MAX_INT64),
        default=10,
        metavar="N",
        help="how many of the most frequent k-mers are listed (default: 10)",
    )
    parser.add_argument("--plot", metavar="FILE", help="also draw the figures as an SVG file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_answer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offsets",
        choices=("bytes", "codepoints", "utf16"),
        help="with --json: also print where each id begins and ends in the text, in this unit",
    )
    parser.add_argument(
        "--tokens", action="store_true", help="with --json: also print the token of each id"
    )
    parser.add_argument(
        "--token-form",
        choices=("text", "file"),
        default="text",
        help="print tokens as readable text (the default), or as they are spelled in a "
        "tokenizer.json",
    )


def _add_decode(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes exactly the bytes that the ids mean. Ids are arguments, or stdin has a JSON "
        "list, an object of `encode --json`, or numbers separated by white space."
    )
    _add_vocabulary(parser)
    parser.add_argument(
        "ids", nargs="*", type=_number(0, MAX_INT64), metavar="ID", help="id to decode"
    )
    parser.add_argument(
        "--lines",
        action="store_true",
        help="decode each line of stdin separately, and print one line for each",
    )
    parser.add_argument(
        "--skip-special-tokens", action="store_true", help="leave special tokens out of the text"
    )
    parser.add_argument(
        "--decoder",
        choices=("file", "inverse"),
        default="file",
        help="decode as the vocabulary's file says (the default), or to exactly the text that "
        "was encoded",
    )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vocabulary", metavar="NAME", help=VOCABULARY)
    _add_file_options(parser)
    parser.add_argument("--texts", metavar="FILE", help="compare the ids of each line of a file")
    parser.add_argument(
        "--samples",
        type=_number(1, MAX_SAMPLES),
        default=1000,
        metavar="N",
        help="without --texts: compare N texts that are generated for the vocabulary (default: "
        "1000)",
    )


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vocabulary", metavar="IN", help=VOCABULARY)
    parser.add_argument(
        "out", metavar="OUT", help="file to write, or folder if the format has several files"
    )
    _add_file_options(parser)
    parser.add_argument("--format", help="format of OUT (default: the format that its name says)")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
