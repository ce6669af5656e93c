"""The options of a training, each with its default and the reason for the default.

Weights and compressions have at most three decimals, so that scores are integers. This module does
not depend on corpora.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from vocabularies.errors import Finding, VocabularyError
from vocabularies.training.pair_table import ScoreRule
from vocabularies.training.span_scores import Crossing

MAX_VOCABULARY = 1 << 20
MAX_SCORE_WEIGHT = 1000
MAX_COMPRESSION = 1000
THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """The options of a training; corpus, motifs and confidence are arguments of `train`.

    Attributes:
        vocabulary_size: the number of ids: special tokens, letters, motif tokens and merges.
            Default 512, as in the GeneticBPE paper.
        min_frequency: the lowest frequency of a pair that is merged. Default 2, because a token
            that occurs once says nothing about other texts.
        max_token_length: the largest number of letters of a learnt token; None: no limit.
        motif_weight: the paper's lambda, the bonus for each occurrence of a pair inside a motif's
            span. Default 2.5, the best value in the paper.
        penalty_weight: the paper's mu, the penalty for each occurrence of a pair that crosses a
            motif's border. Default 10: "a value like 10 or 20" (section 6.2). Without motifs,
            neither weight has an effect, and the training is plain BPE.
        min_compression: the paper's c_min, the letters of the whole corpus divided by its tokens;
            None: no such limit.
        stop: "either": stop at the vocabulary size or the compression, whichever comes first
            (Algorithm 1's while-condition); "both": stop when both are reached (the text of section
            4.2), so the vocabulary may become larger. Default "either", because a model's embedding
            has the vocabulary size.
        merge_rule: where merges apply. "global": wherever the pair occurs (Equation 9); motifs only
            influence which pairs are merged, and encoding needs no motifs. "span_preserving":
            motifs are tokens and are separated from the text before merging, in training and in
            encoding (Figure 3c); no token splits such a motif, and the two weights have no effect.
            Default "global", as in the paper's equation.
        motif_tokens: for "span_preserving": the number of motifs that become tokens; these have the
            highest total weight in the corpus. None: all motifs of the bank.
        seed_region: the first and the last base, counted from 1, of a region that is a span in
            every sequence, such as (2, 8) for miRNA; None: no region. Only for "global", because
            encoding cannot find a region by position.
        penalty: how the penalty of a pair is counted. "count": the number of occurrences that cross
            a border (Algorithm 1). "binary": 1 for a pair with such occurrences ("binary in its
            simplest form", section 6.2). Default "count", because a single penalty of 10 or 20 has
            little effect on frequencies of thousands.
        crossing: when a token crosses a motif's border. "split": if it contains a part of the
            motif, but not all of it, and also other letters. "any": also if it contains the whole
            motif and other letters. Default "split"; with "any", a motif inside a longer motif
            would penalize the token of the longer one, which splits neither.
        merge_harmful: whether pairs are merged whose score is 0 or less. Default False, because
            their penalty is at least their benefit; Algorithm 1 does not specify this.
        alphabet: the letters that are tokens; other letters are unknown, and no token contains
            them; None: all letters of the corpus.
        t_and_u: "alike": T and U are the same letter of nucleotide sequences, in training and, by a
            normalizer of the vocabulary, in encoding; see `nucleotides.join_t_and_u`. "apart": they
            are different letters. Default "alike", because aligners and the tokenizers of RNA
            models treat RNA and DNA of one gene as the same sequence.
        special_tokens: the tokens with the first ids. "[UNK]" is the token for unknown letters;
            without it they are dropped, as in the Hugging Face library.

    Raises:
        VocabularyError: some options are invalid; the error lists each.
    """

    vocabulary_size: int = 512
    min_frequency: int = 2
    max_token_length: int | None = None
    motif_weight: float = 2.5
    penalty_weight: float = 10.0
    min_compression: float | None = None
    stop: Literal["either", "both"] = "either"
    merge_rule: Literal["global", "span_preserving"] = "global"
    motif_tokens: int | None = None
    seed_region: tuple[int, int] | None = None
    penalty: Literal["count", "binary"] = "count"
    crossing: Crossing = "split"
    merge_harmful: bool = False
    alphabet: str | None = None
    t_and_u: Literal["alike", "apart"] = "alike"
    special_tokens: tuple[str, ...] = ("[UNK]",)

    def __post_init__(self) -> None:
        if findings := tuple(_faults(self)):
            raise VocabularyError(findings)

    @property
    def rule(self) -> ScoreRule:
        """The rule by which pairs are scored."""
        return ScoreRule(
            motif_weight=thousandths(self.motif_weight),
            penalty_weight=thousandths(self.penalty_weight),
            binary=self.penalty == "binary",
            lowest=-(1 << 62) if self.merge_harmful else 1,
        )


def thousandths(value: float) -> int:
    """Convert a number with at most three decimals to an integer in thousandths."""
    return round(value * THOUSAND)


def _faults(options: TrainingOptions) -> Iterator[Finding]:
    bounds: tuple[tuple[str, Any, float, float], ...] = (
        ("vocabulary_size", options.vocabulary_size, 1, MAX_VOCABULARY),
        ("min_frequency", options.min_frequency, 1, 1 << 40),
        ("max_token_length", options.max_token_length, 2, 1 << 20),
        ("motif_weight", options.motif_weight, 0, MAX_SCORE_WEIGHT),
        ("penalty_weight", options.penalty_weight, 0, MAX_SCORE_WEIGHT),
        ("min_compression", options.min_compression, 1, MAX_COMPRESSION),
        ("motif_tokens", options.motif_tokens, 1, MAX_VOCABULARY),
    )
    for name, value, lowest, highest in bounds:
        if value is None:
            continue
        if not lowest <= value <= highest:
            yield Finding(name, f"is {value}; it must be {lowest} to {highest}")
        elif isinstance(value, float) and abs(value * THOUSAND - thousandths(value)) > 1e-6:
            yield Finding(name, f"is {value}; at most three decimals are possible")
    yield from _choice_faults(options)
    yield from _token_faults(options)


def _choice_faults(options: TrainingOptions) -> Iterator[Finding]:
    choices = {
        "stop": ("either", "both"),
        "merge_rule": ("global", "span_preserving"),
        "penalty": ("count", "binary"),
        "crossing": ("split", "any"),
        "t_and_u": ("alike", "apart"),
    }
    for name, known in choices.items():
        if (value := getattr(options, name)) not in known:
            yield Finding(name, f"{value!r} is not one of {', '.join(known)}")
    if options.seed_region is not None:
        first, last = options.seed_region
        if not 1 <= first < last:
            message = f"is {first} to {last}; it must have at least two bases, counted from 1"
            yield Finding("seed_region", message)
        if options.merge_rule == "span_preserving":
            message = (
                "must not be given with 'span_preserving', which finds motifs by their letters; "
                "give motifs instead"
            )
            yield Finding("seed_region", message)
    if options.motif_tokens is not None and options.merge_rule == "global":
        yield Finding(
            "motif_tokens", "must not be given, because only 'span_preserving' makes motifs tokens"
        )


def _token_faults(options: TrainingOptions) -> Iterator[Finding]:
    alphabet = options.alphabet
    if alphabet is not None and (
        not alphabet or not alphabet.isascii() or len({*alphabet}) < len(alphabet)
    ):
        yield Finding("alphabet", f"{alphabet!r} must be different ASCII letters")
    for i, token in enumerate(options.special_tokens):
        if len(token) < 2 or token in options.special_tokens[:i]:
            message = f"{token!r} must have at least two letters and differ from the others"
            yield Finding(f"special_tokens[{i}]", message)
