"""Runs one training job as a program: `python -m service.training.worker FOLDER ...`.

It reads the job's folder, writes events as lines of JSON to standard output, and writes the learned
vocabulary to the folder. When its standard input ends, because the service requests it to stop or
has died, it saves its state and exits. It has the lowest priority and a memory limit, and the
system kills it first when memory runs out. On a GPU it shares time equally with other processes,
and uses at most its share of the memory.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import resource
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from service.training.device import DeviceName
    from service.training.schemas import TrainingParameters
    from vocabularies.motifs.bank import MotifBank
    from vocabularies.sequences.corpus import Corpus
    from vocabularies.training.train import Progress, Training

LOWEST_PRIORITY = 19
LINGER_S = 60.0  # The time to save the state, as a dead service cannot kill this process.
LOCK = "worker.lock"


def main(arguments: list[str] | None = None) -> int:
    """Start or resume a training; return 0 even if an error was reported as an event."""
    parser = argparse.ArgumentParser(prog="python -m service.training.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--corpus-bytes", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gpu-memory-share", type=float, default=1.0)
    parser.add_argument("--gpu", type=int, default=0)
    parsed = parser.parse_args(arguments)
    stand_back()
    should_stop = StopRequest()
    bound_memory(parsed.device, parsed.memory_bytes)
    os.chdir(parsed.folder)  # So that messages name files and no folders.
    # A worker of a killed service may still be saving its state.
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(should_stop, parsed.corpus_bytes, parsed.device, parsed.gpu_memory_share, parsed.gpu)
    return 0


def run(
    should_stop: Callable[[], bool],
    max_letters: int,
    device: DeviceName = "cpu",
    memory_share: float = 1.0,
    gpu: int = 0,
) -> None:
    """Train the job of the current folder, and report errors as events."""
    from gpu.errors import OutOfMemory
    from service.seqio.reader import BadRecords
    from service.training.device import NO_GPU
    from service.training.device_selftest import SelfTestFailed
    from service.training.schemas import TrainingError
    from vocabularies.errors import VocabularyError

    try:
        _train(should_stop, max_letters, device, memory_share, gpu)
    except VocabularyError as error:
        _report(error=TrainingError.of(error).model_dump())
    except NO_GPU as error:
        code = "selftest_failed" if isinstance(error, SelfTestFailed) else "no_gpu"
        _fail(code, f"training_device is {device}: {error}")
    except OutOfMemory as error:
        _fail("out_of_memory", f"{error}; see training_gpu_memory_share")
    except BadRecords as error:
        _fail("bad_body", str(error))
    except MemoryError:
        _fail("out_of_memory", "the training takes more memory than training_memory_bytes allows")
    except OSError as error:
        _fail("os_error", f"{error.filename or 'a file'}: {error.strerror}")
    except Exception as error:
        # The message may quote the upload; the traceback does not.
        print(f"This is a bug. A training failed: {type(error).__name__}", file=sys.stderr)
        traceback.print_tb(error.__traceback__)
        _fail("internal", f"an error of ours: {type(error).__name__}; the log has the place")


def stand_back() -> None:
    """Give this process the lowest priority."""
    os.nice(LOWEST_PRIORITY)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def bound_memory(device: DeviceName, num_bytes: int) -> None:
    """Limit the memory of this process.

    CUDA reserves addresses for all memory of the machine and its GPUs without using it, so with a
    GPU only private writable memory is limited.
    """
    limit = resource.RLIMIT_AS if device == "cpu" else resource.RLIMIT_DATA
    resource.setrlimit(limit, (num_bytes, num_bytes))


class StopRequest:
    """Returns whether standard input has ended; the training calls it between merges.

    If standard input ends before the first call, there is nothing to save, and the process exits.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._was_called = False
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> bool:
        """Return whether the training should stop now."""
        self._was_called = True
        return self._is_requested

    def _watch(self) -> None:
        while os.read(0, 4096):
            pass
        self._is_requested = True
        if self._was_called:
            sleep(LINGER_S)
        os._exit(0)


def _train(
    should_stop: Callable[[], bool],
    max_letters: int,
    device: DeviceName,
    memory_share: float,
    gpu: int,
) -> None:
    from service.training.device import choose_merger
    from service.training.job_folder import RECORD, STATE, VOCABULARY
    from service.training.schemas import TrainingJob
    from vocabularies.model import canonical
    from vocabularies.training.train import train

    job = TrainingJob.model_validate_json(Path(RECORD).read_bytes())
    inputs = _read_inputs(job.parameters, max_letters)
    corpus = inputs.corpus
    _report(metrics={"num_sequences": len(corpus), "num_bases": corpus.num_bases})
    training: Training = train(
        corpus,
        job.parameters.options(),
        motifs=inputs.motifs,
        confidence=inputs.confidence,
        state=Path(STATE),
        progress=partial(_report_progress, job.metrics.seconds),
        should_stop=should_stop,
        make_merger=choose_merger(
            device, lambda choice: _report(metrics=choice._asdict()), memory_share, gpu
        ),
    )
    if training.ending == "stopped":
        return
    Path(VOCABULARY).write_bytes(canonical.to_bytes(training.vocabulary))
    _report(metrics={"ending": training.ending})


def _report_progress(seconds_before: float, now: Progress) -> None:
    """Report the progress; `seconds_before` is the time that earlier processes of the job took."""
    metrics = {
        "num_merges": now.num_ids - now.first_ids,
        "wanted_merges": max(0, now.target_ids - now.first_ids),
        "vocabulary_size": now.num_ids,
        "compression": now.compression,
        "seconds": seconds_before + now.seconds,
    }
    _report(metrics=metrics, progress=now.fraction)


class _Inputs(NamedTuple):
    """The inputs of a job: the corpus, and optionally motifs and the confidence of each base."""

    corpus: Corpus
    motifs: MotifBank | None
    confidence: NDArray[np.int64] | None


def _read_inputs(parameters: TrainingParameters, max_letters: int) -> _Inputs:
    """Read the inputs from the current folder."""
    from service.seqio.corpus import read_corpus
    from service.training.inputs import read_confidence_file, read_motif_file
    from vocabularies.errors import VocabularyError

    paths = [path.name for path in Path().glob("corpus.*")]
    paths.sort(key=lambda name: int(name.rpartition(".")[2]))
    sequences = read_corpus(
        paths,
        parameters.reading,
        upper=parameters.upper,
        spell=parameters.spell,
        max_letters=max_letters,
    )
    if not sequences.corpus.num_bases:
        raise VocabularyError.at("corpus", "holds no letter")
    motifs, confidence = (
        name if Path(name).exists() else None for name in ("motifs", "confidence")
    )
    return _Inputs(
        sequences.corpus,
        read_motif_file(motifs),
        read_confidence_file(confidence, sequences),
    )


def _fail(code: str, detail: str) -> None:
    _report(error={"code": code, "detail": detail})


def _report(**event: Any) -> None:
    """Write an event as a line of JSON; do nothing if the service has exited."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
