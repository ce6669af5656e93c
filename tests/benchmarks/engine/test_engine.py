"""The GPU benchmark as a command, with tiny texts on an emulation: comparisons and results."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.engine import __main__, competitors, gpu_calls
from benchmarks.engine.blocks.session import TINY
from benchmarks.engine.references import reference_libraries
from benchmarks.engine.references.proofs import Differs, NotProved, Proofs
from benchmarks.engine.references.published_vocabularies import read_published
from benchmarks.engine.references.reference_libraries import (
    GroupDigests,
    counts_digest,
    ids_digest,
    reference_ids,
)
from benchmarks.support.corpora import FILES, make_corpus
from benchmarks.support.texts import cut_rows, one_row
from tests.support.data_files import ids_digest as expected_digest
from tests.support.fake_engine import PanicException
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS
from vocabularies.reference.tokenizer import encode

GPT2 = load("gpt2")
PROSE = (
    "It was the best of times, it's said; naïve café-goers paid 1,234.50 in 1859.\n\n"
    "  Über 漢字 and\t🙂 they'd  write:\r\n<html>don't</html> zzzzqqqq\n"
)
SPREAD = {"median_s", "q1_s", "q3_s", "min_s", "max_s", "samples"}
PROVE_BYTES = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a small data folder: texts, GPT-2's ranks, and the reference's digests."""
    path = tmp_path_factory.mktemp("data")
    (path / "text").mkdir()
    (path / "vocab").mkdir()
    for number, name in enumerate(FILES["english"]):
        (path / "text" / name).write_text(PROSE.replace("best", "best" + "!" * number) * 9)
    ranks = write_vocabulary(GPT2, "tiktoken")["vocabulary.tiktoken"]
    (path / "vocab" / "gpt2.tiktoken").write_bytes(ranks)
    pattern = PRETOKENIZERS["gpt2"].tiktoken_pattern
    described = {"gpt2": {"ranks_file": "vocab/gpt2.tiktoken", "pat_str": pattern}}
    (path / "vocab" / "llm_encodings.json").write_text(json.dumps(described))
    return path


@pytest.fixture
def run(folder, tmp_path):
    """Run the command; return its document."""

    def run(*arguments):
        out = tmp_path / "engine.json"
        fixed = ["--data", str(folder), "--out", str(out), "--vocabularies", "gpt2"]
        __main__.main([*fixed, "--main", "gpt2", "--emulate", *arguments])
        return json.loads(out.read_text())

    return run


