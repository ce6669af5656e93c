"""Opens the engine that computes the ids of a job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from gpu.runtime.driver_devices import count_driver_devices
from service.engines.base import Codec
from service.engines.cpu.engine import CpuEngine
from vocabularies.model.vocabulary import Vocabulary

NO_GPU = "--engine gpu: there is no GPU that CUDA can use"


def open_engine(name: str, vocabulary: Vocabulary) -> Codec:
    """Open an engine that computes on the calling threads, which are those of the job.

    Args:
        name: "cpu"; "gpu": all GPUs of this process, and the CPU until they are open; "auto": the
            same if there are any GPUs, else the CPU.
        vocabulary: the vocabulary of the job.

    Raises:
        ValueError: "gpu" was requested, and there is no GPU.
        VocabularyError: no encoder can compute the vocabulary.
    """
    cpu = CpuEngine(num_threads=1)
    if name == "cpu":
        return cpu
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(count_driver_devices)  # Mostly without Python's lock.
        cpu.load(vocabulary)
    if counting.result():
        from service.corpus.encoding.gpus import open_gpus

        return open_gpus(cpu, vocabulary, is_needed=name == "gpu")
    if name == "gpu":
        raise ValueError(NO_GPU)
    return cpu
