"""Runs the command `doctor`: all checks, printed as lines or as one JSON object."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import orjson
from pydantic import ValidationError

from service.cli.doctor import cards, configuration, machine
from service.cli.doctor.finding import Finding
from service.core.settings import Settings

MACHINE: tuple[Callable[[], Iterator[Finding]], ...] = (
    machine.check_version,
    machine.check_extensions,
    machine.check_libraries,
    cards.check_cards,
    configuration.check_environment,
)
"""The checks that need no settings."""
SERVICE: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    cards.check_gpu_engine,
    configuration.check_vocabularies,
    configuration.check_store,
    configuration.check_keys,
    configuration.check_tls,
    configuration.check_unix_sockets,
    configuration.check_proxies,
    configuration.check_connections,
    configuration.check_ports,
    configuration.check_tracing,
)
"""The checks of what the settings require."""


def run(arguments: argparse.Namespace) -> int:
    """Print the findings of all checks; return 1 if the service would not start."""
    findings = diagnose()
    would_start = all(finding.state != "error" for finding in findings)
    if arguments.json:
        found = [finding.as_json() for finding in findings]
        print(orjson.dumps({"would_start": would_start, "findings": found}).decode())
    else:
        for finding in findings:
            print(finding.line())
    return 0 if would_start else 1


def diagnose() -> list[Finding]:
    """Run all checks; those of the service only where its settings are valid."""
    findings = [finding for check in MACHINE for finding in check()]
    try:
        settings = Settings()
    except ValidationError:  # Reported by check_environment.
        return findings
    return findings + [finding for check in SERVICE for finding in check(settings)]