@pytest.fixture(scope="module")
def document(folder, tmp_path_factory):
    """Run everything once, with tiktoken on one core made to give a wrong id."""
    name = f"text/{FILES['english'][0]}"
    text = (folder / name).read_bytes().decode()
    ids = encode(GPT2, text, EncodeOptions(add_special_tokens=False, special="plain")).ids
    expected = {"gpt2": {name: {"n_tokens": len(ids), "sha256": expected_digest(ids)}}}
    (folder / "expected.json").write_text(json.dumps(expected))
    original = competitors._tiktoken

    def sabotaged(num_threads):
        def load_one(timed):
            answer = original(num_threads)(timed)
            return lambda texts: [[*ids[:-1], ids[-1] ^ 1] for ids in answer(texts)]

        return load_one if num_threads == 1 else original(num_threads)

    out = tmp_path_factory.mktemp("results") / "engine.json"
    arguments = ["--data", str(folder), "--out", str(out), "--prove-bytes", str(PROVE_BYTES)]
    arguments += ["--vocabularies", "gpt2", "--main", "gpt2", "--corpora", "hostile"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(competitors, "_tiktoken", sabotaged)
        patch.setattr(competitors, "usable_cores", lambda: 2)
        __main__.main([*arguments, "--emulate"])
    return json.loads(out.read_text())


@pytest.mark.slow
def test_the_document_says_what_was_measured_on_what(document, folder):
    assert document["command"].startswith("python -m benchmarks.engine --data FOLDER --out FILE")
    assert str(folder) not in json.dumps(document)
    machine = document["machine"]
    assert machine["device"] == "emulation"
    assert machine.keys() >= {"driver", "cpu", "cores", "commit", "date", "python"}
    assert machine["versions"].keys() >= {"numpy", "tiktoken", "tokenizers", "fastokens"}
    assert document["vocabularies"] == {"gpt2": {"digest": GPT2.digest, "ids": len(GPT2)}}
    digests = {
        name: make_corpus(name, folder, TINY.corpus_bytes).sha256 for name in ("english", "hostile")
    }
    assert document["corpora_sha256"] == digests


@pytest.mark.slow
def test_every_text_is_proved_and_its_reference_library_named(document):
    proofs = {proof["text"]: proof for proof in document["proofs"]}
    assert {proof["vocabulary"] for proof in document["proofs"]} == {"gpt2"}
    timed = {row["corpus"] for row in document["kernels"] + document["corpora"]}
    timed |= {f"{row['rows']} x {row['row_bytes']} B" for row in document["shapes"]}
    timed |= {row["text"] for row in document["cliffs"]}
    assert timed | {"mixed", "expected.json", "first answer", "batch"} == set(proofs)
    assert proofs["mixed"]["num_bytes"] >= PROVE_BYTES
    for name, proof in proofs.items():
        assert proof["num_bytes"] == sum(proof["witnesses"].values()) > 0, name
        assert proof["num_ids"] > 0 and proof["num_rows"] > 0
        libraries = {"expected.json"} if name == "expected.json" else {"tiktoken", "tokenizers"}
        assert {library.split()[0] for library in proof["witnesses"]} <= libraries


def test_every_figure_has_a_spread(document):
    for block in ("kernels", "host", "cliffs", "starts"):
        assert document[block], block
        for row in document[block]:
            seconds = row["seconds"]
            assert seconds.keys() == SPREAD
            assert 0 < seconds["min_s"] <= seconds["median_s"] <= seconds["max_s"]
    for row in document["kernels"] + document["host"]:
        assert row["gb_per_s"] == pytest.approx(row["bytes"] / row["seconds"]["median_s"] / 1e9)
    for row in document["host"]:
        copy = row["copies_gb_per_s"]["host_to_device"]
        assert row["copy_ratio"] == pytest.approx(row["gb_per_s"] / copy)
    assert {row["way"] for row in document["host"]} == {"int32", "uint16", "on_device", "call"}


def test_engines_are_exact_absent_or_not_timed(document):
    exact = set()
    for row in document["corpora"] + document["shapes"]:
        key = f"{row['engine']} {row['cores']}"
        if row["status"] == "exact":
            exact.add(key)
            assert row["warm"]["seconds"].keys() == row["first"]["seconds"].keys() == SPREAD
        else:
            assert "warm" not in row and "first" not in row
            assert key in ("tiktoken 1", "gigatoken all"), row["status"]
    ours = {"gpu pinned all", "gpu encode all", "gpu encode_ids all", "cpu engine all"}
    ours.add("gpu pinned, narrow ids all")
    assert ours | {"fastokens all", "tiktoken all", "tokenizers all"} <= exact


def test_calls_from_pinned_memory_stand_beside_copies_of_what_they_move(document):
    rows = {row["engine"]: row for row in document["corpora"] if "copies" in row}
    assert rows.keys() == {"gpu pinned", "gpu pinned, narrow ids"}
    wide, narrow = rows["gpu pinned"], rows["gpu pinned, narrow ids"]
    assert wide["bytes_out"] == 2 * narrow["bytes_out"] > 0
    for row in rows.values():
        assert row["copies"]["seconds"].keys() == SPREAD


def test_a_library_that_gives_another_id_is_not_timed(document):
    rows = [row for row in document["corpora"] + document["shapes"] if row["cores"] == "1"]
    assert rows
    for row in rows:
        assert row["status"].startswith("differs: tiktoken 1, gpt2 on")
        assert "warm" not in row


def test_a_wrong_id_of_the_engine_ends_it_before_anything_is_timed(run, monkeypatch, tmp_path):
    original = __main__.GpuWays

    def sabotaged(device, workspace_bytes):
        gpu = original(device, workspace_bytes)
        encode_ids = gpu.engine.encode_ids

        def wrong(vocabulary, data, offsets):
            ids, ends = encode_ids(vocabulary, data, offsets)
            ids = ids.copy()
            ids[len(ids) // 2] ^= 1
            return ids, ends

        gpu.engine.encode_ids = wrong
        return gpu

    monkeypatch.setattr(__main__, "GpuWays", sabotaged)
    with pytest.raises(SystemExit, match=r"gpt2 on english.*other ids than those of tiktoken"):
        run("--only", "kernels", "--corpora", "english")
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_stopped_leaves_the_blocks_that_were_done(run, monkeypatch, tmp_path):
    def stopped(session):
        raise KeyboardInterrupt

    monkeypatch.setitem(__main__.BLOCKS, "cliffs", replace(__main__.BLOCKS["cliffs"], run=stopped))
    with pytest.raises(KeyboardInterrupt):
        run("--only", "kernels", "cliffs", "--corpora", "english")
    (left,) = tmp_path.iterdir()
    assert left.name == "engine.partial.json"
    document = json.loads(left.read_text())
    assert document["kernels"] and document["proofs"] and "cliffs" not in document


def test_a_run_that_ends_leaves_its_results_alone(run, tmp_path):
    run("--only", "kernels", "--corpora", "english")
    assert {path.name for path in tmp_path.iterdir()} == {"engine.json"}


@pytest.mark.parametrize(
    ("place", "message"), [(0, "not the ids that were proved"), (-1, "others in a stream")]
)
def test_a_wrong_id_of_a_timed_way_ends_it(run, monkeypatch, tmp_path, place, message):
    original = gpu_calls.encode_stream

    def wrong(gpu, vocabulary, data, offsets, out):
        ends = original(gpu, vocabulary, data, offsets, out)
        if isinstance(out, np.ndarray):
            out[: int(ends[-1])][place] ^= 1
        return ends

    monkeypatch.setattr(gpu_calls, "encode_stream", wrong)
    with pytest.raises(SystemExit, match=message):
        run("--only", "host", "--corpora", "english")
    assert not list(tmp_path.iterdir())


LIMITS = {"tiktoken": ValueError("limit"), "tokenizers": PanicException("limit")}


@pytest.mark.parametrize(
    ("given_up", "answers"),
    [((), "tiktoken"), (("tiktoken",), "tokenizers"), (("tiktoken", "tokenizers"), "fastokens")],
)
def test_the_first_library_that_does_not_give_up_gives_the_ids(
    given_up, answers, folder, tmp_path, monkeypatch
):
    def gives_up(library):
        def ids(files, text):
            raise LIMITS[library]

        return ids

    for library in given_up:
        monkeypatch.setattr(reference_libraries, f"_{library}_ids", gives_up(library))
    timed = read_published("gpt2", folder, tmp_path)
    library, rows = reference_ids(timed.files, [PROSE, "ab"])
    options = EncodeOptions(add_special_tokens=False)
    assert library == answers
    assert [row.tolist() for row in rows] == [encode(GPT2, t, options).ids for t in (PROSE, "ab")]


def test_an_error_of_a_library_is_no_giving_up(folder, tmp_path, monkeypatch):
    def breaks(files, text):
        raise KeyError("ranks")

    monkeypatch.setattr(reference_libraries, "_tiktoken_ids", breaks)
    with pytest.raises(KeyError):
        reference_ids(read_published("gpt2", folder, tmp_path).files, ["ab"])


class OneReference:
    """Reference processes that return fixed ids for every text."""

    def __init__(self, ids, counts):
        digests = ids_digest(ids), counts_digest(counts)
        self.part = GroupDigests(0, len(counts), len(ids), *digests, "a library")

    def submit(self, files, text):
        return iter([self.part])


class FixedEngine:
    """Gives the ids that it is given."""

    def __init__(self, ids, offsets):
        self.ids, self.offsets = np.array(ids, np.int32), np.array(offsets, np.int64)

    def encode_ids(self, vocabulary, data, offsets):
        return self.ids, self.offsets


ROWS = cut_rows("rows", np.frombuffer(b"ab cd", np.uint8), 2, 2)


@pytest.mark.parametrize(
    ("ids", "offsets"),
    [
        ([1, 2, 4], [0, 1, 3]),
        ([1, 2, 3], [0, 2, 3]),
        ([1, 2], [0, 1, 2]),
        ([1, 2, 3, 3], [0, 1, 4]),
        ([1, 2, 3, 9], [0, 1, 3]),
    ],
    ids=["an id", "a row's length", "one too few", "a row too long", "one too many"],
)
def test_the_proof_sees(ids, offsets, folder, tmp_path):
    timed = read_published("gpt2", folder, tmp_path)
    right, counts = np.array([1, 2, 3], np.int32), np.array([1, 2], np.int64)
    proofs = Proofs(OneReference(right, counts), FixedEngine(right, [0, 1, 3]))
    proofs.prove([(timed, ROWS)])
    proofs.require(timed, ROWS, right)
    assert proofs.records[0].witnesses == {"a library": 4}
    wrong = Proofs(OneReference(right, counts), FixedEngine(ids, offsets))
    with pytest.raises(Differs, match="gpt2 on rows"):
        wrong.prove([(timed, ROWS)])


def test_what_was_not_proved_is_not_timed(folder, tmp_path):
    timed = read_published("gpt2", folder, tmp_path)
    right, counts = np.array([1, 2, 3], np.int32), np.array([1, 2], np.int64)
    proofs = Proofs(OneReference(right, counts), FixedEngine(right, [0, 1, 3]))
    proofs.prove([(timed, ROWS)])
    with pytest.raises(Differs):
        proofs.require(timed, ROWS, np.array([1, 2, 4], np.int32))
    with pytest.raises(NotProved):
        proofs.require(timed, one_row("others", np.frombuffer(b"abcd", np.uint8)), right)


def test_without_a_gpu_there_is_no_benchmark(folder, capsys):
    from gpu.errors import DeviceUnavailable
    from gpu.runtime.cuda_device import CudaDevice

    try:
        CudaDevice()
    except DeviceUnavailable:
        with pytest.raises(SystemExit) as ended:
            __main__.main(["--data", str(folder)])
        assert ended.value.code == 2
        assert "no benchmark without a GPU" in capsys.readouterr().err
    else:
        pytest.skip("there is a GPU")
