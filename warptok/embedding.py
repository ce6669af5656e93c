"""Embeds sequences without calling their tokenizer, with the names of the DNATok paper.

`EmbeddingLayer` needs torch, which is imported when the layer is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from gpu.embedding import tokenizer_discovery
from warptok.results import import_library
from warptok.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gpu.embedding.layer import EmbeddingLayer as EmbeddingLayer
    from gpu.embedding.tokenizer_discovery import Discovery
    from gpu.embedding.upstream_tokenizer import Engine

__all__ = ["EmbeddingLayer", "discover"]


def discover(
    source: Any, *, engine: Engine | None = None, token_len: int | Literal["max"] | None = None
) -> Discovery:
    """Learn which ids a tokenizer returns, so that they can be looked up without the tokenizer.

    Args:
        source: a `warptok.Tokenizer`, or any source that
            `gpu.embedding.tokenizer_discovery.discover` accepts: a model, an embedder, or a
            tokenizer of another library.
        engine: encodes the sequences for which no rule was found; None: the engine of the
            `warptok.Tokenizer`, or the other library's tokenizer itself.
        token_len: the number of ids to which every row is padded; "max": the largest number that
            the embedder accepts.

    Raises:
        TypeError: the source is none of these, or token_len is not an integer.
        ValueError: token_len is below 1, or the embedder has no maximum.
    """
    if isinstance(source, Tokenizer):
        source, engine = source._vocabulary, engine or source._engine
    return tokenizer_discovery.discover(source, engine=engine, token_len=token_len)


def __getattr__(name: str) -> Any:
    """Import the layer.

    Raises:
        NotInstalled: torch is not installed.
    """
    if name != "EmbeddingLayer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_library("torch", f"warptok.embedding.{name}")
    return getattr(import_module("gpu.embedding.layer"), name)
