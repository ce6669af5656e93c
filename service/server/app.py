"""Puts the service together, starts it and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib.util
import logging
from collections.abc import AsyncIterator
from time import perf_counter

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.types import Lifespan

from service.apis.dialects import probes, render, tokenize
from service.apis.dialects.template_pool import TemplatePool
from service.apis.native import service_info, tokens
from service.apis.native import training_jobs as training_routes
from service.apis.native import vocabularies as vocabulary_routes
from service.apis.oip import http_routes
from service.apis.oip.oip_first import InferFirst
from service.apis.oip.region_registry import RegionRegistry
from service.batching.batch import PlaceIds
from service.batching.batcher import Batcher
from service.batching.runner import LocalRunner
from service.batching.work import GONE
from service.core.errors import ServiceError
from service.core.request_head import call_of
from service.core.settings import PREFIX, Settings
from service.core.version import package_version
from service.engines.base import Codec, DeviceSharing, Engine
from service.http.asgi_fast_path import AsgiFastPath
from service.http.openapi import with_refusals
from service.http.refusals import refused
from service.http.streaming_response import BrokenStream
from service.observability.metrics import Gauges, Metrics
from service.observability.request_observer import CLIENT_CLOSED, RequestObserver
from service.observability.tracing import make_tracer
from service.operations.context import EngineHost, Service
from service.operations.readiness import readiness
from service.registry import management
from service.registry.catalogue import Catalogue
from service.registry.registry import Registry
from service.registry.reports import samples
from service.runtime import malloc
from service.runtime.memory_pool import Take
from service.security.guard import Guard
from service.training.jobs import TrainingJobs
from vocabularies.errors import VocabularyError

logger = logging.getLogger(__name__)
LAG_PERIOD_S = 0.25
GIVE_BACK_PERIOD_S = 15.0
IDLE_PERIOD_S = 0.1
LOADING_AT_ONCE = 2
GC_THRESHOLDS = (50_000, 50, 50)
ROUTES = (
    *(tokens, vocabulary_routes, service_info, http_routes),
    *(tokenize, render, probes, training_routes),
)
DESCRIPTION = """
Text or DNA in, token ids out: exactly the ids of the reference tokenizer.

