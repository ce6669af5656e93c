"""Runs the parts of a job on the nodes of a Ray cluster, and waits until all are done.

If a node is lost, Ray restarts its part, which continues from the checkpoint.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from service.corpus.job import Job
from service.corpus.parts.part import PartResult
from service.corpus.parts.progress import Progress
from service.corpus.runners.remote_part import (
    Counts,
    OtherNode,
    PartLost,
    RemoteJob,
    RemotePart,
    open_remote_job,
    run_remote_part,
)
from vocabularies.model.vocabulary import Vocabulary

POLL_S = 0.5
CANCEL_S = 20.0
CONNECT_S = 10.0
MAX_RETRIES = 100
"""How many times a part is restarted after its node or process was lost."""
NO_MODULE = re.compile(r"No module named '([\w.]+)'")  # Ray reports it in several exceptions.


class Resources(NamedTuple):
    """The resources of a node that a part needs.

    Attributes:
        num_cpus: the number of cores, which is also the number of threads.
        num_gpus: the number of GPUs, 0 or 1.
    """

    num_cpus: int
    num_gpus: int


class Tally:
    """Sums the progress of all parts; an actor on the node that runs the command."""

    def __init__(self) -> None:
        self.counts = Counts()

    def add(self, counts: Counts) -> None:
        """Add the counts of a part."""
        self.counts = self.counts.plus(counts)

    def take(self) -> Counts:
        """Return the sum of the counts since the last call."""
        counts, self.counts = self.counts, Counts()
        return counts


@dataclass(frozen=True, slots=True)
class RayRunner:
    """Runs the parts of a job on a cluster; see `run.PartRunner`.

    Attributes:
        address: the address of the cluster, as for `ray.init`; "local" starts a cluster on this
            machine.
        engine: "auto", "cpu" or "gpu".
        num_threads: the threads, and cores, of a part; None: one, or with GPUs a node's cores
            divided by its GPUs.
        progress: counts the work that was done.
        num_verified: the smallest number of documents that are compared with the reference.
    """

    address: str
    engine: str
    num_threads: int | None
    progress: Progress
    num_verified: int = 0

    def run_parts(self, job: Job, vocabulary: Vocabulary, folder: Path) -> list[PartResult]:
        """Run all parts to their end, from their checkpoints; a part that fails stops the others.

        Raises:
            ConnectionError: there is no cluster.
            ValueError: "gpu" was requested and the cluster has no GPU, or no node has enough cores.
            OtherNode: a node has another folder or another version, or lacks this package.
            PartLost: the cluster was lost.
        """
        _check_address(self.address)
        ray.init(self.address, log_to_driver=False, logging_level="ERROR")
        try:
            resources = choose_resources(ray.nodes(), self.engine, self.num_threads)
            remote = open_remote_job(
                job,
                vocabulary,
                folder,
                "gpu" if resources.num_gpus else "cpu",
                resources.num_cpus,
                self.num_verified,
            )
            parts = self._run_all(remote, resources)
        finally:
            ray.shutdown()
        self.progress.num_verified = sum(part.num_verified for part in parts)
        self.progress.remote_cpu_seconds = sum(part.cpu_seconds for part in parts)
        return [part.result for part in parts]

    def _run_all(self, remote: RemoteJob, resources: Resources) -> list[RemotePart]:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        tally = ray.remote(num_cpus=0)(Tally).options(scheduling_strategy=here).remote()
        run = ray.remote(
            num_cpus=resources.num_cpus, num_gpus=resources.num_gpus, max_retries=MAX_RETRIES
        )(_run)
        shared = ray.put(remote)
        numbers = range(len(remote.job.parts()))
        refs = {run.remote(shared, number, tally): number for number in numbers}
        waiting = list(refs)
        done: dict[int, RemotePart] = {}
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, timeout=POLL_S)
                for ref in ready:
                    done[refs[ref]] = _get(ref)
                self._note(_get(tally.take.remote()))
        except BaseException:  # One has failed, or Ctrl-C.
            _cancel(waiting)
            raise
        return [done[number] for number in numbers]

    def _note(self, counts: Counts) -> None:
        *added, skipped_bytes = counts
        self.progress.skip(skipped_bytes)
        self.progress.add(*added)


def _check_address(address: str) -> None:
    """Check that a server listens at HOST:PORT; Ray itself would try for many minutes.

    Raises:
        ConnectionError: no server listens there.
    """
    host, _, port = address.rpartition(":")
    if "/" in host or not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConnectionError(f"cannot connect to a Ray cluster at {address}: {error}") from error


def choose_resources(
    nodes: list[dict[str, Any]], engine: str, num_threads: int | None
) -> Resources:
    """Choose the resources of a part: a GPU if the cluster has any, and cores.

    Args:
        nodes: as `ray.nodes` describes them.
        engine: "auto", "cpu" or "gpu".
        num_threads: the number of cores; None: one, or with GPUs a node's cores divided by its
            GPUs.

    Raises:
        ValueError: no node has these resources.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    with_gpus = [] if engine == "cpu" else [node for node in alive if node.get("GPU", 0) >= 1]
    if engine == "gpu" and not with_gpus:
        raise ValueError("--engine gpu: no node of the Ray cluster has a GPU")
    num_gpus = 1 if with_gpus else 0
    suited = with_gpus or alive
    if num_threads is None:
        shares = [node.get("CPU", 0) / node["GPU"] for node in with_gpus]
        num_threads = max(1, int(min(shares, default=1)))
    most = max((int(node.get("CPU", 0)) for node in suited), default=0)
    if num_threads > most:
        raise ValueError(f"--threads {num_threads}: the largest node has only {most} cores")
    return Resources(num_threads, num_gpus)


def _run(remote: RemoteJob, number: int, tally: Any) -> RemotePart:
    """Run a part; Ray calls this function on a node."""
    sent: list[Any] = []

    def send(counts: Counts) -> None:
        sent[:] = [tally.add.remote(counts)]

    part = run_remote_part(remote, number, send)
    ray.get(sent)  # The last one comes last; then the tally has all when the part is done.
    return part


def _get(ref: Any) -> Any:
    """Return the result of an ended call, or raise its error.

    Raises:
        OtherNode: the node does not have this package, or one that it needs.
        PartLost: the error comes from Ray and not from the part.
    """
    try:
        return ray.get(ref)
    except RayError as error:
        if missing := NO_MODULE.search(str(error)):
            message = "install 'warptok[ray]' for the Python of Ray on every node"
            raise OtherNode(f"a node has no module {missing[1]!r}; {message}") from None
        if isinstance(error, RayTaskError):
            raise error.cause from None
        raise PartLost(f"the cluster has lost a part: {error}") from error


def _cancel(refs: list[Any]) -> None:
    """Cancel the running parts, and wait until they end, as the next run needs their locks."""
    for ref in refs:
        ray.cancel(ref, force=True)
    ray.wait(refs, num_returns=len(refs), timeout=CANCEL_S)
