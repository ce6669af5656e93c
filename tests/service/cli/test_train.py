"""`warptok train` and `warptok motifs report`: what they write, print and refuse."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tokenizers import Tokenizer

from service.cli import train as train_command
from service.cli.motif_plot import plot
from service.cli.motif_report import measure_vocabulary
from service.cli.parser import main
from service.engines.cpu.engine import CpuEngine
from service.seqio.corpus import NamedCorpus, read_corpus
from vocabularies import builtin
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.motifs.bank import MotifBank, Spans
from vocabularies.motifs.metrics import measure_motifs
from vocabularies.reference.tokenizer import encode
from vocabularies.sequences.corpus import Corpus
from vocabularies.training import train as training
from vocabularies.training.layout import corpus_spans
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import Progress, train

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    rows = ["".join(rng.choice([*"ACGU"], 30)) for _ in range(40)]
    path = tmp_path / "mature.fa"
    path.write_text("".join(f">m{i}\n{row}\n" for i, row in enumerate(rows)))
    return path


def learnt(path: Path) -> Vocabulary:
    return read_vocabulary({path.name: path.read_bytes()})


def refusal(capsys: Capture, *arguments: str | Path) -> str:
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_vocabulary_is_learnt_and_written(fasta: Path, tmp_path: Path, capsys: Capture) -> None:
    out, log = tmp_path / "tokenizer.json", tmp_path / "log.tsv"
    arguments = ["train", "-o", out, "--size", "40", "--seed-region", "2-8", "--log", log, "--json"]
    arguments += ["--lambda", "1.5", "--mu", "0.25", "--special-token", "[UNK]", fasta]
    assert main([*map(str, arguments)]) == 0
    answer = json.loads(capsys.readouterr().out)
    options = TrainingOptions(40, seed_region=(2, 8), motif_weight=1.5, penalty_weight=0.25)
    expected = train(read_corpus([str(fasta)]).corpus, options)
    assert learnt(out) == expected.vocabulary
    assert (answer["digest"], answer["num_ids"]) == (expected.vocabulary.digest, 40)
    assert (answer["num_merges"], answer["ending"]) == (35, "size")
    lines = log.read_text().splitlines()
    assert len(lines) == 36
    assert lines[0].split("\t")[5:] == ["frequency", "bonus", "penalty", "score"]
    for merge, line in zip(expected.merges, lines[1:], strict=True):
        frequency, bonus, penalty, score = map(Fraction, line.split("\t")[5:])
        assert (frequency, 1000 * bonus, 1000 * penalty) == merge[2:5]
        assert score == frequency + Fraction("1.5") * bonus - Fraction("0.25") * penalty
    assert not (tmp_path / "tokenizer.json.state").exists()


def test_motifs_become_tokens(fasta: Path, tmp_path: Path, capsys: Capture) -> None:
    bank, out = tmp_path / "bank.txt", tmp_path / "out.vocabulary"
    bank.write_text("ACGT\nGGA\n")
    arguments = ["train", "-o", out, "--motifs", bank, "--merge-rule", "span_preserving"]
    assert main([*map(str, arguments), "--size", "20", str(fasta)]) == 0
    assert "ending          size" in capsys.readouterr().out
    assert learnt(out).motifs == ("ACGU", "GGA")


def test_rna_and_dna_have_the_same_ids(fasta: Path, tmp_path: Path, capsys: Capture) -> None:
    """A vocabulary of RNA takes DNA, here and where its file is read by tokenizers."""
    bank, out = tmp_path / "bank.txt", tmp_path / "tokenizer.json"
    bank.write_text("ACGT\nGGA\n")
    command = ["train", "-o", out, "--size", "60", "--motifs", bank, str(fasta)]
    assert main([*map(str, command), "--merge-rule", "span_preserving"]) == 0
    vocabulary, upstream = learnt(out), Tokenizer.from_file(str(out))
    assert any("U" in vocabulary.token_string(i) for i in range(1, 60))
    rna = [*fasta.read_text().split("\n")[1::2], "ACGU[UNK]UUACGu", "[UNK]ACGU"]
    dna = [text.replace("U", "T").replace("[TNK]", "[UNK]") for text in rna]
    for mode in ("match", "plain"):
        options = EncodeOptions(special=mode, spans=True)
        ours = [
            CpuEngine().encode(vocabulary, Batch(texts, options=options)) for texts in (rna, dna)
        ]
        assert ours[0].ids.tolist() == ours[1].ids.tolist()
        assert np.array_equal(ours[0].spans, ours[1].spans)
        rows = [encode(vocabulary, text, options) for text in dna]
        assert ours[1].ids.tolist() == [i for row in rows for i in row.ids]
    expected = [i for row in upstream.encode_batch(dna) for i in row.ids]
    assert expected == CpuEngine().encode(vocabulary, Batch(rna)).ids.tolist()
    capsys.readouterr()
    assert main([*map(str, command), "--t-and-u", "apart", "--force"]) == 0
    assert CpuEngine().encode(learnt(out), Batch(["T"])).ids.tolist() == [0]


def test_ctrl_c_keeps_the_training_and_the_same_command_goes_on(
    fasta: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tokenizer.json"
    command = ["train", "-o", str(out), "--size", "60", str(fasta)]

    @contextmanager
    def interrupting(presses: list[int]) -> Iterator[Callable[[Progress], None]]:
        def show(progress: Progress) -> None:
            if presses and progress.num_ids >= presses[0]:
                presses.pop(0)
                signal.raise_signal(signal.SIGINT)

        yield show

    # Pressed once it stops after the merge; pressed twice it ends at once.
    for presses, told in ([20], "stopped at 20 ids"), ([30, 30], ""):
        with monkeypatch.context() as patch:
            patch.setattr(training, "REPORT_SECONDS", 0.0)
            patch.setattr(train_command, "_bar", lambda presses=presses: interrupting(presses))
            assert main(command) == 130
        captured = capsys.readouterr()
        assert told in captured.err
        assert not out.exists()
    assert "another options" in refusal(capsys, *command[:-1], "--stop", "both", fasta)
    assert main(command) == 0
    expected = train(read_corpus([str(fasta)]).corpus, TrainingOptions(60))
    assert learnt(out) == expected.vocabulary
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_state_of_another_training_is_left_with_fresh(fasta: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokenizer.json"
    state = tmp_path / "tokenizer.json.state"
    state.write_bytes(b"something else")
    command = ["train", "-o", str(out), "--size", "20", str(fasta)]
    assert main(command) == 2
    assert main([*command, "--fresh"]) == 0
    assert not state.exists()


def test_what_cannot_be_learnt_is_refused(fasta: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "tokenizer.json"
    text = tmp_path / "text"
    text.write_text("ACG\nACG\n")
    assert "--lines" in refusal(capsys, "train", "-o", out, text)
    assert main(["train", "-o", str(out), "--lines", str(text)]) == 0
    capsys.readouterr()
    assert "already; use --force" in refusal(capsys, "train", "-o", out, fasta)
    assert main(["train", "-o", str(out), "--force", "--spell", "T", str(fasta)]) == 0
    assert b"T" in learnt(out).tokens
    capsys.readouterr()
    other = tmp_path / "x.vocabulary"
    assert "--format" in refusal(capsys, "train", "-o", tmp_path / "x", fasta)
    for format in ("tiktoken", "vocab.json", "vocab.txt", "kmer"):
        wrong = refusal(capsys, "train", "-o", other, "--format", format, fasta)
        assert f"cannot be written as {format}; use tokenizer.json or canonical" in wrong
    log = tmp_path / "none" / "log.tsv"
    assert "--log: there is no folder" in refusal(capsys, "train", "-o", other, "--log", log, fasta)
    out_of_folder = refusal(capsys, "train", "-o", log.with_name("x.vocabulary"), fasta)
    assert "--out: there is no folder" in out_of_folder
    assert not other.with_name(f"{other.name}.state").exists()
    assert "vocabulary_size: 3 ids" in refusal(capsys, "train", "-o", other, "--size", "3", fasta)
    text.write_text("ACG\nAXG\n")
    assert f"{text}: line 2: has 'X'" in refusal(
        capsys, "train", "-o", other, "--motifs", text, fasta
    )
    text.write_text(">m0\n0.5\n")
    wrong = refusal(capsys, "train", "-o", other, "--confidence", text, fasta)
    assert f"{text}: line 2: 1 records for 40" in wrong or "1 numbers for the 30" in wrong


def test_report_equals_the_metrics_of_the_reference(
    fasta: Path, tmp_path: Path, capsys: Capture
) -> None:
    bank, drawing = tmp_path / "bank.txt", tmp_path / "plot.svg"
    bank.write_text("ACG\nGGAA\n")
    out = tmp_path / "out.vocabulary"
    assert main(["train", "-o", str(out), "--size", "30", str(fasta)]) == 0
    capsys.readouterr()
    command = ["motifs", "report", "-v", str(out), "--motifs", str(bank), "--seed-region", "2-8"]
    assert main([*command, "--json", "--plot", str(drawing), str(fasta)]) == 0
    answer = json.loads(capsys.readouterr().out)
    corpus = read_corpus([str(fasta)]).corpus
    spans = corpus_spans(corpus, MotifBank.of(["ACG", "GGAA"]), (2, 8))
    tokens = [
        (begin + corpus.offsets[i], end + corpus.offsets[i])
        for i in range(len(corpus))
        for begin, end in encode(learnt(out), row(corpus, i)).spans
    ]
    metrics = measure_motifs(corpus, spans, *np.array(tokens).T)
    assert answer["distortion"] == [*metrics.distortion]
    assert (answer["split_rate"], answer["fertility"]) == (metrics.split_rate, metrics.fertility)
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")
    assert main([*command, "-v", "hyenadna", str(fasta)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == [str(out), "hyenadna"]
    assert [line.split()[-1] for line in table if line.startswith("distortion, k = 1")] == [
        "1.0000"
    ]


def row(corpus: Corpus, number: int) -> str:
    begin, end = corpus.offsets[number : number + 2]
    return corpus.data[begin:end].tobytes().decode()


def test_a_report_without_motifs_or_of_a_refused_sequence(
    fasta: Path, capsys: Capture, tmp_path: Path
) -> None:
    assert "--motifs or --seed-region" in refusal(capsys, "motifs", "report", "-v", "gpt2", fasta)
    with pytest.raises(VocabularyError, match="byte 0xc3 is not ASCII"):
        path = tmp_path / "text"
        path.write_text("ACGé")
        read_corpus([str(path)])


def test_a_plot_of_nothing_is_a_plot() -> None:
    nothing = np.zeros(0, np.int64)
    metrics = measure_motifs(Corpus.of([]), Spans.none(), nothing, nothing)
    assert ElementTree.fromstring(plot({"<a>": metrics})).tag.endswith("svg")


def test_sequences_without_letters_are_measured() -> None:
    corpus = NamedCorpus(Corpus.of(["", "ACGT", ""]), ["a", "b", "c"])
    spans = corpus_spans(corpus.corpus, MotifBank.of(["CG"]))
    metrics = measure_vocabulary(CpuEngine(), builtin.load("caduceus"), corpus, spans)
    assert (metrics.num_tokens, metrics.fertility, metrics.split_rate) == (4, 2.0, 0.0)
