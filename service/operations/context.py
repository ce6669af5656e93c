"""Defines the state that all operations of one service share; server/app.py creates it."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.batching.batcher import Batcher
from service.core.errors import NotReady
from service.core.settings import Settings
from service.engines.base import Codec, Engine
from service.observability.closed_connections import ClosedConnections
from service.observability.metrics import Metrics
from service.observability.process_metrics import Processes
from service.observability.request_observer import RequestObserver
from service.operations.stream_budget import StreamBudget
from service.registry.management import VocabularyManager
from service.registry.registry import Registry
from service.registry.vocabulary_view import VocabularyView
from service.security.certificates import Certificates
from service.security.guard import Guard
from service.security.request_heads import HeadRules


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts of a service that exist only in the process with the engine.

    Attributes:
        engine: computes ids, stores vocabularies, and shares device memory.
        registry: the vocabularies by name, with methods to change them.
        vocabularies: uploads, deletes, loads and unloads vocabularies.
    """

    engine: Engine
    registry: Registry
    vocabularies: VocabularyManager


@dataclass(slots=True)
class Service:
    """The state of one service; one process can contain several.

    Attributes:
        settings: the settings of the service.
        engine: computes ids.
        registry: the vocabularies by name.
        batcher: joins work items into batches for the engine.
        metrics: the metrics of the service.
        guard: checks API keys, their scopes and their rates.
        observer: counts, logs and traces every answered request.
        heads: checks the head of each request.
        unix_heads: the same for Unix sockets, where every Host is allowed, as web pages cannot
            reach them.
        certificates: the certificate for TLS; None: the service does not use TLS.
        closed_connections: counts and logs connections that the service closes early.
        streams: counts the open streams, and limits their unsent bytes.
        engine_parts: the parts of the process with the engine; None in other processes.
        processes: the other processes of the service; None if there are none.
        preloaded: whether the vocabularies of the setting `preload` are loaded.
        draining: whether the service is stopping; if so, it is not ready, and HTTP connections
            close after their next answer.
    """

    settings: Settings
    engine: Codec
    registry: VocabularyView
    batcher: Batcher
    metrics: Metrics
    guard: Guard
    observer: RequestObserver
    heads: HeadRules = field(init=False)
    unix_heads: HeadRules = field(init=False)
    certificates: Certificates | None = field(init=False)
    closed_connections: ClosedConnections = field(init=False)
    streams: StreamBudget = field(init=False)
    engine_parts: EngineParts | None = None
    processes: Processes | None = None
    preloaded: bool = False
    draining: bool = False

    def __post_init__(self) -> None:
        settings = self.settings
        self.heads = HeadRules(settings)
        self.unix_heads = HeadRules(settings.model_copy(update={"allowed_hosts": "any"}))
        self.certificates = Certificates.from_settings(settings)
        self.closed_connections = ClosedConnections(self.metrics, settings.client_addresses)
        self.streams = StreamBudget(
            settings.max_streams, settings.max_unsent_bytes, settings.max_total_unsent_bytes
        )

    def join_processes(self, processes: Processes) -> None:
        """Connect this process to the others, which are notified of changed vocabularies."""
        self.processes = processes
        if self.engine_parts is not None:
            self.engine_parts.vocabularies.after_change = processes.synchronize

    def get_engine_parts(self) -> EngineParts:
        """Return the parts that exist only in the process with the engine.

        Raises:
            NotReady: this process has no engine; requests that need it are forwarded.
        """
        if self.engine_parts is None:
            raise NotReady(
                "only the engine process can change vocabularies and open device memory; try again"
            )
        return self.engine_parts
