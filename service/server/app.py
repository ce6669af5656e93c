"""Assembles a service: the engine, the state of its features, and the routes."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.types import Lifespan, Receive, Scope, Send

from gpu.host.cores import usable_cores
from service.apis.dialects import (
    apply_template,
    derender,
    probes,
    render,
    token_count,
    tokenize,
)
from service.apis.dialects.section_cache import SectionCache
from service.apis.dialects.templates.pool import TemplatePool
from service.apis.native import aliases, service_info, tokens
from service.apis.native import training_jobs as training_routes
from service.apis.native import vocabularies as vocabulary_routes
from service.apis.oip import http_routes
from service.apis.oip.state import OipState, make_oip_state
from service.batching.batcher import Batcher
from service.batching.runner import LocalRunner, PlaceIds
from service.batching.work import GONE
from service.core.call import CLIENT_CLOSED, get_call
from service.core.errors import ServiceError
from service.core.settings import PREFIX, Settings
from service.core.version import package_version
from service.engines.base import Codec, Engine
from service.http.asgi_fast_path import AsgiFastPath
from service.http.error_responses import make_error_response
from service.http.openapi import serve_written, with_refusals
from service.http.plain_routes import PlainRoutes
from service.http.streaming_response import BrokenStream
from service.observability.metrics import Gauges, Metrics
from service.observability.request_observer import RequestObserver
from service.observability.tracing import make_tracer
from service.operations.context import EngineParts, Service
from service.operations.readiness import readiness
from service.registry.management import VocabularyManager
from service.registry.registry import Registry
from service.registry.reports import count_states, samples
from service.registry.vocabulary_view import VocabularyView
from service.security.guard import Guard
from service.server.lifespan import Close, preload, running
from service.training.jobs import TrainingJobs
from vocabularies.errors import VocabularyError

if TYPE_CHECKING:
    from service.engines.hybrid.residency import OpenedGpu

OpenGpus = Callable[[Settings], "OpenedGpu"]
"""Opens the GPUs of the setting `gpus`, or raises DeviceUnavailable."""
logger = logging.getLogger(__name__)
# Routes of small requests come first: each route that is tried before costs 2 µs.
ROUTES = (
    render,
    tokenize,
    tokens,
    vocabulary_routes,
    aliases,
    service_info,
    http_routes,
    token_count,
    apply_template,
    derender,
    probes,
    training_routes,
)
DESCRIPTION = """
Text or DNA in, token ids out: exactly the ids of the reference tokenizer.

Every refusal is `application/problem+json` with a `code` for programs, a `detail` for people and
`where`, the place in the request.
"""


@dataclass(frozen=True, slots=True)
class Application:
    """A whole service as an ASGI application.

    Attributes:
        service: the state that all operations share.
        oip: the state of the Open Inference Protocol.
        templates: the pool of processes that render chat templates.
        training: the training jobs.
        fastapi: the FastAPI application with all routes.
        asgi: the ASGI application that a server runs: the fast path in front of `fastapi`.
    """

    service: Service
    oip: OipState
    templates: TemplatePool
    training: TrainingJobs
    fastapi: FastAPI
    asgi: AsgiFastPath

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        await self.asgi(scope, receive, send)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context manager within which the application answers requests."""
        service, training = self.service, self.training
        parts = service.get_engine_parts()
        names = parts.registry.names_to_preload()
        training.start()

        async def close_regions() -> None:
            self.oip.regions.close()

        stop_training = functools.partial(training.stop, service.settings.drain_timeout_s)
        closing: list[Close] = [stop_training, close_regions, self.templates.close]
        tasks = [preload(service, names), parts.vocabularies.keep_following()]
        return running(service, tasks, closing)


def make_engine(
    settings: Settings,
    open_gpus: OpenGpus | None = None,
    on_lost: Callable[[], None] = lambda: None,
) -> Engine:
    """Create the best engine that this machine has and the settings allow.

    A GPU is opened in the background; until it is open, the CPU computes all batches.

    Args:
        settings: the settings of the service.
        open_gpus: opens the GPUs of the setting `gpus`; None: only the first GPU is used.
        on_lost: a function to call once, from any thread, if this process should end because it
            lost the GPU.

    Raises:
        ValueError: the settings require a GPU but none can be used, or they name more GPUs than
            there are.
    """
    from service.engines.cpu.engine import CpuEngine

    if settings.engine == "cpu":
        return CpuEngine(settings.pattern_us_per_byte, settings.cpu_threads)
    if settings.engine == "auto" and importlib.util.find_spec("cupy") is None:
        logger.info("no GPU: CuPy is not installed")
        return CpuEngine(settings.pattern_us_per_byte, settings.cpu_threads)
    from gpu.errors import DeviceUnavailable
    from service.engines.hybrid.engine import HybridEngine
    from service.engines.hybrid.opening import check_gpus, open_cuda

    check_gpus(settings.gpus)
    open_gpu = functools.partial(open_cuda, settings.gpu_memory_share)
    if open_gpus is not None:
        open_gpu = functools.partial(open_gpus, settings)
    cpu = CpuEngine(settings.pattern_us_per_byte, settings.cpu_threads)
    engine = HybridEngine(cpu, open_gpu, settings.crossover_bytes)
    engine.fallbacks.loss.on_lost = on_lost
    if settings.engine == "gpu":
        try:
            engine.vocabularies.wait_until_open()
        except DeviceUnavailable as error:
            engine.close()
            raise ValueError(f"{PREFIX}ENGINE=gpu: {error}") from error
    return engine


