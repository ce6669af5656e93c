"""Runs the HTTP service in Ray Serve: each replica is a whole service in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray import serve

if TYPE_CHECKING:
    from service.server.app import Application

DEFAULTS: dict[str, object] = {"grpc": False, "frontends": 0, "management": False}
"""Default settings of replicas: only HTTP, and no uploads, as only one replica would get each."""


def make_serve_application(
    *,
    num_gpus: float = 0,
    num_cpus: int = 1,
    deployment: dict[str, Any] | None = None,
    **settings: object,
) -> serve.Application:
    """Make an application for `serve.run` that serves HTTP; each replica has a GPU or some cores.

    Args:
        num_gpus: the GPUs of a replica, 0 or 1.
        num_cpus: the cores of a replica, and the number of threads that encode on the CPU.
        deployment: arguments of `serve.deployment`, such as `num_replicas` or `autoscaling_config`.
        settings: settings of the service in lower case, such as `preload="gpt2"`; they win over the
            environment variables of the replica (`WARPTOK_PRELOAD`).

    Example: serve.run(make_serve_application(num_gpus=1, deployment={"num_replicas": 8}))
    """
    engine = {"engine": "gpu" if num_gpus else "cpu", "cpu_threads": num_cpus}

    def build() -> Application:
        return _build({**DEFAULTS, **engine, **settings})

    options = {"name": "warptok", "max_ongoing_requests": 256, **(deployment or {})}
    resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    deploy = serve.deployment(ray_actor_options=resources, **options)
    return deploy(serve.ingress(build)()).bind()


def _build(settings: dict[str, object]) -> Application:
    """Make the service of a replica; runs in the replica's process."""
    from service.core.settings import read_settings
    from service.registry.model_folder import use_model
    from service.server.app import create_app

    return create_app(use_model(read_settings(**settings)))
