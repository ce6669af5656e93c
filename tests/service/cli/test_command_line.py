"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import gzip
import io
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.cli.parser import main
from service.core.version import package_version
from service.seqio.reader import BadRecords, Record, batches, read_records
from tests.support.data_files import ROOT
from tests.support.fake_engine import FakeEngine
from tests.support.server_process import Server, server_process, service_environment
from vocabularies import builtin
from vocabularies.formats.canonical_files import add_checksum
from vocabularies.model import canonical

HELLO = [15496, 11, 995, 0]
FASTA = b">first some words\nACGT\nACGTAC\n>second\nacgtac\n"
FASTQ = b"@read\nACGTACGT\n+\nIIIIIIII\n"
Capture = pytest.CaptureFixture[bytes]


def output(capture: Capture, *arguments: str, code: int = 0) -> str:
    """Return a command's stdout, and check its exit code."""
    assert main(arguments) == code
    return capture.readouterr().out.decode()


def complaint(capture: Capture, *arguments: str, code: int = 2) -> str:
    """Return the message of a failing command: a line for each fault, and nothing on stdout."""
    assert main(arguments) == code
    captured = capture.readouterr()
    assert captured.out == b""
    return captured.err.decode()


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


def test_a_text_gives_its_ids_with_spaces_between(capfdbinary: Capture) -> None:
    assert output(capfdbinary, "encode", "-v", "gpt2", "--text", "Hello, world!") == (
        "15496 11 995 0\n"
    )


def test_json_has_the_words_of_the_http_answer(capfdbinary: Capture) -> None:
    arguments = ("encode", "-v", "gpt2", "--json", "--tokens", "--offsets", "codepoints")
    answer = json.loads(output(capfdbinary, *arguments, "--text", "Hé!"))
    assert answer["offsets"] == [[0, 1], [1, 2], [2, 3]]
    assert answer["tokens"] == ["H", "é", "!"]
    assert (answer["num_tokens"], answer["engine"]) == (3, "cpu")


def test_an_empty_text_has_no_ids_and_keeps_its_line(capfdbinary: Capture) -> None:
    arguments = ("encode", "-v", "gpt2", "--offsets", "bytes", "--json", "--text", "")
    answer = json.loads(output(capfdbinary, *arguments))
    assert (answer["ids"], answer["offsets"]) == ([], [])
    assert output(capfdbinary, "encode", "-v", "gpt2", "--text", "") == "\n"


def test_truncation_is_reported(capfdbinary: Capture) -> None:
    arguments = ("encode", "-v", "gpt2", "--json", "--max-length", "2", "--truncation-side", "left")
    answer = json.loads(output(capfdbinary, *arguments, "--text", "Hello, world!"))
    assert answer["ids"] == HELLO[2:]
    assert answer["truncated"] == {"num_tokens": 4, "kept": [2, 4]}


def test_options_reach_the_engine(capfdbinary: Capture) -> None:
    encode = ("encode", "-v", "dnabert1_6mer", "--text", "ACGTAC")
    whole = output(capfdbinary, *encode).split()
    bare = output(capfdbinary, *encode, "--no-special-tokens").split()
    assert whole == ["2", *bare, "3"]
    other = output(capfdbinary, *encode, "--reverse-complement", "--no-special-tokens")
    back = ("encode", "-v", "dnabert1_6mer", "--no-special-tokens", "--text", "GTACGT")
    assert other == output(capfdbinary, *back)
    plain = ("encode", "-v", "gpt2", "--special", "plain", "--text", "<|endoftext|>")
    assert len(output(capfdbinary, *plain).split()) > 1


