"""The package is light to import, works without optional libraries, and documents its names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

import warptok
from tests.support.data_files import ROOT
from warptok.options import INSTEAD, OTHER_METHODS
from warptok.results import EXTRAS

HEAVY = ("fastapi", "starlette", "uvicorn", "torch", "cupy", "pyarrow", "httpx", "grpc", "pandas")
CALLS = (
    "encode",
    "encode_batch",
    "count",
    "count_batch",
    "offsets",
    "decode",
    "decode_bytes",
    "decode_batch",
    "chunks",
    "windows",
)


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_it_imports_no_heavy_library():
    run(f"import sys, warptok; assert not {{*sys.modules}} & {{*{HEAVY}}}")


def test_encoding_on_the_cpu_imports_none_either():
    program = "import sys, warptok; warptok.load('hyenadna', device='cpu').encode_batch(['ACGT'])"
    run(f"{program}; assert not {{*sys.modules}} & {{*{HEAVY}}}")


def test_without_optional_libraries_it_works_with_what_is_there():
    absent = ("torch", "cupy", "pyarrow", "pandas", "polars", "httpx")
    program = f"""
import sys
for name in {absent}:
    sys.modules[name] = None
import warptok
tok = warptok.load("hyenadna")
assert tok.encode_batch(["ACGT"]).to_list() == [[7, 8, 9, 10, 1]]
for call in (
    tok.encode_batch(["A"]).to_torch,
    lambda: warptok.Client("http://x", "gpt2"),
    lambda: warptok.mtdna.MtDNADataset,
):
    try:
        call()
    except warptok.NotInstalled as error:
        assert "pip install 'warptok[" in str(error)
    else:
        sys.exit("no error")
"""
    run(program)


def test_names_of_the_mtdna_model_are_there():
    vocabulary = warptok.mtdna.KmerVocabulary.build(k=3)
    assert len(warptok.mtdna.tokenize_sequence("GATTACA", vocabulary)["input_ids"]) == 7
    with pytest.raises(AttributeError, match="no attribute 'Model'"):
        warptok.mtdna.Model  # noqa: B018
    for name in warptok.mtdna.__all__:
        if find_spec("torch") is not None or name[:2] not in ("Ci", "He", "Mt", "re"):
            assert inspect.getdoc(getattr(warptok.mtdna, name)), name


def test_extras_that_errors_name_are_there():
    text = (ROOT / "pyproject.toml").read_text()
    for extra in EXTRAS.values():
        assert f"\n{extra} = [" in text


@pytest.mark.parametrize("client", [warptok.Client, warptok.AsyncClient])
@pytest.mark.parametrize("name", CALLS)
def test_clients_have_the_calls_of_a_tokenizer(client, name):
    own = inspect.signature(getattr(client, name))
    assert own == inspect.signature(getattr(warptok.Tokenizer, name))
    assert inspect.iscoroutinefunction(getattr(client, name)) == (client is warptok.AsyncClient)


def test_every_public_name_is_documented():
    names = [name for name in vars(warptok) if not name.startswith("_")]
    public = {name for name in names if not inspect.ismodule(getattr(warptok, name))}
    text = (ROOT / "docs" / "python.md").read_text()
    assert {name for name in public if name not in text} == set()
    for name in public:
        assert inspect.getdoc(getattr(warptok, name)), name


def test_methods_of_other_libraries_are_refused_with_what_to_call():
    tok = warptok.load("gpt2", device="cpu")
    for name, hint in OTHER_METHODS.items():
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}; call {hint}")):
            getattr(tok, name)
    with pytest.raises(AttributeError, match=r"no attribute 'encodings'$"):
        getattr(tok, "encodings")  # noqa: B009


def test_what_hints_name_is_there():
    tok = warptok.load("gpt2", device="cpu")
    batch = tok.encode_batch(["a"])
    for hint in (*INSTEAD.values(), *OTHER_METHODS.values()):
        for name in re.findall(r"(?<!\.)\b([a-z_]+)\(", hint):
            assert hasattr(tok, name) or name in ("tok", "len"), hint
        for name in re.findall(r"\)\.([a-z_]+)\(", hint):
            assert hasattr(batch, name), hint


def test_embeddings_and_training_have_public_names():
    from warptok.embedding import discover
    from warptok.training import Corpus, MotifBank, TrainingOptions, train

    found = discover(warptok.load("hyenadna", device="cpu"))
    assert found.rule is not None
    assert discover(warptok.load("dnabert2", device="cpu")).rule is None
    options = TrainingOptions(vocabulary_size=7)
    corpus, motifs = Corpus.of(["UGAGGUAGUAGGUUGUAUAGUU"]), MotifBank.of(["GAGGUAG"])
    done = train(corpus, options, motifs=motifs)
    tok = warptok.load(done.vocabulary, device="cpu")
    assert len(tok) == len(done.vocabulary) == 7
    assert tok.decode(tok.encode("UGAGGUAG")) == "UGAGGUAG"
    with pytest.raises(AttributeError, match="no attribute 'Layer'"):
        warptok.embedding.Layer  # noqa: B018
    if find_spec("torch") is None:
        with pytest.raises(warptok.NotInstalled, match=r"warptok\.embedding\.EmbeddingLayer"):
            warptok.embedding.EmbeddingLayer  # noqa: B018
    else:
        assert warptok.embedding.EmbeddingLayer.__name__ == "EmbeddingLayer"
