"""The files of our writer for NeMo Curator have the bytes of Curator's own."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REASON = "nemo-curator or transformers is not installed; they are no dependencies"
pytest.importorskip("nemo_curator", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)

import pandas as pd
from nemo_curator.stages.resources import Resources
from nemo_curator.stages.text.io.writer.megatron_tokenizer import (
    MegatronTokenizerWriter as OwnMegatronTokenizerWriter,
)
from nemo_curator.tasks import DocumentBatch

from tests.support.inputs.corpora import folder_bytes, make_texts
from vocabularies import builtin
from vocabularies.formats.vocabulary_files import write_vocabulary
from warptok.devices import open_place
from warptok.errors import InvalidRequest
from warptok.integrations.nemo_curator import MegatronTokenizerWriter

END = "<|endoftext|>"
pytestmark = pytest.mark.slow  # Importing Curator takes seconds.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gpt2")
    for file, data in write_vocabulary(builtin.load("gpt2"), "tokenizer.json").items():
        (folder / file).write_bytes(data)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_type": "gpt2"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def make_batch() -> DocumentBatch:
    texts = [*make_texts(60), f"a {END} inside", " \n", "naïve 中文 🙂" * 30]
    batch = DocumentBatch(data=pd.DataFrame({"body": texts}), dataset_name="corpus")
    batch._metadata = {"source_files": ["a.jsonl"]}
    return batch


def write(step: type[Any], model: str, folder: Path, **options: Any) -> Any:
    writer = step(path=str(folder), model_identifier=model, text_field="body", **options)
    writer.setup_on_node()
    writer.setup()
    return writer.process(make_batch())


@pytest.mark.parametrize("append_eod", [False, True])
def test_files_and_tasks_are_curators(append_eod: bool, model: str, tmp_path: Path) -> None:
    if int(transformers.__version__.split(".")[0]) > 4:
        pytest.skip("Curator 1.4 calls batch_encode_plus, which transformers 5 does not have")
    options = {"append_eod": append_eod}
    own = write(OwnMegatronTokenizerWriter, model, tmp_path / "own", **options)
    ours = write(
        MegatronTokenizerWriter,
        model,
        tmp_path / "ours",
        device="cpu",
        tokenization_batch_size=7,
        **options,
    )
    assert folder_bytes(tmp_path / "ours") == folder_bytes(tmp_path / "own")
    assert len(own.data) == 2
    assert [path.replace("ours", "own") for path in ours.data] == own.data
    prefix = ours._metadata["file_prefix"].replace("ours", "own")
    assert {**ours._metadata, "file_prefix": prefix} == own._metadata


def test_files_with_any_transformers(model: str, tmp_path: Path) -> None:
    task = write(MegatronTokenizerWriter, model, tmp_path, device="cpu", append_eod=True)
    ids = np.fromfile(task.data[0], np.uint16)
    assert (len(ids), int((ids == 50256).sum())) == (task._metadata["num_tokens"], 64)


def test_resources(model: str, tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "model_identifier": model}
    assert MegatronTokenizerWriter(**options).resources == Resources(gpus=1.0)
    assert MegatronTokenizerWriter(**options, device="cpu").resources == Resources(cpus=1.0)
    named = MegatronTokenizerWriter(**options, device="cpu", resources=Resources(cpus=4.0))
    assert named.resources.cpus == 4.0
    assert named.ray_stage_spec()["is_actor_stage"]


@pytest.mark.parametrize("cpus", [0.5, 1.0, 3.0])
def test_threads(cpus: float, model: str, tmp_path: Path) -> None:
    writer = MegatronTokenizerWriter(
        path=str(tmp_path), model_identifier=model, device="cpu", resources=Resources(cpus=cpus)
    )
    writer.setup()
    expected = open_place("cpu", max(1, int(cpus)))
    assert writer.tokenizer.tokenizer._engine is expected.engine


def test_ids_that_do_not_fit_are_refused(model: str, tmp_path: Path) -> None:
    writer = MegatronTokenizerWriter(path=str(tmp_path), model_identifier=model, device="cpu")
    writer.setup()
    rows = writer.tokenizer.batch_encode_plus(["text"]).input_ids
    with pytest.raises(InvalidRequest, match="does not fit uint8"):
        writer.write_data(io.BytesIO(), np.uint8, 0, rows, [])


def test_places_of_more_than_2_gib() -> None:
    lengths = np.array([1 << 30, 1 << 30, 5], np.int32)
    places = MegatronTokenizerWriter._sequence_pointers(lengths, 4)
    assert places.tolist() == [0, 1 << 32, 1 << 33]
