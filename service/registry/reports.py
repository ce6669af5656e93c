"""Describes vocabularies to clients and to the metrics."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pydantic import BaseModel, Field

from service.engines.base import Residency
from service.observability.metrics import VocabularySample
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.vocabulary_view import VocabularyView

DEFAULT_SAMPLES = 200


class SelfTestReport(BaseModel):
    """The comparison with the reference library that was made when the vocabulary was loaded."""

    witness: str
    num_texts: int
    num_different: int
    first_difference: str = ""


class VocabularyReport(BaseModel):
    """The description of a vocabulary; fields that require loading are null until it is loaded."""

    name: str
    aliases: list[str] = Field(default=[], description="Aliases of the vocabulary.")
    state: str = Field(description="State: loaded, unloaded or failed.")
    builtin: bool
    source: str
    licence: str
    digest: str | None = None
    kind: str | None = Field(
        None, description="Kind of its model: bpe, kmers, characters or upstream."
    )
    size: int | None = Field(None, description="Number of ids.")
    engine: str | None = Field(None, description="Engine that computes the ids.")
    encoder: str | None = None
    residency: list[str] = Field(default=[], description="Devices that hold its tables: gpu, cpu.")
    device_bytes: int = 0
    self_test: SelfTestReport | None = None
    fallback_reason: str = Field(
        "", description="Why a slower engine or encoder is used; empty if it is not."
    )
    error: str = Field("", description="Why the vocabulary cannot be loaded; empty if it can.")
    notes: list[str] = Field(
        default=[],
        description="Remarks on the rules of the uploaded file, such as rules that are ignored.",
    )


class VocabularyList(BaseModel):
    """All vocabularies that have a name."""

    vocabularies: list[VocabularyReport]


class VerifyRequest(BaseModel):
    """The texts to compare, or the number of texts to generate."""

    texts: list[str] | None = None
    samples: int = Field(DEFAULT_SAMPLES, ge=1)


class VerifyResponse(BaseModel):
    """The comparison of the engine's ids with the ids of the reference."""

    vocabulary: str
    digest: str
    witness: str
    num_texts: int
    num_different: int
    num_ids: int
    num_equal_ids: int
    engines: list[str] = Field(description="Engines that computed the ids: gpu, cpu, reference.")
    first_difference: dict[str, Any] | None = Field(
        description="The first text whose ids differ, with both lists of ids; null if all are "
        "equal."
    )


def report(registry: VocabularyView, known: RegisteredVocabulary) -> VocabularyReport:
    """Describe one vocabulary."""
    made = _describe_name(registry, known)
    entry = registry.entries.get(known.name)
    if entry is None:
        made.error = registry.failures.get(known.name, "")
        made.state = "failed" if made.error else "unloaded"
        return made
    _add_loaded(made, entry, registry.residency(entry))
    return made


def report_put(registry: VocabularyView, entry: LoadedVocabulary) -> VocabularyReport:
    """Describe a vocabulary that was registered, even if its name was replaced since."""
    uploaded = RegisteredVocabulary(entry.name, "uploaded", "", False)
    made = _describe_name(registry, registry.known.get(entry.name, uploaded))
    _add_loaded(made, entry, registry.residency(entry))
    return made


def _describe_name(registry: VocabularyView, known: RegisteredVocabulary) -> VocabularyReport:
    return VocabularyReport(
        name=known.name,
        aliases=[alias for alias, own in list(registry.aliases.items()) if own == known.name],
        state="unloaded",
        builtin=known.builtin,
        source=known.source,
        licence=known.licence,
        notes=list(known.notes),
    )


def _add_loaded(report: VocabularyReport, entry: LoadedVocabulary, residency: Residency) -> None:
    vocabulary = entry.vocabulary
    report.state = "loaded"
    report.digest = vocabulary.digest
    report.kind = vocabulary.kind
    report.size = len(vocabulary)
    report.engine, report.encoder = residency.engine, residency.encoder
    report.residency = ["gpu", "cpu"] if residency.device_bytes else ["cpu"]
    report.device_bytes = residency.device_bytes
    report.fallback_reason = residency.fallback_reason
    test = residency.self_test
    report.self_test = SelfTestReport(
        witness=test.witness,
        num_texts=test.num_texts,
        num_different=test.num_different,
        first_difference=test.first_difference,
    )


def samples(registry: VocabularyView, used: frozenset[str], limit: int) -> list[VocabularySample]:
    """Describe vocabularies for the metrics: used ones, failed ones, and those with wrong ids.

    Args:
        registry: the vocabularies.
        used: the names of the vocabularies that requests use.
        limit: the maximum number of vocabularies that failed to load, and of those whose self-test
            found differences.
    """
    differing = (
        name
        for name, entry in list(registry.entries.items())
        if registry.residency(entry).self_test.num_different
    )
    names = used | {*islice(list(registry.failures), limit), *islice(differing, limit)}
    return [_sample(registry, name) for name in sorted(names) if name in registry.known]


def _sample(registry: VocabularyView, name: str) -> VocabularySample:
    entry = registry.entries.get(name)
    if entry is None:
        state = "failed" if name in registry.failures else "unloaded"
        return VocabularySample(name, "", "", state, "", "", 0, 0)
    vocabulary, residency = entry.vocabulary, registry.residency(entry)
    return VocabularySample(
        name,
        vocabulary.digest,
        vocabulary.kind,
        "loaded",
        residency.engine,
        residency.encoder,
        residency.self_test.num_texts,
        residency.self_test.num_different,
        residency.device_bytes,
    )


def count_states(registry: VocabularyView) -> dict[str, int]:
    """Count the vocabularies in each state."""
    loaded, failed = len(registry.entries), len(registry.failures)
    return {
        "loaded": loaded,
        "failed": failed,
        "unloaded": max(0, len(registry.known) - loaded - failed),
    }
