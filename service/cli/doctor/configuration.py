"""Checks of the vocabularies, folders, files and ports that the settings name."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from service.cli.doctor.finding import Finding
from service.cli.doctor.machine import gib
from service.core.settings import PREFIX, Settings, describe_unknown
from service.registry.model_folder import find_model_names, read_model
from service.registry.names import Aliases
from service.registry.vocabulary_store import SUFFIX, VocabularyStore, open_store
from service.runtime.atomic_files import Store
from service.runtime.file_limits import (
    limit_grpc_connections,
    limit_http_connections,
    raise_file_limit,
)
from service.runtime.unix_sockets import find_unix_problem
from service.security.addresses import TrustedProxies
from service.security.api_keys import read_keys
from service.security.certificates import Certificates
from service.security.guard import is_loopback
from service.server.sockets import bind_sockets
from vocabularies import builtin

MIN_FREE_BYTES = 1 << 30
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_environment() -> Iterator[Finding]:
    """Report the settings that the environment has, unknown names and wrong values."""
    for name, message in describe_unknown().items():
        yield Finding(name, "error", message, "correct or unset it")
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    found = {name.upper(): value for name, value in os.environ.items() if name.upper() in names}
    yield from _wrong_values()
    detail = ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
    yield Finding(
        "settings", "ok", detail or "none is set, so all have their defaults", facts=found
    )


def _wrong_values() -> Iterator[Finding]:
    try:
        Settings()
    except ValidationError as error:
        for fault in error.errors():
            name = PREFIX + str(fault["loc"][0]).upper()
            yield Finding(
                name, "error", fault["msg"], "correct it: docs/settings.md has the values"
            )


def check_vocabularies(settings: Settings) -> Iterator[Finding]:
    """Check the names of vocabularies in the settings."""
    if settings.model_dir is not None:
        yield _check_model(settings)
        return
    try:
        store = open_store(settings, makes_folder=False)
    except ValueError:  # `check_store` says why.
        store = VocabularyStore(None)
    stored = store.names(SUFFIX)
    known = {*builtin.BUILTINS, *stored}
    try:
        aliases = Aliases(settings.aliases, store, settings.max_vocabularies)
    except ValueError as error:
        yield Finding("aliases", "error", str(error), "correct the setting")
        return
    aliases.read_store(known)
    known |= {alias for alias, own in aliases.names.items() if own in known}
    preload = settings.preload.strip()
    named = [] if preload in ("all", "none") else [name.strip() for name in preload.split(",")]
    unknown = [name for name in named if name and name not in known]
    if unknown:
        detail = f"{PREFIX}PRELOAD names {', '.join(unknown)}, but no vocabulary has this name"
        advice = f"correct {PREFIX}PRELOAD: `warptok vocabularies` lists the built-in ones"
        yield Finding("vocabularies", "error", detail, advice)
    elif settings.default_vocabulary not in known:
        detail = f"the default vocabulary {settings.default_vocabulary} does not exist yet"
        advice = f"upload it, or correct {PREFIX}DEFAULT_VOCABULARY"
        yield Finding("vocabularies", "warning", detail, advice)
    else:
        detail = f"{len(builtin.BUILTINS)} built in, {len(stored)} in the store"
        yield Finding("vocabularies", "ok", f"{detail}; {preload} preloaded")


def _check_model(settings: Settings) -> Finding:
    """Check the folder of the only model."""
    try:
        names, model = find_model_names(settings), read_model(settings)
    except (ValueError, OSError) as error:
        advice = f"correct {PREFIX}MODEL_DIR, or the files in it"
        return Finding("vocabularies", "error", str(error), advice)
    detail = f"{len(model.vocabulary)} ids in {settings.model_dir}, called {', '.join(names)}"
    return Finding("vocabularies", "ok", detail)


def check_store(settings: Settings) -> Iterator[Finding]:
    """Check the folder or object store of uploaded vocabularies, without creating it."""
    folder, what = settings.store_dir, "store folder"
    if settings.store_url is not None:
        yield _check_objects(settings)
    if folder is None and settings.store_url is None:
        detail = "none: uploaded vocabularies are in memory only, and a restart loses them"
        yield Finding(what, "ok", detail, f"to keep them set {PREFIX}STORE_DIR")
    if folder is None:
        return
    if problem := _folder_problem(folder):
        advice = f"give this user the folder, or correct {PREFIX}STORE_DIR"
        yield Finding(what, "error", f"{folder}: {problem}", advice)
        return
    if not folder.exists():
        yield Finding(
            what, "ok", f"{folder}: does not exist yet; the service makes it when it starts"
        )
        return
    yield _describe_store(what, folder)


def _check_objects(settings: Settings) -> Finding:
    """Open the object store of uploaded vocabularies, and list it."""
    try:
        store = open_store(settings)
    except ValueError as error:
        return Finding("object store", "error", str(error), f"correct {PREFIX}STORE_URL")
    detail = f"{settings.store_url}: {len(store.names(SUFFIX))} vocabularies"
    return Finding("object store", "ok", detail)


def _folder_problem(folder: Path) -> str:
    """Return why the service could not make or read a folder; "" if it can."""
    # os.path, since Path.exists raises where a folder above may not be searched.
    if os.path.exists(folder):
        if not os.path.isdir(folder):
            return "is not a folder"
        return "" if os.access(folder, os.R_OK | os.X_OK) else "cannot be read"
    parent = next(each for each in folder.absolute().parents if os.path.exists(each))
    if not os.path.isdir(parent):
        return f"{parent} is not a folder"
    return "" if os.access(parent, os.W_OK | os.X_OK) else f"cannot be made in {parent}"


def _describe_store(what: str, folder: Path) -> Finding:
    stored, free = len(list(Store(folder).files(SUFFIX))), shutil.disk_usage(folder).free
    detail = f"{folder}: {stored} vocabularies, {gib(free)} free"
    facts = {"folder": str(folder), "vocabularies": stored, "free_bytes": free}
    if not os.access(folder, os.W_OK):
        detail, advice = (
            f"{detail}; cannot be written, so uploads are refused",
            "let this user write",
        )
        return Finding(what, "warning", detail, advice, facts)
    if free < MIN_FREE_BYTES:
        return Finding(
            what, "warning", detail, "free some space: uploads and training need it", facts
        )
    return Finding(what, "ok", detail, facts=facts)


def check_keys(settings: Settings) -> Iterator[Finding]:
    """Check the file of keys and who may change it."""
    path, what = settings.api_keys_file, "keys"
    advice = f"`warptok key` writes a file of keys; name it by {PREFIX}API_KEYS_FILE"
    if path is None and is_loopback(settings.host):
        yield Finding(what, "ok", f"none: every program on this machine may call {settings.host}")
    elif path is None:
        detail = f"none: everybody may encode over {settings.host}, and nobody may upload or train"
        yield Finding(what, "warning", detail, advice)
    else:
        yield _describe_keys(what, path)


def _describe_keys(what: str, path: Path) -> Finding:
    try:
        num_keys, mode = len(read_keys(path)), path.stat().st_mode
    except (ValueError, OSError) as error:
        return Finding(what, "error", str(error), "correct the file, and let this user read it")
    detail = f"{path}: {num_keys}, permissions {stat.S_IMODE(mode):o}"
    if mode & OTHERS_MAY_WRITE:
        return Finding(what, "warning", f"{detail}: others may add keys", f"chmod 600 {path}")
    return Finding(what, "ok", detail)


def check_tls(settings: Settings) -> Iterator[Finding]:
    """Check the files of the certificate, if TLS is enabled."""
    what = "TLS"
    try:
        certificates = Certificates.from_settings(settings)
    except ValueError as error:
        advice = "correct the setting or the file, and let this user read it"
        yield Finding(what, "error", str(error), advice)
        return
    if certificates is not None:
        clients = "clients need one as well" if settings.tls_client_ca else "clients need none"
        yield Finding(what, "ok", f"{settings.tls_certificate}: fits its key; {clients}")


def check_unix_sockets(settings: Settings) -> Iterator[Finding]:
    """Check that the paths of the Unix sockets are free, and their folders exist."""
    paths = {"UNIX_SOCKET": settings.unix_socket, "GRPC_UNIX_SOCKET": settings.grpc_unix_socket}
    for setting, path in paths.items():
        if path is None:
            continue
        problem = find_unix_problem(path)
        if not problem and not os.access(path.parent, os.W_OK | os.X_OK):
            problem = f"{path.parent} cannot be written"
        if problem:
            advice = f"correct {PREFIX}{setting}"
            yield Finding("Unix socket", "error", f"{path}: {problem}", advice)
        else:
            yield Finding("Unix socket", "ok", f"{path}: free")


def check_connections(settings: Settings) -> Iterator[Finding]:
    """Check that the files that a process may open suffice for `max_connections`.

    Raises the limit of this process first, as the service does.
    """
    raise_file_limit()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    http, grpc = limit_http_connections(settings), limit_grpc_connections(settings)
    is_enough = http * max(1, settings.frontends) >= settings.max_connections
    each = " in each front end" if settings.frontends else ""
    detail = f"up to {http} over HTTP{each}"
    if settings.serves_grpc:
        is_enough &= grpc >= settings.max_connections
        detail += f", up to {grpc} over gRPC"
    limit = "no limit" if files == resource.RLIM_INFINITY else f"at most {files}"
    detail += f"; files that a process may open: {limit}"
    if is_enough:
        yield Finding("connections", "ok", detail)
        return
    detail += f"; fewer than {settings.max_connections}"
    advice = (
        "raise the hard limit of open files (systemd's LimitNOFILE, docker's --ulimit nofile), or "
        f"lower {PREFIX}MAX_CONNECTIONS"
    )
    yield Finding("connections", "warning", detail, advice)


def check_proxies(settings: Settings) -> Iterator[Finding]:
    """Check the addresses of proxies, if any are set."""
    try:
        proxies = TrustedProxies(settings)
    except ValueError as error:
        yield Finding("trusted proxies", "error", str(error), "correct the setting")
        return
    if proxies.names:
        yield Finding("trusted proxies", "ok", ", ".join(proxies.names))


class Port(NamedTuple):
    """A port of the service, and the name of its setting."""

    what: str
    setting: str
    number: int


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Check that each port of the service can be bound, and that no two are the same."""
    if not settings.has_ports:
        return
    ports = [Port("HTTP port", "PORT", settings.port)]
    if settings.grpc:
        ports.append(Port("gRPC port", "GRPC_PORT", settings.grpc_port))
    if settings.metrics_port is not None:
        ports.append(Port("metrics port", "METRICS_PORT", settings.metrics_port))
    others: dict[int, str] = {}
    for port in ports:
        other = others.get(port.number, "") if port.number else ""
        yield _check_port(settings, port, other)
        others[port.number] = port.what


def _check_port(settings: Settings, port: Port, other: str) -> Finding:
    """Check a port; `other` is the port of the service that has the same number, if any."""
    if other:
        detail = f"{port.number} is also the {other}"
        return Finding(port.what, "error", detail, f"set {PREFIX}{port.setting}")
    try:
        for each in bind_sockets(settings.model_copy(update={"port": port.number})):
            each.close()
    except ValueError as error:
        setting, _, problem = str(error).partition(": ")
        advice = f"stop the program that uses it, or set {PREFIX}{port.setting}"
        if setting == f"{PREFIX}HOST":
            advice = f"correct {setting}"
        return Finding(port.what, "error", problem, advice)
    number = f"port {port.number} is free" if port.number else "takes a free port"
    return Finding(port.what, "ok", f"{settings.host}: {number}")


def check_tracing(settings: Settings) -> Iterator[Finding]:
    """Check that the packages for tracing are installed, if it is on."""
    if not settings.tracing:
        return
    try:
        found = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
    except ImportError:
        found = None
    if found is None:
        advice = f"install warptok with the extra tracing, or unset {PREFIX}TRACING"
        yield Finding("tracing", "error", "its packages are not installed", advice)
    else:
        yield Finding("tracing", "ok", "its packages are installed")
