"""Measures the memory of a process with nothing loaded, which must not grow.

How many uploads are ready at a moment is chance, and one with an encoder of text takes some MiB.
So there are two measures: what is left without them, which stays the same, and what is resident
with them, which has a bound.
"""

from __future__ import annotations

import functools
import gc
import sys
from dataclasses import dataclass
from types import ModuleType

from service.operations.context import Service
from service.runtime import malloc
from tests.fuzz.hunt import resident_bytes
from vocabularies.preprocessing.unicode_classes import class_mask

# More than the allocator varies by; tokenizers itself leaves 0.6 KB of each that has encoded.
GROWTH_BYTES = 48 << 20


@dataclass(frozen=True, slots=True)
class Size:
    """Resident bytes of a process at one moment.

    Attributes:
        loaded: as it was.
        settled: once every upload was unloaded, the caches that have a bound were emptied, and
            what is free was given back.
    """

    loaded: int
    settled: int


def measured(service: Service) -> Size:
    """Unload uploads and measure the memory of this process; their next use loads them again."""
    loaded, registry = resident_bytes(), service.registry
    for name, known in list(registry.known.items()):
        if not known.builtin:
            registry.unload(name)
    named = {entry.vocabulary.digest for entry in registry.entries.values()}
    for digest in registry.engine.holdings().keys() - named:
        registry.engine.unload(digest)
    _empty_bounded_caches()
    gc.collect()
    malloc.give_back()
    return Size(loaded, resident_bytes())


def _empty_bounded_caches() -> None:
    """Empty the caches of functions, except masks of Unicode classes: there are only some names."""
    class_mask.cache_clear()
    # Not by gc.get_objects(), which has nothing of what the service froze when it was ready.
    modules = [each for each in sys.modules.values() if isinstance(each, ModuleType)]
    for each in [value for module in modules for value in vars(module).values()]:
        if type(each) is functools._lru_cache_wrapper and each.cache_parameters()["maxsize"]:
            each.cache_clear()


def what_grew(sizes: list[Size], loaded_vocabulary_bytes: int) -> str:
    """Describe the growth of memory over repeated measurements; "" if there is none."""
    begin, end = sizes[len(sizes) // 5].settled, sizes[-1].settled
    if end > begin + GROWTH_BYTES:
        return f"grew by {end - begin >> 20} MiB with nothing loaded"
    most, bound = max(size.loaded for size in sizes), end + loaded_vocabulary_bytes
    if most > bound + 2 * GROWTH_BYTES:
        return f"was at {most >> 20} MiB, with a bound of {bound >> 20}"
    return ""
