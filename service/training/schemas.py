"""Defines training jobs in requests, in answers and in records on disk."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from vocabularies.errors import VocabularyError
from vocabularies.formats.parsing import parse_json
from vocabularies.training.options import TrainingOptions

JobState = Literal["queued", "running", "interrupted", "finished", "failed", "cancelled"]
ENDED: tuple[JobState, ...] = ("finished", "failed", "cancelled")
MAX_FINDINGS = 100


def _from_text(value: Any) -> Any:
    """Parse a list from the text of a form field."""
    return parse_json(value.encode()) if isinstance(value, str) else value


class TrainingParameters(BaseModel):
    """The options of a training, sent as form fields or as an object in the field `parameters`."""

    model_config = ConfigDict(extra="forbid")

    vocabulary: str = Field(description="Name for the trained vocabulary.")
    replace: bool = Field(
        False,
        description="Whether the trained vocabulary may replace another one of the same name; "
        "the key then also needs the scope manage.",
    )
    reading: Literal["sequences", "lines", "whole"] = Field(
        "sequences",
        description="What is a sequence. 'sequences': each record of a FASTA or FASTQ file, "
        "which is recognized by its first byte, and each line of other files; 'lines': each "
        "line; 'whole': each file.",
    )
    upper: bool = Field(
        False, description="Convert lower-case letters, such as those of repeats, to upper case."
    )
    spell: Literal["T", "U"] | None = Field(
        None, description="'T' replaces every U by T, 'U' every T by U; null: no change."
    )
    vocabulary_size: int = Field(
        512,
        description="Number of ids of the vocabulary: special tokens, letters, motif tokens "
        "and merges.",
    )
    min_frequency: int = Field(
        2, description="Minimum number of occurrences of a pair that is merged."
    )
    max_token_length: int | None = Field(
        None, description="Maximum number of letters of a token that a merge makes."
    )
    motif_weight: float = Field(
        2.5, description="Lambda: score for each occurrence of a pair inside a motif."
    )
    penalty_weight: float = Field(
        10.0, description="Mu: penalty for each occurrence of a pair across the border of a motif."
    )
    min_compression: float | None = Field(
        None,
        description="Compression at which training may stop: letters of the corpus for "
        "each of its tokens.",
    )
    stop: Literal["either", "both"] = Field(
        "either",
        description="Whether training stops when the size or the compression is "
        "reached ('either'), or only when both are ('both').",
    )
    merge_rule: Literal["global", "span_preserving"] = Field(
        "global",
        description="'global': motifs influence which pairs are merged; 'span_preserving': "
        "motifs become tokens that are cut out before anything is merged, in training and in "
        "encoding.",
    )
    motif_tokens: int | None = Field(
        None, description="With 'span_preserving': number of motifs that become tokens; null: all."
    )
    seed_region: Annotated[tuple[int, int] | None, BeforeValidator(_from_text)] = Field(
        None,
        description="First and last base, counted from 1, of a span that is treated as a "
        "motif in every sequence, such as [2, 8].",
    )
    penalty: Literal["count", "binary"] = Field(
        "count",
        description="What mu is multiplied with: 'count', the number of occurrences "
        "across a border; 'binary', 1 if there are any.",
    )
    crossing: Literal["split", "any"] = Field(
        "split",
        description="Which tokens count as crossing the border of a motif: 'split', "
        "those that split the motif; 'any', also those that contain the whole motif and more.",
    )
    merge_harmful: bool = Field(False, description="Also merge pairs whose score is not above 0.")
    alphabet: str | None = Field(None, description="Letters that are tokens; null: all that occur.")
    t_and_u: Literal["alike", "apart"] = Field(
        "alike",
        description="'alike': T and U are one letter of nucleotide sequences, in training and in "
        "encoding; 'apart': they are two.",
    )
    special_tokens: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        ("[UNK]",),
        description="Special tokens, which have the first ids; '[UNK]' is the id of "
        "letters that are not tokens.",
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
    where: str = Field(
        "", description="Place of the fault: a line of a file, a sequence or an option."
    )
    findings: list[TrainingFinding] = Field(
        [], description="All faults if there are several; otherwise empty."
    )

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
    num_bases: int = Field(0, description="Number of letters in all sequences.")
    num_merges: int = 0
    wanted_merges: int = Field(0, description="Number of merges that the requested size needs.")
    vocabulary_size: int = Field(0, description="Number of ids so far.")
    compression: float = Field(0.0, description="Letters of the corpus for each of its tokens.")
    seconds: float = Field(0.0, description="Seconds spent on training, in all runs of the job.")
    device: str = Field("", description="Device that trains: cpu or cuda.")
    device_reason: str = Field(
        "", description="Why the CPU trains although a GPU is allowed; empty if it does not."
    )
    device_selftest: Literal["", "passed", "failed"] = Field(
        "",
        description="Whether the GPU made the same merges as the CPU in its test; empty if "
        "no GPU was tested.",
    )
    ending: str = Field(
        "",
        description="Why training ended: size, compression, both, or because no pair is left "
        "to merge.",
    )


class TrainingJob(BaseModel):
    """One training job."""

    id: str
    vocabulary: str = Field(description="Name for the trained vocabulary.")
    state: JobState = "queued"
    progress: float = Field(0.0, ge=0, le=1)
    metrics: TrainingMetrics = TrainingMetrics()
    digest: str | None = Field(None, description="Digest of the vocabulary; null until it exists.")
    error: TrainingError | None = Field(
        None, description="Why the job failed or was interrupted; null if neither."
    )
    parameters: TrainingParameters
    corpus_bytes: int = Field(description="Size of the corpus as it was uploaded.")
    created_at: datetime
    started_at: datetime | None = Field(None, description="Start of the last run.")
    ended_at: datetime | None = None


class TrainingJobList(BaseModel):
    """All stored jobs, oldest first."""

    jobs: list[TrainingJob]
