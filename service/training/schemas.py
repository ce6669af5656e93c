"""Defines training jobs in requests, in answers and in records on disk."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from vocabularies.errors import VocabularyError
from vocabularies.training.options import TrainingOptions

JobState = Literal["queued", "running", "interrupted", "finished", "failed", "cancelled"]
ENDED: tuple[JobState, ...] = ("finished", "failed", "cancelled")
MAX_FINDINGS = 100


def _from_text(value: Any) -> Any:
    """Parse a list from the text of a form field."""
    return json.loads(value) if isinstance(value, str) else value


class TrainingParameters(BaseModel):
    """The options of a training, sent as form fields or as an object in the field `parameters`."""

    model_config = ConfigDict(extra="forbid")

    vocabulary: str = Field(description="The name that the learnt vocabulary gets.")
    replace: bool = Field(
        False,
        description="The name may mean another vocabulary, which is replaced; the key then needs "
        "the scope manage, too.",
    )
    reading: Literal["sequences", "lines", "whole"] = Field(
        "sequences",
        description="'sequences': records where the first byte is that of FASTA or FASTQ, else "
        "lines; 'lines': each line; 'whole': each file is one sequence.",
    )
    upper: bool = Field(False, description="Read lower case, as of repeats, as upper case.")
    spell: Literal["T", "U"] | None = Field(
        None, description="Write every U as T, or every T as U; null: as it stands."
    )
    vocabulary_size: int = Field(
        512, description="Ids in all: special tokens, letters, motif tokens, merges."
    )
    min_frequency: int = Field(2, description="A rarer pair is not merged.")
    max_token_length: int | None = Field(None, description="Most letters of a learnt token.")
    motif_weight: float = Field(2.5, description="Lambda: for a pair inside a motif's span.")
    penalty_weight: float = Field(10.0, description="Mu: for a pair across a motif's border.")
    min_compression: float | None = Field(
        None, description="Letters for each token of the whole corpus at which training may stop."
    )
    stop: Literal["either", "both"] = Field(
        "either", description="Stop at the size or the compression, or when both are reached."
    )
    merge_rule: Literal["global", "span_preserving"] = Field(
        "global",
        description="'global': motifs move the choice of merges; 'span_preserving': motifs are "
        "tokens, cut out before anything is merged, in training and in encoding.",
    )
    motif_tokens: int | None = Field(
        None, description="How many motifs become tokens; null: all. For 'span_preserving'."
    )
    seed_region: Annotated[tuple[int, int] | None, BeforeValidator(_from_text)] = Field(
        None, description="First and last base, from 1, of a span in every sequence: [2, 8]."
    )
    penalty: Literal["count", "binary"] = Field(
        "count", description="What mu counts: each occurrence across a border, or 1 for any."
    )
    crossing: Literal["split", "any"] = Field(
        "split", description="Whether a token crosses a border of a motif that it holds whole."
    )
    merge_harmful: bool = Field(False, description="Go on with pairs whose score is not above 0.")
    alphabet: str | None = Field(None, description="The letters that are tokens; null: all.")
    t_and_u: Literal["alike", "apart"] = Field(
        "alike",
        description="'alike': T and U are one letter of nucleotide sequences, in training and in "
        "encoding; 'apart': they are two.",
    )
    special_tokens: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        ("[UNK]",), description="The first ids; '[UNK]' stands for letters that are no tokens."
    )

    def options(self) -> TrainingOptions:
        """Convert the parameters to the training's options.

        Raises:
            VocabularyError: some options are wrong; the error lists all of them.
        """
        of_job = {"vocabulary", "replace", "reading", "upper", "spell"}
        return TrainingOptions(**self.model_dump(exclude=of_job))


class TrainingFinding(BaseModel):
    """One fault and its place."""

    where: str
    message: str


class TrainingError(BaseModel):
    """Why a job failed, or was interrupted."""

    code: str = Field(description="For programs.")
    detail: str = Field(description="For people.")
    where: str = Field("", description="The place: a file's line, a sequence, an option.")
    findings: list[TrainingFinding] = Field([], description="Only when there are several.")

    @classmethod
    def of(cls, error: VocabularyError) -> TrainingError:
        """Make a job's error from findings in its corpus, motifs or options."""
        first, *others = error.findings[:MAX_FINDINGS]
        described = cls(code="vocabulary_invalid", detail=first.message, where=first.where)
        if others:
            described.findings = [
                TrainingFinding(where=finding.where, message=finding.message)
                for finding in (first, *others)
            ]
        return described


class TrainingMetrics(BaseModel):
    """The progress of a job: the figures of its corpus and of the vocabulary learned so far."""

    num_sequences: int = 0
    num_bases: int = Field(0, description="Letters of all sequences.")
    num_merges: int = 0
    wanted_merges: int = Field(0, description="Merges to the requested size.")
    vocabulary_size: int = Field(0, description="Ids so far.")
    compression: float = Field(0.0, description="Letters for each token of the corpus.")
    seconds: float = Field(0.0, description="In training, over all runs.")
    device: str = Field("", description="What it was computed on: cpu or cuda.")
    device_reason: str = Field(
        "", description="Why it was computed on the processor, if a GPU was allowed."
    )
    device_selftest: Literal["", "passed", "failed"] = Field(
        "", description="Whether the GPU, if one was tested, learnt what the processor learns."
    )
    ending: str = Field(
        "", description="Why training ended: size, compression, both, or no pair to merge."
    )


class TrainingJob(BaseModel):
    """One training job."""

    id: str
    vocabulary: str = Field(description="The name that the vocabulary gets.")
    state: JobState = "queued"
    progress: float = Field(0.0, ge=0, le=1)
    metrics: TrainingMetrics = TrainingMetrics()
    digest: str | None = Field(None, description="Of the vocabulary, once it is there.")
    error: TrainingError | None = Field(None, description="Why it failed, or was interrupted.")
    parameters: TrainingParameters
    corpus_bytes: int = Field(description="As uploaded.")
    created_at: datetime
    started_at: datetime | None = Field(None, description="Of the last run.")
    ended_at: datetime | None = None


class TrainingJobList(BaseModel):
    """All stored jobs, oldest first."""

    jobs: list[TrainingJob]
