"""A process that crashes in a native library leaves its stacks in the log."""

from __future__ import annotations

import signal
import subprocess
import sys

CRASHES = """
import ctypes
from service.core.settings import Settings
from service.observability.logging import configure
configure(Settings())
def reads_nothing():
    ctypes.string_at(0)
reads_nothing()
"""


def test_a_crash_leaves_the_stacks_in_the_log():
    ended = subprocess.run([sys.executable, "-c", CRASHES], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGSEGV
    assert "in reads_nothing" in ended.stderr


def test_a_process_without_stderr_starts():
    script = CRASHES.replace("ctypes.string_at(0)", "pass")
    assert (
        subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", sys.executable, "-c", script]).returncode
        == 0
    )
