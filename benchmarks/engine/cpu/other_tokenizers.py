"""Starts another Python that times its version of tokenizers in turns with this process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROGRAM = Path(__file__).with_name("other_python.py")


class OtherTokenizers:
    """A process that runs `other_python.py`; as a context manager, it ends the process.

    Args:
        python: the other Python.
        tokenizer: the path of a tokenizer.json.
        texts: the path of a JSON list of batches, each a list of strings.

    Attributes:
        version: the version of tokenizers.

    Raises:
        RuntimeError: it ended.
    """

    def __init__(self, python: Path, tokenizer: Path, texts: Path) -> None:
        self._process = subprocess.Popen(
            [python, PROGRAM, tokenizer, texts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version: str = self._answer()

    def encode(self, number: int) -> tuple[float, NDArray[np.int32]]:
        """Encode a batch; return the seconds that it took there, and the ids."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        seconds, rows = self._answer()
        joined = [np.zeros(0, np.int32), *(np.array(row, np.int32) for row in rows)]
        return seconds, np.concatenate(joined)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the other Python ended")
        return json.loads(line)

    def __enter__(self) -> OtherTokenizers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()
