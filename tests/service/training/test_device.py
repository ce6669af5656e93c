"""The device of a training: the choice, its report, and the learnt merges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu.errors import DeviceUnavailable, OutOfMemory
from gpu.training.merger import DeviceMerger
from service.cli.parser import main
from service.core.settings import Settings
from service.training import device as training_device
from service.training import worker
from service.training.device import choose_merger
from service.training.device_selftest import SelfTestFailed
from service.training.process import TrainingProcess
from tests.service.training.test_jobs import record
from tests.support.emulation.device import EmulatedDevice, EmulatedStream
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.merger import CpuMerger, Merge
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

CORPUS = Corpus.of(["GATTACAGATTACA" * 3, "ACGTACGTTTGACGTA" * 2])


@pytest.fixture
def device(monkeypatch):
    """A GPU, or an error that opening it raises."""

    def use(found: EmulatedDevice | Exception) -> None:
        def opened(number: int) -> EmulatedDevice:
            use.number = number
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(training_device, "open_cuda", opened)
        monkeypatch.setattr(training_device, "AUTO_LETTERS", 70)

    return use


def learn(name: str, options: TrainingOptions, corpus: Corpus = CORPUS, share: float = 1.0):
    """Train; return the reported choice and the merger, and check the merges."""
    told, made = [], []
    choose = choose_merger(name, told.append, share)

    def make(*arguments):
        made.append(choose(*arguments))
        return made[0]

    training = train(corpus, options, make_merger=make)
    assert training.merges == train(corpus, options).merges
    return told[0], type(made[0])


def test_the_gpu_of_the_settings_is_opened(device, tmp_path):
    device(EmulatedDevice())
    choose = choose_merger("cuda", lambda choice: None, gpu=2)
    train(CORPUS, TrainingOptions(20), make_merger=choose)
    assert device.number == 2
    gpus = ("all", "3", "2,0")
    assert [Settings(gpus=each).first_gpu for each in gpus] == [0, 0, 2]
    assert "--gpu=2" in TrainingProcess(tmp_path, 1, 1, gpu=2)._command


@pytest.mark.parametrize("name", ["cuda", "auto"])
def test_a_gpu_learns_where_it_can(device, name):
    device(EmulatedDevice())
    assert learn(name, TrainingOptions(20)) == (("cuda", "", "passed"), DeviceMerger)


def test_the_processor_learns_small_corpora_and_all_by_option(device):
    device(DeviceUnavailable("must not be opened"))
    assert learn("cpu", TrainingOptions(20)) == (("cpu", "", ""), CpuMerger)
    told = ("cpu", "fewer than 70 letters", "")
    assert learn("auto", TrainingOptions(20), Corpus.of(["ACGACG"])) == (told, CpuMerger)


@pytest.mark.parametrize(
    ("found", "options", "share", "error", "why", "selftest"),
    [
        (DeviceUnavailable("no GPU"), TrainingOptions(20), 1.0, DeviceUnavailable, "no GPU", ""),
        (
            EmulatedDevice(1 << 20),
            TrainingOptions(20),
            0.01,
            OutOfMemory,
            "the GPU has 10,485",
            "passed",
        ),
        (
            EmulatedDevice(),
            TrainingOptions(70_000),
            1.0,
            VocabularyError,
            "is 70000; a GPU can train",
            "passed",
        ),
    ],
    ids=["no device", "no memory", "too many ids"],
)
def test_what_a_gpu_cannot_do_is_said(device, found, options, share, error, why, selftest):
    device(found)
    with pytest.raises(error, match=why):
        learn("cuda", options, share=share)
    told, kind = learn("auto", options, share=share)
    assert (told.device, told.device_selftest, kind) == ("cpu", selftest, CpuMerger)
    assert why in told.device_reason


def learns_otherwise(monkeypatch) -> EmulatedDevice:
    best = DeviceMerger.best
    monkeypatch.setattr(DeviceMerger, "best", lambda self: _other(best(self)))
    return EmulatedDevice()


def fails_at_a_launch(monkeypatch) -> EmulatedDevice:
    def launch(*_: object) -> None:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(EmulatedStream, "launch", launch)
    return EmulatedDevice()


def compiles_no_kernels(monkeypatch) -> Exception:
    return Exception("unknown architecture\nand a thousand lines more")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (learns_otherwise, "merge 0 on the GPU differs from that on the CPU"),
        (fails_at_a_launch, "the GPU fails: RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS"),
        (compiles_no_kernels, "the GPU fails: Exception: unknown architecture"),
    ],
)
def test_a_gpu_that_does_not_learn_the_same_is_not_used(
    fault, why, device, tmp_path, capfd, monkeypatch
):
    device(fault(monkeypatch))
    with pytest.raises(SelfTestFailed, match=f"^{why}$"):
        learn("cuda", TrainingOptions(20))
    assert learn("auto", TrainingOptions(20)) == (("cpu", why, "failed"), CpuMerger)
    monkeypatch.chdir(tmp_path)
    record(tmp_path, {})
    worker.run(lambda: False, 4000, "cuda")
    [error] = [
        event["error"]
        for event in map(json.loads, capfd.readouterr().out.splitlines())
        if "error" in event
    ]
    assert error == {"code": "selftest_failed", "detail": f"training_device is cuda: {why}"}


def _other(merge: Merge | None) -> Merge | None:
    """A wrong figure where a token is joined with itself."""
    if merge is None or merge.left != merge.right:
        return merge
    return merge._replace(frequency=merge.frequency - 1)


def test_the_command_says_what_it_used_and_refuses_what_is_not_there(device, tmp_path, capsys):
    fasta, out = tmp_path / "a.fa", tmp_path / "out.vocabulary"
    fasta.write_text(">a\n" + "GATTACA" * 20 + "\n")
    command = ["train", "-o", str(out), "--size", "12", "--json", "--force", str(fasta)]
    device(DeviceUnavailable("no CUDA device answers"))
    assert main([*command, "--device", "cuda"]) == 2
    assert "warptok: --device cuda: no CUDA device answers" in capsys.readouterr().err
    digests = set()
    for arguments, used in (
        ([], {"device": "cpu", "device_reason": "no CUDA device answers"}),
        (["--device", "cpu"], {"device": "cpu"}),
        (["--device", "cuda"], {"device": "cuda", "device_selftest": "passed"}),
    ):
        if used["device"] == "cuda":
            device(EmulatedDevice())
        assert main([*command, *arguments]) == 0
        answer = json.loads(capsys.readouterr().out)
        digests.add(answer["digest"])
        assert {name: value for name, value in answer.items() if "device" in name} == used
    assert len(digests) == 1


def test_a_job_says_what_it_used_and_what_it_could_not_have(device, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def told(*arguments) -> list[dict]:
        record(tmp_path, {})
        worker.run(lambda: False, 4000, *arguments)
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    device(EmulatedDevice())
    events = told("cuda", 0.5)
    chosen = {"device": "cuda", "device_reason": "", "device_selftest": "passed"}
    assert {"metrics": chosen} in events
    learnt = read_canonical(Path("vocabulary").read_bytes())
    Path("state.npz").unlink()
    assert events[-1]["metrics"]["ending"] == told()[-1]["metrics"]["ending"]
    assert read_canonical(Path("vocabulary").read_bytes()) == learnt
    Path("state.npz").unlink()
    [error] = [event["error"] for event in told("cuda", 1e-6) if "error" in event]
    assert error["code"] == "out_of_memory"
    assert "bytes for the corpus" in error["detail"]
    assert "training_gpu_memory_share" in error["detail"]
    device(DeviceUnavailable("no CUDA device answers"))
    [error] = [event["error"] for event in told("cuda") if "error" in event]
    assert error == {"code": "no_gpu", "detail": "training_device is cuda: no CUDA device answers"}
    assert events[-1] == told("auto")[-1]


def test_memory_is_bounded_by_what_a_gpu_does_not_reserve(monkeypatch):
    """Addresses alone do not count, as CUDA reserves them; what is written does."""
    limits = []
    monkeypatch.setattr(worker.resource, "setrlimit", lambda *each: limits.append(each))
    for name in ("cpu", "cuda", "auto"):
        worker.bound_memory(name, 1000)
    of_addresses, of_data = worker.resource.RLIMIT_AS, worker.resource.RLIMIT_DATA
    assert limits == [(kind, (1000, 1000)) for kind in (of_addresses, of_data, of_data)]
