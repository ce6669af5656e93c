"""Lists the C++ extensions of this installation, and the functions that are slower without them.

An installation without a compiler works without them; the ids are the same.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from gpu.host import extensions as gpu_extensions

HOW = (
    "install g++ and Python's headers, then install warptok again (in a checkout: "
    "`.venv/bin/pip install -e .`)"
)
"""Advice on how to install the extensions."""


class Extension(NamedTuple):
    """A C++ extension, and what is slower without it."""

    module: str
    name: str
    without: str


EXTENSIONS = (
    Extension(
        "vocabularies.batch._string_join",
        "C++ that joins strings",
        "Python joins the texts of a batch, which takes longer",
    ),
    Extension(
        "service.core._json_elements",
        "C++ that finds a chat's messages",
        "the messages of a long chat are read and written once more",
    ),
    Extension(
        "service.operations.rendering._json_rows",
        "C++ that writes ids as JSON",
        "orjson writes the rows of a batch, which takes longer",
    ),
    Extension(
        "service.engines.cpu.text._text_bpe",
        "C++ that encodes text",
        "the CPU engine encodes byte-level BPE by tokenizers, fifty times slower",
    ),
    Extension(
        "service.engines.cpu.dna._dna_bpe",
        "C++ that encodes DNA BPE",
        "the CPU engine encodes DNABERT-2 and GENA-LM by tokenizers, fifty times slower",
    ),
    Extension(
        "service.engines.cpu.symbols._symbols",
        "C++ that encodes characters and k-mers",
        "the CPU engine encodes characters and k-mers by the reference, more than a thousand times "
        "slower",
    ),
    Extension(
        "service.corpus._corpus",
        "C++ that finds texts in lines of JSON",
        "`warptok corpus` reads JSON in Python, five times slower",
    ),
)
"""The extensions that services and commands use on the CPU."""
NO_GPU = "the GPU engine cannot be used"


def is_built(extension: Extension) -> bool:
    """Return whether an extension can be imported."""
    try:
        importlib.import_module(extension.module)
    except ImportError:
        return False
    return True


def describe_missing(uses_gpu: bool) -> str:
    """Describe in one line what is slower without the missing extensions, and how to install them.

    "" if none is missing.

    Args:
        uses_gpu: whether the service may use a GPU.
    """
    missing = [extension.without for extension in EXTENSIONS if not is_built(extension)]
    if uses_gpu and not gpu_extensions.are_built:
        missing.append(NO_GPU)
    return (
        f"C++ extensions are not built: {'; '.join(missing)}. To build them: {HOW}"
        if missing
        else ""
    )
