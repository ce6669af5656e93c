"""Makes the environment with which child processes import the same packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATHS = "PYTHONPATH"
INSTALLED = ("site-packages", "dist-packages")


def child_environment() -> dict[str, str]:
    """Return the environment for a process of `python -m service...`.

    A checkout that is not installed may only be in `sys.path`, which a child process does not
    inherit.
    """
    environment = dict(os.environ)
    is_checkout = any(Path(path).resolve() == ROOT for path in sys.path)
    if is_checkout and ROOT.name not in INSTALLED:
        given = environment.get(PATHS)
        environment[PATHS] = f"{ROOT}{os.pathsep}{given}" if given else str(ROOT)
    return environment
