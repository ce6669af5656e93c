"""What the parts of one running service share; made by app.create_app, handed to every route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from service.apis.oip.statistics import Statistics
from service.core.errors import NotReady
from service.http.backpressure import StreamBudget

if TYPE_CHECKING:
    from service.apis.dialects.template_pool import TemplatePool
    from service.apis.oip.region_registry import RegionRegistry
    from service.batching.batcher import Batcher
    from service.core.settings import Settings
    from service.engines.base import Codec, Engine
    from service.observability.metrics import Metrics
    from service.observability.process_metrics import Processes
    from service.observability.request_observer import RequestObserver
    from service.registry.catalogue import Catalogue
    from service.registry.registry import Registry
    from service.security.guard import Guard
    from service.training.jobs import TrainingJobs


@dataclass(frozen=True, slots=True)
class EngineHost:
    """The engine and the registry of the process that has them."""

    engine: Engine
    registry: Registry


@dataclass(slots=True)
class Service:
    """One service; several can live in one process.

    Attributes:
        host: the engine and the registry of this process; None: another process has them.
        training: the training jobs; None: another process of the service has them.
        oip_statistics: requests by model, as the Open Inference Protocol reports them.
        preloaded: set when the vocabularies of the setting `preload` are loaded.
        guard: decides who may do what.
        regions: shared memory that clients have registered.
        chat_templates: the process that templates run in.
        observer: notes every answered request.
        processes: the other processes of the service; None: it is one process.
        unsent: what the answers of streams hold.
        num_streams: Arrow, FASTA and gRPC streams that are being answered.
        draining: set when the service has been told to stop; readiness is then off.
    """

    settings: Settings
    engine: Codec
    registry: Catalogue
    batcher: Batcher
    metrics: Metrics
    guard: Guard
    observer: RequestObserver
    regions: RegionRegistry
    chat_templates: TemplatePool
    host: EngineHost | None = None
    training: TrainingJobs | None = None
    oip_statistics: Statistics = field(default_factory=Statistics)
    processes: Processes | None = None
    preloaded: bool = False
    num_streams: int = 0
    unsent: StreamBudget = field(init=False)
    draining: bool = False

    def __post_init__(self) -> None:
        settings = self.settings
        self.unsent = StreamBudget(settings.max_unsent_bytes, settings.max_total_unsent_bytes)

    def get_host(self) -> EngineHost:
        """The engine and the registry of this process.

        Raises:
            NotReady: another process has them; whatever needs them is forwarded there.
        """
        if self.host is None:
            raise NotReady("only the engine process changes vocabularies and shares its device")
        return self.host
