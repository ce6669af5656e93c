"""Runs a front end or the engine process, as a program that the supervisor starts.

Its argument is a JSON object. The process reports on standard output that it is listening, and
stops when its standard input ends, because then the supervisor has ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from service.core.settings import Settings
from service.observability.logging import configure
from service.runtime.file_limits import raise_file_limit
from service.runtime.malloc import SWITCH_S, keep_large_blocks
from service.server.startup import USAGE_ERROR


def main(argument: str) -> int:
    """Run the process until it is stopped; return its exit code."""
    values: dict[str, Any] = json.loads(argument)
    settings = Settings(**values["settings"])
    configure(settings, values["name"])
    keep_large_blocks()
    raise_file_limit()
    sys.setswitchinterval(SWITCH_S)
    sockets = [socket.socket(fileno=number) for number in values["sockets"]]
    try:
        if values["name"] == "engine":
            from service.multiprocess.engine_process import run_engine

            return run_engine(settings, sockets[0], is_restarted=values["restarts"] > 0)
        from service.multiprocess.front_end import run_front_end

        run_front_end(settings, sockets, Path(values["link"]), values["name"])
    except ValueError as error:
        print(f"warptok: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin = open(os.devnull)  # The event loop watches the descriptor itself.
    sys.exit(main(sys.argv[1]))
