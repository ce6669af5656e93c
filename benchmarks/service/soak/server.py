"""Runs the service for the soak test with an engine that has no memory for texts with MARK.

The engine is the one that the service chooses, that of the GPU where there is one. With front ends,
the supervisor starts this module in place of service.multiprocess.child, so that the engines of all
processes fail alike.
"""

from __future__ import annotations

import runpy
import socket
import sys
from pathlib import Path
from typing import Any

from service.cli.parser import main
from service.core.settings import Settings
from service.engines.base import Engine
from service.engines.cpu.engine import CpuEngine
from service.multiprocess import supervisor
from service.server import app
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary

MARK = "out of memory, please"
FORCED = "encode_unless_marked"  # In the traceback of each forced error.
MARKED_CHARACTERS = 100  # Longer texts are not looked through.
MODULE = "benchmarks.service.soak.server"
CHILD = "service.multiprocess.child"
make_engine = app.make_engine
make_command = supervisor.Child.command


def make_exhaustible(engine: Engine) -> Engine:
    """Make an engine fail, as without memory, for every batch that holds MARK."""
    encode = engine.encode

    def encode_unless_marked(vocabulary: Vocabulary, batch: Batch) -> Encoded:
        texts = batch.texts()[0] if batch.has_texts else ()
        if any(len(text) <= MARKED_CHARACTERS and MARK in text for text in texts):
            raise MemoryError("forced by the soak")
        return encode(vocabulary, batch)

    engine.encode = encode_unless_marked  # type: ignore[method-assign]
    return engine


def make_exhaustible_engine(settings: Settings, *options: Any) -> Engine:
    """Make the engine of a service or of an engine process."""
    return make_exhaustible(make_engine(settings, *options))


def make_exhaustible_cpu_engine(*arguments: Any, **named: Any) -> Engine:
    """Make the engine of a front end."""
    return make_exhaustible(CpuEngine(*arguments, **named))


def make_child_command(
    self: supervisor.Child, link: Path, sockets: list[socket.socket]
) -> list[str]:
    """Make the command line of a child that runs this module."""
    command = make_command(self, link, sockets)
    return [MODULE if each == CHILD else each for each in command]


def run_child() -> None:
    """Run a front end or the engine process."""
    from service.multiprocess import engine_process, front_end

    setattr(engine_process, "make_engine", make_exhaustible_engine)  # noqa: B010
    setattr(front_end, "CpuEngine", make_exhaustible_cpu_engine)  # noqa: B010
    runpy.run_module(CHILD, run_name="__main__")


if __name__ == "__main__":
    app.make_engine = make_exhaustible_engine  # type: ignore[assignment]
    supervisor.Child.command = make_child_command  # type: ignore[method-assign]
    if sys.argv[1].startswith("{"):
        run_child()
    sys.exit(main(sys.argv[1:]))
