"""Starts clusters of Ray on this machine, with small object stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE_BYTES = 80 << 20


@contextmanager
def local_cluster(num_nodes: int, num_cpus: int = 1) -> Iterator[Any]:
    """Start nodes of so many cores each; the first one is the head."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": num_cpus, "object_store_memory": STORE_BYTES}
    head = {**node, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(num_nodes - 1):
            cluster.add_node(**node)
        yield cluster
    finally:
        cluster.shutdown()