def test_many_unknown_ids_are_a_warning(capfdbinary: Capture) -> None:
    encode = ("encode", "-v", "dnabert2", "--text")
    assert main([*encode, "acgtacgtNN"]) == 0
    assert capfdbinary.readouterr().err.decode() == (
        "warptok: 100% of the ids are [UNK]; there are lower-case letters, which --uppercase makes "
        "upper case\n"
    )
    assert main([*encode, "NNNNNA"]) == 0
    assert capfdbinary.readouterr().err == b"warptok: 83% of the ids are [UNK]\n"
    assert main([*encode, "acgtacgt", "--uppercase"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.err == b""
    assert captured.out.decode() == output(capfdbinary, *encode, "ACGTACGT")
    assert main(["encode", "-v", "gpt2", "--text", "acgt"]) == 0
    assert capfdbinary.readouterr().err == b""
    for name in ("mtdna6", "gpn"):  # They ignore the case, so an option for it does not help.
        assert main(["encode", "-v", name, "--text", "acgtNNNNNN"]) == 0
        assert capfdbinary.readouterr().err.endswith(b"% of the ids are [UNK]\n")


@pytest.mark.parametrize("name", ["a.fa", "a.fa.gz"])
def test_fasta_records_are_lines(capfdbinary: Capture, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(FASTA) if name.endswith("gz") else FASTA)
    lines = output(capfdbinary, "count", "-v", "dnabert1_6mer", str(path)).splitlines()
    assert lines == ["7\tfirst", "3\tsecond"]


def test_fastq_on_stdin_is_found_from_its_first_byte(
    capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_stdin(monkeypatch, gzip.compress(FASTQ))
    assert output(capfdbinary, "count", "-v", "dnabert1_6mer") == "5\tread\n"


@pytest.mark.parametrize(
    ("arguments", "begin"),
    [
        (["encode", "-v", "hyenadna"], b"7 8 9 10 1\n"),
        (["count", "-v", "hyenadna"], b"5\tone\n"),
        (["windows", "-v", "hyenadna"], b"one\t0\t7 8 9 10\n"),
        (["statistics", "-v", "hyenadna"], b"sequences             1\n"),
        (["motifs", "report", "-v", "dnabert2", "--seed-region", "1-2"], b" "),
    ],
)
@pytest.mark.parametrize("files", [[], ["-"]])
def test_without_files_stdin_is_read(
    capfdbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    begin: bytes,
    files: list[str],
) -> None:
    give_stdin(monkeypatch, b">one\nACGT\n")
    assert main([*arguments, *files]) == 0
    assert capfdbinary.readouterr().out.startswith(begin)


def test_whole_takes_a_file_as_it_is(capfdbinary: Capture, tmp_path: Path) -> None:
    path = tmp_path / "quote.md"
    path.write_bytes(b"> quoted\n")
    ids = output(capfdbinary, "encode", "-v", "gpt2", "--whole", str(path)).split()
    assert output(capfdbinary, "decode", "-v", "gpt2", *ids) == "> quoted\n"


@pytest.mark.parametrize("text", ["> quoted\nwords\n", "@you\nhello\n+\n", ">a\nACGT\n>b\nAC\n"])
@pytest.mark.slow
def test_a_vocabulary_of_text_reads_text_whatever_it_begins_with(
    capfdbinary: Capture, caplog: pytest.LogCaptureFixture, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "quote.md"
    path.write_text(text)
    ids = output(capfdbinary, "encode", "-v", "gpt2", str(path))
    assert ids == output(capfdbinary, "encode", "-v", "gpt2", "--whole", str(path))
    (line,) = caplog.records
    assert "is read as text; --sequences reads FAST" in line.getMessage()


def test_a_vocabulary_of_text_reads_sequences_by_option(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "a.fa"
    path.write_bytes(FASTA)
    lines = output(capfdbinary, "count", "-v", "gpt2", "--sequences", str(path)).splitlines()
    assert [line.split("\t")[1] for line in lines] == ["first", "second"]


def test_a_fasta_that_lost_its_first_header_is_refused(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "a.fa"
    path.write_bytes(FASTA.partition(b"\n")[2])
    message = complaint(capfdbinary, "encode", "-v", "dnabert2", str(path))
    assert message.startswith(f"warptok: {path}: line 3 begins with '>'")
    assert output(capfdbinary, "encode", "-v", "dnabert2", "--whole", str(path))


def test_an_empty_file_has_no_records_but_is_an_empty_text(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    """HTTP agrees: /v1/encode/fasta answers no rows, and /v1/encode the ids of an empty text."""
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert output(capfdbinary, "encode", "-v", "dnabert2", str(path)) == ""
    assert output(capfdbinary, "encode", "-v", "dnabert2", "--whole", str(path)) == "1 2\n"
    assert output(capfdbinary, "count", "-v", "gpt2", str(path)) == f"0\t{path}\n"


def test_the_version_is_printed(capfdbinary: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capfdbinary.readouterr().out.decode() == f"warptok {package_version()}\n"


def test_lines_and_their_ids_correspond(
    capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "one\n\ntwo é\nlast\n"
    give_stdin(monkeypatch, text.encode())
    encoded = output(capfdbinary, "encode", "-v", "gpt2", "--lines")
    assert len(encoded.splitlines()) == 4
    give_stdin(monkeypatch, encoded.encode())
    assert output(capfdbinary, "decode", "-v", "gpt2", "--lines") == text


def test_a_refused_row_is_named_and_the_others_are_answered(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"Hello\n<|endoftext|>\nHello")
    arguments = ("encode", "-v", "gpt2", "--lines", "--special", "refuse", str(path))
    assert main(arguments) == 1
    captured = capfdbinary.readouterr()
    assert captured.out == b"15496\n\n15496\n"
    assert f"{path}:2: ".encode() in captured.err
    assert b"byte 0" in captured.err and b"special_token_refused" in captured.err
    assert main((*arguments, "--json")) == 1
    answers = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [answer.get("ids") for answer in answers] == [[15496], None, [15496]]
    assert answers[1]["error"]["code"] == "special_token_refused"


def test_bytes_that_are_not_utf8_are_refused_with_their_place(
    capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_stdin(monkeypatch, b"ab\xff")
    assert main(("count", "-v", "gpt2")) == 1
    captured = capfdbinary.readouterr()
    assert captured.out == b"-\n"
    assert b"not UTF-8" in captured.err and b"byte 2" in captured.err


@pytest.mark.parametrize(
    "ids", [b"[15496, 11, 995, 0]", b"15496 11\n995 0", b'{"ids": [15496,11,995,0]}']
)
def test_decode_reads_json_and_spaces(
    capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch, ids: bytes
) -> None:
    give_stdin(monkeypatch, ids)
    assert output(capfdbinary, "decode", "-v", "gpt2") == "Hello, world!"


def test_decode_leaves_out_special_tokens_by_option(capfdbinary: Capture) -> None:
    arguments = ("decode", "-v", "gpt2", "15496", "50256")
    assert output(capfdbinary, *arguments) == "Hello<|endoftext|>"
    assert output(capfdbinary, *arguments, "--skip-special-tokens") == "Hello"


@pytest.mark.parametrize(
    "ids", [b"[1, true]", b"[1.5]", b"1 x", b"[1", b"{}", b"[9999999999999999999]", b"9" * 5000]
)
def test_what_is_no_list_of_ids_is_refused(
    capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch, ids: bytes
) -> None:
    give_stdin(monkeypatch, ids)
    assert complaint(capfdbinary, "decode", "-v", "gpt2").startswith("warptok: stdin: ")


def test_an_id_outside_the_vocabulary_is_named(capfdbinary: Capture) -> None:
    message = complaint(capfdbinary, "decode", "-v", "gpt2", "1", "50257", code=1)
    assert "ids[1]" in message


def test_the_table_lists_every_built_in_vocabulary(capfdbinary: Capture) -> None:
    from vocabularies.builtin import BUILTINS

    lines = output(capfdbinary, "vocabularies").splitlines()
    assert [line.split()[0] for line in lines] == ["name", *BUILTINS]
    rows = [json.loads(line) for line in output(capfdbinary, "vocabularies", "--json").splitlines()]
    assert [row["name"] for row in rows] == list(BUILTINS)
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", row["digest"]) for row in rows)


def test_a_vocabulary_of_the_service_is_found_by_any_of_its_names(
    capfdbinary: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = add_checksum(canonical.to_bytes(builtin.load("gpn")))
    (tmp_path / "my%2Fdna.vocabulary").write_bytes(content)
    (tmp_path / "aliases.json").write_bytes(add_checksum(b'{"dna": "my/dna"}'))
    monkeypatch.setenv("WARPTOK_STORE_DIR", str(tmp_path))
    monkeypatch.setenv("WARPTOK_ALIASES", "openai/gpt-2=gpt2")
    expected = output(capfdbinary, "encode", "-v", "gpn", "--text", "ACGT")
    for name in ("my/dna", "dna"):
        assert output(capfdbinary, "encode", "-v", name, "--text", "ACGT") == expected
    assert output(capfdbinary, "count", "-v", "openai/gpt-2", "--text", "Hello, world!") == "4\n"
    said = complaint(capfdbinary, "encode", "-v", "no/ne", "--text", "x")
    assert "no/ne: no such file or folder, nor a vocabulary of the store" in said
    arguments = ("encode", "-v", "my/dna", "--pretokenizer", "gpt2", "--text", "x")
    assert "do not apply to it" in complaint(capfdbinary, *arguments)


def test_a_near_name_is_suggested(capfdbinary: Capture) -> None:
    message = complaint(capfdbinary, "encode", "-v", "gtp2", "--text", "a")
    assert message == (
        "warptok: 'gtp2' is neither a built-in vocabulary nor a file; did you mean gpt2?\n"
    )


@pytest.mark.parametrize(
    "arguments", [("encode", "-v", "gpt2", "none.txt"), ("count", "-v", "./none")]
)
def test_a_missing_file_is_named_in_one_line(
    capfdbinary: Capture, arguments: tuple[str, ...]
) -> None:
    message = complaint(capfdbinary, *arguments)
    assert "none" in message and "o such file" in message
    assert message.count("\n") == 1


def test_every_fault_of_a_vocabulary_file_is_named(capfdbinary: Capture, tmp_path: Path) -> None:
    path = tmp_path / "bad.tiktoken"
    path.write_bytes(b"IQ== 0\nnot-base64! 1\nIg== x\n")
    options = ("--pretokenizer", "cl100k", "--text", "a")
    message = complaint(capfdbinary, "encode", "-v", str(path), *options)
    assert "line 2" in message and "line 3" in message


@pytest.mark.parametrize(
    "data",
    [
        b"@r\nACGT\n+\nII\n",
        b">r\nAC\xffGT\n",
        gzip.compress(FASTA * 50, mtime=0)[:-20],
        b"@r\nACGT\n",
    ],
)
def test_a_damaged_file_is_refused_with_its_name(
    capfdbinary: Capture, tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(data)
    assert main(("encode", "-v", "gpn", str(path))) == 2
    message = capfdbinary.readouterr().err
    assert f"warptok: {path}: ".encode() in message
    # Damaged gzip is damaged however it is read; the others may be text.
    assert (b"--whole" in message) == (data[:1] in b">@")


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode", "-v", "gpt2", "--text", "a", "file"),
        ("encode", "-v", "gpt2", "--text", "a", "--tokens"),
        ("encode", "-v", "gpt2", "--pretokenizer", "cl100k", "--text", "a"),
        ("convert", "gpt2", "somewhere"),
        ("convert", "gpt2", "somewhere", "--format", "pickle"),
    ],
)
def test_a_contradiction_is_refused(capfdbinary: Capture, arguments: tuple[str, ...]) -> None:
    assert complaint(capfdbinary, *arguments).startswith("warptok: ")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("encode", "--text", "a"),
        ("encode", "-v", "gpt2", "--max-length", "-1", "--text", "a"),
        ("encode", "-v", "gpt2", "--lines", "--whole"),
        ("encode", "-v", "gpt2", "--special-token", "x", "--text", "a"),
        ("decode", "-v", "gpt2", "x"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2


@pytest.mark.parametrize("number", ["-1", "1.5", "", "x", str(2**63), "9" * 5000])
@pytest.mark.parametrize(
    "arguments",
    [("encode", "-v", "gpt2", "--text", "a", "--max-length"), ("verify", "gpt2", "--samples")],
)
def test_a_number_out_of_bounds_is_refused_with_the_bounds(
    capfdbinary: Capture, arguments: tuple[str, ...], number: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        main((*arguments[:-1], f"{arguments[-1]}={number}"))
    assert raised.value.code == 2
    message = capfdbinary.readouterr().err.decode().splitlines()[-1]
    assert f"{arguments[-1]}: " in message and " is not a number from " in message
    assert len(message) < 200


def test_the_largest_number_is_accepted(capfdbinary: Capture) -> None:
    largest = str(2**63 - 1)
    encode = ("encode", "-v", "gpt2", "--max-length", largest, "--text", "Hello, world!")
    assert output(capfdbinary, *encode) == "15496 11 995 0\n"
    assert "ids[0]" in complaint(capfdbinary, "decode", "-v", "gpt2", largest, code=1)


@pytest.mark.slow
def test_a_converted_vocabulary_gives_the_same_ids(capfdbinary: Capture, tmp_path: Path) -> None:
    text = ("--text", "Hello, world!<|endoftext|>")
    expected = output(capfdbinary, "encode", "-v", "gpt2", *text)
    document = tmp_path / "tokenizer.json"
    assert output(capfdbinary, "convert", "gpt2", str(document)) == f"{document}\n"
    assert output(capfdbinary, "encode", "-v", str(document), *text) == expected
    assert output(capfdbinary, "encode", "-v", str(tmp_path), *text) == expected
    ranks = tmp_path / "ranks.tiktoken"
    output(capfdbinary, "convert", "gpt2", str(ranks))
    options = ("--pretokenizer", "gpt2", "--special-token", "<|endoftext|>=50256")
    assert output(capfdbinary, "encode", "-v", str(ranks), *options, *text) == expected


def test_truncation_of_a_file_is_told_and_not_followed(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    output(capfdbinary, "convert", "gpt2", str(path))
    truncation = {"max_length": 2, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": truncation}))
    assert main(["encode", "-v", str(path), "--text", "Hello, world!"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == b"15496 11 995 0\n"
    assert captured.err.decode().startswith(f"warptok: {path}: truncation of the file is not")
    assert captured.err.count(b"\n") == 1


def test_convert_never_overwrites_a_file_without_force(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("precious")
    assert "exists already" in complaint(capfdbinary, "convert", "gpt2", str(path))
    assert path.read_text() == "precious"
    output(capfdbinary, "convert", "gpt2", str(path), "--force")
    assert path.stat().st_size > 1_000_000


def test_verify_compares_with_the_reference(capfdbinary: Capture, tmp_path: Path) -> None:
    assert output(capfdbinary, "verify", "dnabert1_3mer", "--samples", "20").startswith("20 of 20 ")
    path = tmp_path / "texts"
    path.write_text("Hello, world!\nfive 12345\n")
    assert output(capfdbinary, "verify", "gpt2", "--texts", str(path)).startswith("2 of 2 texts")


def test_verify_names_the_line_that_is_not_utf8(capfdbinary: Capture, tmp_path: Path) -> None:
    path = tmp_path / "texts"
    path.write_bytes(b"fine\r\n\nab\xff\n")
    message = complaint(capfdbinary, "verify", "gpt2", "--texts", str(path))
    assert message.startswith(f"warptok: {path}:3: byte 2 is not UTF-8: ")


def test_convert_makes_the_folder_that_was_named_and_no_other(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    several = ("convert", "gpt2", "--format", "vocab.json")
    output(capfdbinary, *several, str(tmp_path / "new"))
    assert {path.name for path in (tmp_path / "new").iterdir()} >= {"vocab.json", "merges.txt"}
    for out in (tmp_path / "no" / "ranks.tiktoken", tmp_path / "no" / "folder"):
        format = ("--format", "tiktoken") if out.suffix else ("--format", "vocab.json")
        message = complaint(capfdbinary, "convert", "gpt2", *format, str(out))
        assert "o such file" in message
    assert not (tmp_path / "no").exists()


def test_verify_shows_the_first_difference(
    capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It says that the ids are the bytes, which is true of no vocabulary here.
    monkeypatch.setattr("service.cli.commands.CpuEngine", FakeEngine)
    printed = output(capfdbinary, "verify", "hyenadna", "--samples", "5", code=1)
    assert not printed.startswith("5 of 5 texts")
    assert "\n  engine: [" in printed and "\n  reference: [" in printed


def test_records_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.fa"
    path.write_bytes(FASTA + b">third\nACGT")
    records = read_records([str(path)], "auto")
    assert next(records) == Record("first", b"ACGTACGTAC")
    assert [record.name for record in records] == ["second", "third"]


def test_a_batch_is_bounded_and_loses_nothing() -> None:
    records = [Record(str(size), b"x" * size) for size in (1, 2, 3, 10, 1, 1, 1, 1)]
    made = list(batches(records, max_bytes=5, max_records=3))
    assert [[len(record.data) for record in batch] for batch in made] == [
        [1, 2],
        [3],
        [10],
        [1, 1, 1],
        [1],
    ]


def test_a_file_that_only_begins_like_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x1f\x8b but no gzip")
    with pytest.raises(BadRecords, match="x"):
        list(read_records([str(path)], "auto"))


def run(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "service", *arguments]
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen(command, cwd=ROOT, env=service_environment(), **{**pipes, **options})


@pytest.mark.parametrize(
    ("arguments", "closed", "message"),
    [
        (("encode", "-v", "evo_bytes"), "stdin", b"warptok: stdin is closed\n"),
        (("decode", "-v", "evo_bytes"), "stdin", b"warptok: stdin is closed\n"),
        (("decode", "-v", "evo_bytes", "--lines"), "stdin", b"warptok: stdin is closed\n"),
        (("encode", "-v", "evo_bytes", "--text", "A"), "stdout", b"warptok: stdout is closed\n"),
        # The complaint about the missing file belongs to stderr, and never among the ids.
        (("encode", "-v", "evo_bytes", "no-such-file"), "stderr", b""),
    ],
)
def test_a_closed_stream_is_named_in_one_line(
    arguments: tuple[str, ...], closed: str, message: bytes
) -> None:
    number = ("stdin", "stdout", "stderr").index(closed)
    command = [sys.executable, "-m", "service", *arguments]
    closing = ["sh", "-c", f'exec "$@" {number}{"<" if closed == "stdin" else ">"}&-', "sh"]
    done = subprocess.run(
        [*closing, *command], cwd=ROOT, env=service_environment(), capture_output=True, timeout=180
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", message)


def test_a_reader_that_has_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"Hello, world!\n" * 100_000)
    with run("encode", "-v", "gpt2", "--lines", str(path)) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"15496 11 995 0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(180) == 128 + signal.SIGPIPE


def test_ctrl_c_ends_the_command_quietly() -> None:
    with run("encode", "-v", "evo_bytes", "--lines") as process:
        assert process.stdin is not None and process.stdout is not None
        # More than one batch: when its answer comes the command is waiting for the rest.
        process.stdin.write(b"ACGT\n" * 5000)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=180)
        assert complaints == b""
        assert process.returncode == 128 + signal.SIGINT


def test_serve_says_where_it_listens_and_sigterm_ends_it_with_0(server: Server) -> None:
    with server_process(server.log.parent, {"WARPTOK_PRELOAD": "none"}) as own:
        log = own.log.read_text()
        assert f"on {own.url}, gRPC on 127.0.0.1:" in log
        assert f"(documentation: {own.url}/docs)" in log


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"WARPTOK_PROT": "8000"}, "did you mean WARPTOK_PORT?"),
        ({"WARPTOK_PORT": "many"}, "WARPTOK_PORT: "),
        ({"WARPTOK_PRELOAD": "gtp2"}, "WARPTOK_PRELOAD: "),
    ],
)
def test_a_wrong_setting_stops_the_start_in_one_line(settings: dict[str, str], words: str) -> None:
    command = [sys.executable, "-m", "service", "serve"]
    if "WARPTOK_PORT" not in settings:
        command += ["--port", "0"]
    done = subprocess.run(
        command, cwd=ROOT, env=service_environment(settings), capture_output=True, timeout=180
    )
    assert done.returncode != 0
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_wrong_option_is_named_as_it_was_given() -> None:
    command = [sys.executable, "-m", "service", "serve", "--port", "70000"]
    environment = service_environment({"WARPTOK_MAX_TEXTS": "0"})
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=180)
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert "--port: " in line and "WARPTOK_MAX_TEXTS: " in line and "WARPTOK_PORT" not in line


@pytest.mark.parametrize(
    "setting, value, words, frontends",
    [
        ("STORE_DIR", str(ROOT / "README.md"), "/README.md: ", "0"),
        ("STORE_DIR", str(ROOT / "README.md"), "/README.md: ", "1"),
        ("API_KEYS_FILE", "/nowhere", "/nowhere: No such file or directory", "0"),
        ("API_KEYS_FILE", str(ROOT / "README.md"), "README.md: not JSON: ", "1"),
        ("HOST", "192.0.2.1", "Cannot assign requested address", "0"),
        ("HOST", "192.0.2.1", "Cannot assign requested address", "1"),
        ("GRPC_PORT", "taken", "another port: WARPTOK_GRPC_PORT", "0"),
        ("GRPC_PORT", "taken", "another port: WARPTOK_GRPC_PORT", "1"),
        ("METRICS_PORT", "taken", "another port: WARPTOK_METRICS_PORT", "1"),
    ],
)
@pytest.mark.slow
def test_what_stops_the_start_ends_with_2_and_names_the_setting(
    setting: str, value: str, words: str, frontends: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = str(taken.getsockname()[1]) if value == "taken" else value
        environment = {"WARPTOK_GRPC_PORT": "0", "WARPTOK_PRELOAD": "none"}
        environment |= {"WARPTOK_PORT": "0", "WARPTOK_FRONTENDS": frontends}
        environment = service_environment(environment | {f"WARPTOK_{setting}": given})
        command = [sys.executable, "-m", "service", "serve"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=180)
    complaints = done.stderr.decode()
    assert done.returncode == 2, complaints
    assert f"WARPTOK_{setting}" in complaints and words in complaints
    assert "Traceback" not in complaints and "  File " not in complaints


def test_a_port_in_use_stops_the_start(server: Server) -> None:
    with run("serve", "--port", server.url.rpartition(":")[2]) as process:
        _, complaints = process.communicate(timeout=180)
        assert process.returncode == 2
        place = server.url.removeprefix("http://").encode()
        assert complaints.strip().endswith(b"WARPTOK_PORT: %b: Address already in use" % place)
