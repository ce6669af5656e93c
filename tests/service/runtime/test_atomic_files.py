"""Stored files have the mode that other programs give to theirs; private files have 0600."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WRITE = """
import os, sys
from pathlib import Path
from service.runtime.atomic_files import Store
os.umask(int(sys.argv[2], 8))
Store(Path(sys.argv[1]), is_private=sys.argv[3] == "private").write("gp/t2", b"content")
"""


@pytest.mark.parametrize(
    ("umask", "kind", "mode"),
    [("022", "shared", 0o644), ("002", "shared", 0o664), ("000", "private", 0o600)],
)
def test_a_stored_file_has_the_mode_of_the_umask_unless_it_is_private(tmp_path, umask, kind, mode):
    subprocess.run([sys.executable, "-c", WRITE, tmp_path, umask, kind], check=True)
    assert os.listdir(tmp_path) == ["gp%2Ft2"]
    assert (tmp_path / "gp%2Ft2").read_bytes() == b"content"
    assert (tmp_path / "gp%2Ft2").stat().st_mode & 0o777 == mode
