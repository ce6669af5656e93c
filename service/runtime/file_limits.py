"""Divides the file descriptors of a process between its connections and everything else."""

from __future__ import annotations

import os
import resource

from service.core.settings import Settings

RESERVED_CONNECTIONS = 32  # For probes and metrics while all other connections are in use.
RESERVED_FILES = 64  # For devices, uploads, training, and connections that are being closed.
WANTED_FILES = 65_536  # The limit is raised up to this number, if the system allows it.
MIN_CONNECTIONS = 8
GRPC_PARTS = 4  # With HTTP in the same process gRPC gets one of so many parts.


def raise_file_limit() -> None:
    """Raise the limit of open files of this process as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_http_connections(settings: Settings) -> int:
    """Return the largest number of HTTP connections of this process, not counting probes.

    Each of several front ends gets its share of `max_connections`.
    """
    share = -(-settings.max_connections // max(1, settings.frontends))
    files = _count_free_files()
    if settings.serves_grpc and not settings.frontends:
        files -= files // GRPC_PARTS
    return min(share, max(MIN_CONNECTIONS, files))


def limit_grpc_connections(settings: Settings) -> int:
    """Return the largest number of gRPC connections of this process."""
    files = _count_free_files()
    if not settings.frontends:
        files //= GRPC_PARTS
    return min(settings.max_connections, max(MIN_CONNECTIONS, files))


def _count_free_files() -> int:
    """Return the number of files that this process may still open for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = WANTED_FILES
    num_open = len(os.listdir("/proc/self/fd"))
    return soft - num_open - RESERVED_CONNECTIONS - RESERVED_FILES
