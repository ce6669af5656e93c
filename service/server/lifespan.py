"""Starts and stops the background tasks of a service, such as loading vocabularies."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from service.core.errors import ServiceError
from service.operations.context import Service
from service.runtime import malloc

logger = logging.getLogger(__name__)
LAG_PERIOD_S = 0.25
GIVE_BACK_PERIOD_S = 15.0
IDLE_PERIOD_S = 0.1
MAX_BUSY_S = 60.0
NUM_LOADERS = 2
LONGEST = "gena_lm_t2t_32k"
LOADING_SWITCH_S = 0.005  # With `malloc.SWITCH_S` two loaders take a sixth more CPU time.
YOUNG, ALL = 1, 2  # Generations of the garbage collector.
# A connection with a request has 150 objects that a collection cannot free. Looking at one of them
# takes 0.5 µs, so a collection of young objects, at most 6,000, holds the loop for 3 ms.
GC_THRESHOLDS = (2_000, 1, 1_000)
MAX_CONNECTIONS = 200  # With so many, collecting all generations takes 10 ms.
MAX_COLLECT_S = 0.02  # All are not collected again after this time: a cache of chats may be large.
Close = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def running(
    service: Service, tasks: Sequence[Coroutine[Any, Any, None]], closing: Sequence[Close]
) -> AsyncIterator[None]:
    """Run the service's background tasks within the block; drain the service at its end.

    Args:
        service: the service.
        tasks: further tasks to run in the background.
        closing: functions to call, one after another, after the queue is drained.
    """
    service.batcher.start()
    background = [*tasks, watch_loop_and_files(service), trim_memory(service)]
    started = [asyncio.create_task(each) for each in background]
    for task in started:
        task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        service.draining = True
        for task in started:
            task.cancel()
        await service.batcher.stop(service.settings.drain_timeout_s)
        for close in closing:
            await close()
        await close_tracer(service)
        service.engine.close()


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the error of a background task, which nobody waits for."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.error("This is a bug. A background task ended", exc_info=error)


async def close_tracer(service: Service) -> None:
    """Send the last spans in a thread, as the collector may answer slowly."""
    tracer = service.observer.tracer
    if tracer is not None:
        await asyncio.to_thread(tracer.close)


async def preload(service: Service, names: list[str]) -> None:
    """Load vocabularies at the start; log one that cannot be loaded, and load the others.

    The default vocabulary is loaded first and alone, so that it is ready soonest. Then NUM_LOADERS
    vocabularies are loaded at the same time: while C++ makes the tables of one without holding the
    interpreter lock, Python reads and compares the next. C++ works longest for LONGEST, which
    is therefore the first of these.
    """
    begin = perf_counter()
    first = [service.settings.default_vocabulary, LONGEST]
    waiting = sorted(names, key=lambda name: first.index(name) if name in first else len(first))

    async def load_next() -> None:
        name = waiting.pop(0)
        try:
            await service.registry.get_loaded(name)
        except ServiceError:
            pass  # The registry has logged it.
        except Exception as error:
            logger.error("This is a bug. Vocabulary %s failed", name, exc_info=error)

    async def load_rest() -> None:
        while waiting:
            await load_next()

    # Loading creates hardly any garbage, but collecting took a fifth of the time.
    gc.disable()
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(LOADING_SWITCH_S)
    try:
        if waiting:
            await load_next()
        await asyncio.gather(*(load_rest() for _ in range(NUM_LOADERS)))
        engine = service.get_engine_parts().engine
        await asyncio.to_thread(engine.settle)
        service.batcher.use_devices(await asyncio.to_thread(engine.status))
    finally:
        sys.setswitchinterval(switch_s)
        gc.enable()
    freeze_garbage_collector()
    service.preloaded = True
    loaded = len(service.registry.entries)
    logger.info("ready: %d vocabularies after %.1f s", loaded, perf_counter() - begin)


def freeze_garbage_collector() -> None:
    """Exclude all present objects from garbage collection, and collect less often from now on.

    Those that are garbage stay: after a start 4,000 of 600,000, which are below 1 MB and take 0.1 s
    to find.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def watch_loop_and_files(service: Service) -> None:
    """Measure the event loop's lag, and reload changed keys and certificates, until cancelled."""
    while True:
        begin = perf_counter()
        await asyncio.sleep(LAG_PERIOD_S)
        now = perf_counter()
        service.metrics.add_loop_lag(max(0.0, now - begin - LAG_PERIOD_S), now + LAG_PERIOD_S)
        service.guard.refresh()
        if service.certificates is not None:
            service.certificates.refresh()


def reload_files(service: Service) -> None:
    """Read the keys and the certificate again, on SIGHUP."""
    service.guard.reload()
    if service.certificates is not None:
        service.certificates.reload()


async def trim_memory(service: Service) -> None:
    """Return free memory to the system whenever the queue is empty after requests, until cancelled.

    If the queue is never empty, as on an overloaded machine, memory is returned every MAX_BUSY_S.

    Objects in reference cycles may hold a text of 100 MB and its ids, and the garbage collector
    hardly ever collects all generations by itself.
    """
    before = service.metrics.counts()["warptok_work_accepted_total"]
    collect_s = 0.0  # Of the last collection of all generations.
    while True:
        await asyncio.sleep(GIVE_BACK_PERIOD_S)
        begin = perf_counter()
        while service.batcher.queue_rows and perf_counter() < begin + MAX_BUSY_S:
            await asyncio.sleep(IDLE_PERIOD_S)
        accepted = service.metrics.counts()["warptok_work_accepted_total"]
        if accepted != before:
            before = accepted
            connections = service.metrics.gauges.connections
            has_few = connections is None or connections()[0] <= MAX_CONNECTIONS
            if has_few and collect_s <= MAX_COLLECT_S:
                begin = perf_counter()
                gc.collect(ALL)
                collect_s = perf_counter() - begin
            else:
                gc.collect(YOUNG)
            await asyncio.to_thread(malloc.give_back)