def create_app(
    settings: Settings, engine: Engine | None = None, place_ids: PlaceIds | None = None
) -> Application:
    """Create an application with its own engine, vocabularies, queue and metrics.

    Args:
        settings: the settings of the service.
        engine: computes the ids; None: `make_engine` creates one.
        place_ids: copies ids into memory that front ends read; None: ids are not copied.
    """
    engine = engine or make_engine(settings)
    metrics = Metrics(package_version(), settings.max_batch_bytes, settings.max_metric_names)
    registry = Registry(engine, settings)
    guard = Guard(settings.api_keys_file, settings.host, allows_management=settings.management)
    runner = LocalRunner(engine, settings, metrics, place_ids, engine.begin_encode)
    batcher = Batcher(runner, settings, metrics, guard.limits)
    service = make_service(settings, engine, registry, batcher, metrics, guard)
    vocabularies = VocabularyManager(registry, engine, settings)
    service.engine_parts = EngineParts(engine, registry, vocabularies)
    oip = make_oip_state(service, engine)
    vocabularies.after_delete.append(oip.statistics.forget)
    templates = make_template_pool(settings, metrics)
    training = TrainingJobs(settings, metrics, vocabularies.register)
    metrics.gauges.store = registry.store.disk_bytes
    metrics.gauges.training_jobs = training.store.states
    metrics.gauges.stage_seconds = engine.take_stage_seconds
    app: Application
    fastapi = make_fastapi(service, oip, templates, training, lambda _: app.running())
    asgi = AsgiFastPath(PlainRoutes(fastapi, render.router), service)
    app = Application(service, oip, templates, training, fastapi, asgi)
    return app


def make_template_pool(settings: Settings, metrics: Metrics) -> TemplatePool:
    """Create the pool of processes that render chat templates."""
    num_cores = max(1, usable_cores() // max(1, settings.frontends))
    return TemplatePool(
        settings.chat_template_timeout_ms / 1000,
        settings.max_text_bytes,
        settings.template_processes or min(max(2, num_cores), 4),
        num_cores,
        metrics,
        settings.chat_cache_bytes // 4,
    )


def make_service(
    settings: Settings,
    engine: Codec,
    registry: VocabularyView,
    batcher: Batcher,
    metrics: Metrics,
    guard: Guard,
) -> Service:
    """Create the state that all operations share, and register the gauges of the metrics."""
    observer = RequestObserver(
        metrics,
        make_tracer(settings),
        access_log=settings.access_log,
        client_addresses=settings.client_addresses,
        server_timing=settings.server_timing,
    )
    service = Service(settings, engine, registry, batcher, metrics, guard, observer)
    certificates = service.certificates
    metrics.gauges = Gauges(
        queue=lambda: (batcher.queue_bytes, batcher.queue_rows),
        queue_limit_bytes=settings.max_queue_bytes,
        num_streams=lambda: batcher.num_streams,
        ready=lambda: not readiness(service),
        vocabularies=lambda: samples(registry, metrics.used_names(), settings.max_metric_names),
        vocabulary_states=functools.partial(count_states, registry),
        engine=engine.status,
        stale_files=functools.partial(list_stale_files, service),
        certificate_remaining_s=lambda: None if certificates is None else certificates.remaining_s,
    )
    return service


def list_stale_files(service: Service) -> dict[str, bool]:
    """Return for each file that is read again when it changes whether its last reading failed."""
    found = {"keys": service.guard.is_stale} if service.guard.has_keys else {}
    if service.certificates is not None:
        found["certificate"] = service.certificates.is_stale
    return found


def make_fastapi(
    service: Service,
    oip: OipState,
    templates: TemplatePool,
    training: TrainingJobs | None,
    lifespan: Lifespan[FastAPI],
) -> FastAPI:
    """Create the FastAPI application with all routes, and store the state of each feature in it.

    Args:
        service: the state that all operations share.
        oip: the state of the Open Inference Protocol.
        templates: the pool of processes that render chat templates.
        training: the training jobs; None: another process of the service runs them.
        lifespan: returns the context manager within which requests are answered.
    """
    # The documentation pages come with their scripts: the machine may have no network.
    app = FastAPIOffline(
        title="warptok",
        version=package_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.oip = oip
    app.state.templates = templates
    app.state.sections = sections = SectionCache(service.settings.chat_cache_bytes)
    service.metrics.gauges.chat_cache_bytes = lambda: sections.num_bytes
    app.state.training = training
    for routes in ROUTES:
        app.include_router(routes.router)
    app.openapi = with_refusals(app.openapi)  # type: ignore[method-assign]
    serve_written(app)
    for kind in (
        ServiceError,
        VocabularyError,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(kind, refuse)
    for kind in GONE:
        app.add_exception_handler(kind, note_gone_client)
    return app


async def note_gone_client(request: Request, _: Exception) -> Response:
    """Record that the client has disconnected; the returned response reaches nobody."""
    get_call(request.scope).is_gone = True
    return Response(status_code=CLIENT_CLOSED)


async def refuse(request: Request, error: Exception) -> Response:
    """Return the refusal of an exception, in the error format of the request's path."""
    if isinstance(error, BrokenStream):  # The error was logged, after the answer had begun.
        return Response(status_code=500)
    return make_error_response(request.scope["path"], error)
