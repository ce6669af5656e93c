"""torch for the tests that need it: a visible skip without it, an error where it is required."""

from __future__ import annotations

import os
from typing import Any

import pytest


def torch_or_skip() -> Any:
    """The module torch; REQUIRE_TORCH=1 turns its absence from a skip into an error."""
    if os.environ.get("REQUIRE_TORCH") != "1":
        return pytest.importorskip("torch", reason="torch is not installed (extra: embedding)")
    import torch

    return torch
