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

from service.cli.corpus_arguments import add_corpus
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
    "a built-in vocabulary's name, the path of a vocabulary file or folder, or a name of the "
    "service: of WARPTOK_STORE_DIR or WARPTOK_ALIASES"
)
INPUTS = (
    "files ('-' or none: stdin), gzip or not; each is a text, but for FASTA and FASTQ with a "
    "vocabulary of sequences, which are found from the first byte"
)
SEQUENCE_INPUTS = "FASTA or FASTQ ('-' or none: stdin), gzip or not"


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
        description="Exact token ids of text and DNA: a service, and the same at the command line.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {package_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="answer requests over HTTP"))
    _add_render(commands.add_parser("render", help="render requests for one model's folder"))
    encode = commands.add_parser("encode", help="texts to ids", description=_encode_description())
    _add_inputs(encode)
    _add_answer(encode)
    _add_augmentation(encode.add_argument_group("random changes"))
    _add_inputs(commands.add_parser("count", help="how many ids texts have"))
    _add_windows(commands.add_parser("windows", help="overlapping windows of sequences' ids"))
    _add_statistics(commands.add_parser("statistics", help="which tokens sequences have"))
    _add_decode(commands.add_parser("decode", help="ids to text"))
    listing = commands.add_parser("vocabularies", help="the built-in vocabularies")
    listing.add_argument("--json", action="store_true", help="one JSON object for each")
    _add_verify(commands.add_parser("verify", help="compare an engine's ids with the reference's"))
    _add_convert(commands.add_parser("convert", help="write a vocabulary in another format"))
    add_train(commands.add_parser("train", help="learn a vocabulary from sequences"))
    corpus = commands.add_parser("corpus", help="files of documents to shards of ids")
    _add_vocabulary(corpus)
    add_corpus(corpus, _number)
    add_motifs(commands.add_parser("motifs", help="what vocabularies do to motifs"))
    doctor = commands.add_parser("doctor", help="what the machine has, and whether `serve` starts")
    doctor.description = (
        "Checks the installation, the cards, the settings of the environment and what they name. "
        "Prints a line for each finding; exits with 1 if the service would not start."
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object for all")
    _add_key(commands.add_parser("key", help="a new key for a client of the service"))
    return parser


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a new secret, once, and puts its SHA-256 into the file that WARPTOK_API_KEYS_FILE "
        "names; a running service reads the file again."
    )
    parser.add_argument("name", help="whose key it is")
    parser.add_argument("--file", type=Path, required=True, help="the file of keys")
    parser.add_argument(
        "--scopes",
        nargs="+",
        choices=("encode", "decode", "manage", "train"),
        default=["encode", "decode"],
        help="what it may do (default: encode decode)",
    )
    limit = _number(1, 10**12)
    for rate, what in (("requests", "requests"), ("bytes", "bytes of text and ids")):
        text = f"most {what} in a second (default: any)"
        parser.add_argument(f"--{rate}-per-s", type=limit, metavar="N", help=text)


def _encode_description() -> str:
    return (
        "Prints one line of ids for each text or record. A text that is refused gets an empty "
        "line, is named on stderr with the reason, and makes the exit code 1."
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = "Settings come from WARPTOK_ variables; an option here wins over them."
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="TCP port, 0 for a free one (default: 8000)")
    parser.add_argument(
        "--frontends",
        type=int,
        metavar="N",
        help="HTTP processes in front of one engine process (default: 0, all in one process)",
    )
    parser.add_argument("--engine", help="what computes the ids: auto, cpu or gpu (default: auto)")


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Answers over HTTP as `vllm launch render` does: requests for generation become ids, and "
        "ids become answers. Loads the tokenizer of one model's folder and nothing else, listens "
        "on every address, refuses what is not answered within a second, and changes nothing. "
        "WARPTOK_ variables win over these defaults, and an option over them."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the model's folder")
    parser.add_argument(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="names by which requests call it, beside that in its config.json, the folder's name "
        "and its path",
    )
    parser.add_argument(
        "--max-model-len",
        type=_number(1, MAX_INT64),
        metavar="N",
        help="its length in ids (default: what its files say)",
    )
    parser.add_argument("--pretokenizer", metavar="RULE", help="for a rank file, such as llama3")
    parser.add_argument("--host", help="address to listen on (default: 0.0.0.0)")
    parser.add_argument("--port", type=int, help="TCP port, 0 for a free one (default: 8000)")
    parser.add_argument(
        "--frontends", type=int, metavar="N", help="HTTP processes, a core each (default: 0)"
    )
    parser.add_argument("--engine", help="what computes the ids: auto, cpu or gpu (default: cpu)")
    tls = parser.add_argument_group("TLS, with vLLM's options")
    tls.add_argument("--ssl-certfile", type=Path, metavar="FILE", help="the certificate, PEM")
    tls.add_argument("--ssl-keyfile", type=Path, metavar="FILE", help="its key, PEM")
    tls.add_argument(
        "--enable-ssl-refresh", action="store_true", help="changed files are read again in any case"
    )