Every refusal is `application/problem+json` with a `code` for programs, a `detail` for people and
`where`, the place in the request.
"""


def make_engine(settings: Settings, take: Take | None = None) -> Engine:
    """The best engine of this machine that the settings allow.

    A GPU is opened in the background: until it is there, the CPU answers. Its ids lie in memory
    that `take` gives, or in any pinned memory.

    Raises:
        ValueError: the settings ask for a GPU and there is none that can be used.
    """
    from service.engines.cpu.engine import CpuEngine

    if settings.engine == "cpu":
        return CpuEngine()
    if settings.engine == "auto" and importlib.util.find_spec("cupy") is None:
        logger.info("no GPU: CuPy is not installed")
        return CpuEngine()
    from gpu.errors import DeviceUnavailable
    from service.engines.gpu.hybrid_engine import RoutedEngine, open_cuda

    open_gpu = functools.partial(open_cuda, settings.gpu_memory_share, take)
    engine = RoutedEngine(CpuEngine(), open_gpu, settings.crossover_bytes)
    if settings.engine == "gpu":
        try:
            engine.vocabularies.wait_until_open()
        except DeviceUnavailable as error:
            engine.close()
            raise ValueError(f"{PREFIX}ENGINE=gpu: {error}") from error
    return engine


def create_app(
    settings: Settings, engine: Engine | None = None, place_ids: PlaceIds | None = None
) -> AsgiFastPath:
    """An ASGI application with its own engine, vocabularies, queue and metrics.

    Args:
        settings: all settings; nothing behind this reads the environment.
        engine: what computes the ids; made from the settings when absent.
        place_ids: puts the ids of batches where they are wanted; None: anywhere will do.
    """
    engine = engine or make_engine(settings)
    metrics = Metrics(package_version(), settings.max_batch_bytes)
    registry = Registry(engine, settings)
    guard = Guard(settings.api_keys_file, settings.host)
    runner = LocalRunner(engine, settings, metrics, place_ids)
    batcher = Batcher(runner, settings, metrics, guard.limits)
    service = make_service(settings, engine, registry, batcher, metrics, guard, engine)
    service.host = EngineHost(engine, registry)
    install = functools.partial(management.name_vocabulary, service)
    service.training = TrainingJobs(settings, metrics, install)
    metrics.gauges.training_jobs = service.training.book.states
    app = make_app(service, lambda _: running(service))
    return AsgiFastPath(InferFirst(app, service), service)


def make_service(
    settings: Settings,
    engine: Codec,
    registry: Catalogue,
    batcher: Batcher,
    metrics: Metrics,
    guard: Guard,
    device: DeviceSharing,
) -> Service:
    """What the parts of one service share."""
    regions = RegionRegistry(
        settings.shared_memory, settings.max_regions, device.open_shared, device.share_host
    )
    templates = TemplatePool(settings.chat_template_timeout_ms / 1000, settings.max_text_bytes)
    observer = RequestObserver(
        metrics,
        make_tracer(settings),
        access_log=settings.access_log,
        server_timing=settings.server_timing,
    )
    service = Service(
        settings, engine, registry, batcher, metrics, guard, observer, regions, templates
    )
    metrics.gauges = Gauges(
        queue=lambda: (batcher.queue_bytes, batcher.queue_rows),
        queue_limit_bytes=settings.max_queue_bytes,
        num_streams=lambda: batcher.num_streams,
        ready=lambda: not readiness(service),
        vocabularies=functools.partial(samples, registry),
        engine=engine.status,
    )
    return service


def make_app(service: Service, lifespan: Lifespan[FastAPI]) -> FastAPI:
    """All routes of a service, declared."""
    # The documentation pages come with their scripts: the machine may have no network.
    app = FastAPIOffline(
        title="warptok",
        version=package_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
    )
    app.state.service = service
    for routes in ROUTES:
        app.include_router(routes.router)
    app.openapi = with_refusals(app.openapi)  # type: ignore[method-assign]
    for kind in (
        ServiceError,
        VocabularyError,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(kind, refuse)
    for kind in GONE:
        app.add_exception_handler(kind, gone)
    return app


async def gone(request: Request, _: Exception) -> Response:
    """Nobody is there to answer any more."""
    call_of(request.scope).is_gone = True
    return Response(status_code=CLIENT_CLOSED)


async def refuse(request: Request, error: Exception) -> Response:
    """Any exception as a refusal of the kind that belongs to the path."""
    if isinstance(error, BrokenStream):  # It has been logged, and its answer had begun.
        return Response(status_code=500)
    return refused(request.scope["path"], error)


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """From start to stop: vocabularies load, requests are answered, the queue drains."""
    names = service.get_host().registry.names_to_preload()
    service.batcher.start()
    if service.training is not None:
        service.training.start()
    tasks = [
        asyncio.create_task(preload(service, names)),
        asyncio.create_task(watch_lag(service)),
        asyncio.create_task(keep_memory_low(service)),
    ]
    try:
        yield
    finally:
        service.draining = True
        for task in tasks:
            task.cancel()
        await service.batcher.stop(service.settings.drain_timeout_s)
        if service.training is not None:
            await service.training.stop(service.settings.drain_timeout_s)
        service.regions.close()
        await service.chat_templates.close()
        await close_tracer(service)
        service.engine.close()


async def close_tracer(service: Service) -> None:
    """Send the last spans; who takes them may be slow."""
    tracer = service.observer.tracer
    if tracer is not None:
        await asyncio.to_thread(tracer.close)


async def preload(service: Service, names: list[str]) -> None:
    """Load what is wanted from the start; one that fails is reported and does not stop the rest.

    The default vocabulary is first and alone, so that it answers soonest. Then one is built by a
    library, which lets other threads run, while the next is read and compared in Python.
    """
    begin = perf_counter()
    waiting = sorted(names, key=lambda name: name != service.settings.default_vocabulary)

    async def load_next() -> None:
        name = waiting.pop(0)
        try:
            await service.registry.loaded(name)
        except ServiceError:
            pass  # It was logged.
        except Exception as error:
            logger.error("This is a bug. Vocabulary %s failed", name, exc_info=error)

    async def load_rest() -> None:
        while waiting:
            await load_next()

    # Hardly anything made meanwhile is garbage, and looking for it took a fifth of the time.
    gc.disable()
    try:
        if waiting:
            await load_next()
        await asyncio.gather(*(load_rest() for _ in range(LOADING_AT_ONCE)))
        await asyncio.to_thread(service.get_host().engine.settle)
    finally:
        gc.enable()
    rest_collector()
    service.preloaded = True
    loaded = len(service.registry.entries)
    logger.info("ready: %d vocabularies after %.1f s", loaded, perf_counter() - begin)


def rest_collector() -> None:
    """What was made so far stays for ever; the collector need not look at it on every round."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def watch_lag(service: Service) -> None:
    """Measure how late the loop comes to its timers, and look whether the keys have changed."""
    while True:
        begin = perf_counter()
        await asyncio.sleep(LAG_PERIOD_S)
        service.metrics.loop_lag(max(0.0, perf_counter() - begin - LAG_PERIOD_S))
        service.guard.refresh()


async def keep_memory_low(service: Service) -> None:
    """Every few seconds, as soon as nothing waits, give back the memory of what was answered."""
    before = service.metrics.counts()["warptok_work_accepted_total"]
    while True:
        await asyncio.sleep(GIVE_BACK_PERIOD_S)
        while service.batcher.queue_rows:
            await asyncio.sleep(IDLE_PERIOD_S)
        accepted = service.metrics.counts()["warptok_work_accepted_total"]
        if accepted != before:
            before = accepted
            await asyncio.to_thread(malloc.give_back)
