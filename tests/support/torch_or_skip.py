"""Imports torch for the tests that need it; without it they are skipped, or fail if required."""

from __future__ import annotations

import os
from typing import Any

import pytest


def torch_or_skip() -> Any:
    """Import torch, or skip the test; with REQUIRE_TORCH=1 fail instead of skipping."""
    if os.environ.get("REQUIRE_TORCH") != "1":
        return pytest.importorskip("torch", reason="torch is not installed (extra: embedding)")
    import torch

    return torch