def _add_vocabulary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--vocabulary", required=True, metavar="NAME", help=VOCABULARY)
    _add_file_options(parser)


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for vocabulary files that do not say it themselves")
    group.add_argument(
        "--pretokenizer", metavar="RULE", help="name of the pretokenizer, such as cl100k"
    )
    group.add_argument(
        "--special-token",
        action="append",
        dest="special_tokens",
        type=_special_token,
        metavar="TEXT=ID",
        help="a special token and its id; may be repeated",
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
    parser.add_argument("--text", action="append", metavar="TEXT", help="a text, instead of files")
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument(
        "--lines",
        action="store_const",
        const="lines",
        dest="reading",
        help="each line of a file is a text, without its line end",
    )
    reading.add_argument(
        "--whole",
        action="store_const",
        const="whole",
        dest="reading",
        help="each file is one text, whatever its first byte is",
    )
    reading.add_argument(
        "--sequences",
        action="store_const",
        const="sequences",
        dest="reading",
        help="each record of FASTA or FASTQ is a text, and each line of another file",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each text")
    _add_options(parser.add_argument_group("what the ids are"))


def _add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--no-special-tokens", action="store_true", help="no begin and end tokens around the ids"
    )
    group.add_argument(
        "--special",
        choices=("match", "plain", "refuse"),
        default="match",
        help="what special-token text inside a text is (default: match)",
    )
    group.add_argument("--max-length", type=_number(0, MAX_INT64), metavar="N", help="cut to N ids")
    group.add_argument(
        "--truncation-side", choices=("right", "left"), default="right", help="the side that is cut"
    )
    _add_strand_and_circle(group)


def _add_augmentation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--seed",
        type=_number(0, (1 << 64) - 1),
        metavar="N",
        help="DNA: change sequences at random, as the options below say; the same seed gives the "
        "same changes",
    )
    group.add_argument(
        "--crop-letters",
        type=_number(1, (1 << 31) - 1),
        metavar="N",
        help="with --seed: crop longer sequences to N letters",
    )
    group.add_argument(
        "--substitution-rate",
        type=_share,
        metavar="R",
        help="with --seed: the share of A, C, G and T that become another of them",
    )
    group.add_argument(
        "--first-row",
        type=_number(0, MAX_INT64),
        metavar="N",
        help="with --seed: the number of the first sequence in the whole data set (default: 0)",
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
    group.add_argument("--reverse-complement", action="store_true", help="DNA: the other strand")
    group.add_argument(
        "--uppercase", action="store_true", help="make the letters a to z upper case first"
    )
    group.add_argument(
        "--circular",
        action=argparse.BooleanOptionalAction,
        help="k-mers: the sequence wraps (default: as the vocabulary says)",
    )


def _add_windows(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Cuts the tokens of FASTA and FASTQ files into overlapping windows, as POST /v1/windows "
        "does. Prints a line for each window: name, number of its first token, and ids, with tabs "
        "between; with --json an object with input_ids, attention_mask and position_ids."
    )
    _add_vocabulary(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help=SEQUENCE_INPUTS)
    parser.add_argument(
        "--window",
        type=_number(1, MAX_WINDOW),
        default=512,
        metavar="N",
        help="tokens in a window, [CLS] not counted (default: 512)",
    )
    parser.add_argument(
        "--stride",
        type=_number(1, MAX_INT64),
        default=256,
        metavar="N",
        help="tokens from the start of a window to the next (default: 256)",
    )
    _add_strand_and_circle(parser)
    parser.add_argument(
        "--junction",
        choices=("append", "prepend"),
        help="of a circle: k-mers over the junction last or first (default: as the vocabulary "
        "says)",
    )
    parser.add_argument("--add-cls", action="store_true", help="put [CLS] before each window")
    parser.add_argument(
        "--channel",
        metavar="FILE",
        help="with --json: values of bases, such as heteroplasmy levels; lines of a record's "
        "name, a position from 0 and a value, with tabs between; other bases have 0",
    )
    parser.add_argument(
        "--channel-name",
        type=_field_name,
        metavar="NAME",
        help="the channel's name in the answer (default: het_values)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each window")


def _field_name(argument: str) -> str:
    if not (argument.isidentifier() and argument.isascii() and len(argument) <= 64):
        raise argparse.ArgumentTypeError(f"{argument!r} is no name of letters, digits and _")
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
        help="how many of the most frequent k-mers are named (default: 10)",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the figures, SVG")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_answer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offsets",
        choices=("bytes", "codepoints", "utf16"),
        help="with --json: begin and end of each id in the text, in this unit",
    )
    parser.add_argument("--tokens", action="store_true", help="with --json: each id's token")
    parser.add_argument(
        "--token-form",
        choices=("text", "file"),
        default="text",
        help="tokens as readable text (the default), or as a tokenizer.json has them",
    )


def _add_decode(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes the bytes that the ids stand for, exactly. Ids are arguments, or on stdin a JSON "
        "list, an object of `encode --json`, or numbers with white space between."
    )
    _add_vocabulary(parser)
    parser.add_argument("ids", nargs="*", type=_number(0, MAX_INT64), metavar="ID", help="an id")
    parser.add_argument(
        "--lines", action="store_true", help="each line of stdin is a text, and ends one on stdout"
    )
    parser.add_argument("--skip-special-tokens", action="store_true", help="leave them out")
    parser.add_argument(
        "--decoder",
        choices=("file", "inverse"),
        default="file",
        help="decode as the file of the vocabulary says (the default), or to what was encoded",
    )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vocabulary", metavar="NAME", help=VOCABULARY)
    _add_file_options(parser)
    parser.add_argument("--texts", metavar="FILE", help="compare on each line of a file")
    parser.add_argument(
        "--samples",
        type=_number(1, MAX_SAMPLES),
        default=1000,
        metavar="N",
        help="without --texts: compare on N texts made for the vocabulary (default: 1000)",
    )


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vocabulary", metavar="IN", help=VOCABULARY)
    parser.add_argument("out", metavar="OUT", help="file to write, or folder for several files")
    _add_file_options(parser)
    parser.add_argument("--format", help="the format of OUT (default: by its name)")
    parser.add_argument("--force", action="store_true", help="write over files that are there")
