"""What the parts of one running service share; made by app.create_app, handed to every route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.batcher import Batcher
    from service.engines import Engine
    from service.metrics import Metrics
    from service.registry import Registry
    from service.settings import Settings

__all__ = ["Service"]


@dataclass(slots=True)
class Service:
    """One service; several can live in one process.

    Attributes:
        preloaded: set when the vocabularies of the setting `preload` are loaded.
        num_streams: Arrow and FASTA streams that are being answered.
        draining: set when the service has been told to stop; readiness is then off.
    """

    settings: Settings
    engine: Engine
    registry: Registry
    batcher: Batcher
    metrics: Metrics
    preloaded: bool = False
    num_streams: int = 0
    draining: bool = False
