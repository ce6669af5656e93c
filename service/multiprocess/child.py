"""One process of several: started by the supervisor, with what it has to know as JSON.

It says that it listens on its standard output, and stops when its standard input ends, which is
when the supervisor has gone.
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
from service.runtime.malloc import SWITCH_S, keep_large_blocks
from service.server.startup import USAGE_ERROR


def main(argument: str) -> int:
    """Run the process until it is stopped; return its exit code."""
    given: dict[str, Any] = json.loads(argument)
    settings = Settings(**given["settings"])
    configure(settings, given["name"])
    keep_large_blocks()
    sys.setswitchinterval(SWITCH_S)
    sockets = [socket.socket(fileno=number) for number in given["sockets"]]
    try:
        if given["name"] == "engine":
            from service.multiprocess.engine_process import run_engine

            run_engine(settings, sockets[0])
        else:
            from service.multiprocess.front_end import run_front_end

            run_front_end(settings, sockets, Path(given["link"]), given["name"])
    except ValueError as error:
        print(f"warptok: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin = open(os.devnull)  # The descriptor itself is watched.
    sys.exit(main(sys.argv[1]))
