"""Learns a vocabulary from a corpus: by byte-pair encoding, or by GeneticBPE if there are motifs.

The same corpus, motifs and options give the same vocabulary on every machine: scores are integers,
and of equal scores the pair with the lowest left, then the lowest right id is merged. This module
does not depend on sequence files or HTTP. Source: GeneticBPE, Algorithm 1 and Equation 9.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError
from vocabularies.formats.special_token_roles import guess_roles
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.motifs.bank import MotifBank
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.checkpoint import TrainingState, read_state, write_state
from vocabularies.training.layout import Layout, lay_out
from vocabularies.training.merger import CpuMerger, MakeMerger, Merge
from vocabularies.training.nucleotides import join_t_and_u
from vocabularies.training.options import TrainingOptions, thousandths

REPORT_SECONDS = 0.1
SAVE_SECONDS = 60.0
UNKNOWN = "[UNK]"
Ending = Literal["size", "compression", "both", "no pair", "stopped"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a training.

    Attributes:
        num_ids: the number of ids so far.
        target_ids: the number of ids at which the vocabulary has its full size.
        first_ids: the number of ids before the first merge.
        compression: the number of letters divided by the current number of tokens.
        seconds: the time in seconds since the training was started or continued.
    """

    num_ids: int
    target_ids: int
    first_ids: int
    compression: float
    seconds: float

    @property
    def fraction(self) -> float:
        """The share of the merges that are done, 0 to 1."""
        merges = self.target_ids - self.first_ids
        return min(1.0, (self.num_ids - self.first_ids) / merges) if merges else 1.0


@dataclass(frozen=True, slots=True)
class Training:
    """The result of a training.

    Attributes:
        vocabulary: the vocabulary of all merges so far, even if the training was stopped.
        merges: all merges in order.
        ending: why the training ended: "size", "compression", "both", "no pair" (no pair had both
            the frequency `min_frequency` and a score above 0), or "stopped" (by `should_stop`).
        compression: the letters of the whole corpus divided by its tokens.
        seconds: the time in seconds since the training was started or continued.
    """

    vocabulary: Vocabulary
    merges: tuple[Merge, ...]
    ending: Ending
    compression: float
    seconds: float


def train(
    corpus: Corpus,
    options: TrainingOptions | None = None,
    *,
    motifs: MotifBank | None = None,
    confidence: NDArray[np.int64] | None = None,
    state: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    make_merger: MakeMerger = CpuMerger,
) -> Training:
    """Learn a vocabulary.

    Args:
        corpus: the sequences; no merge crosses the border of a sequence.
        options: the options; None: the defaults.
        motifs: the sequences that tokens should not split; None: plain BPE, unless the options have
            a `seed_region`.
        confidence: int64[N], the confidence of each base in thousandths, by which the weights of
            spans are multiplied; None: 1000 each.
        state: the path of a file to which the training is saved at its begin, every minute and at
            its end; if the file exists, the training continues from it. None: no file.
        progress: called at most ten times a second, and at the end.
        should_stop: called before every merge; True stops the training.
        make_merger: makes the merger, which counts and merges pairs, on the CPU or on a GPU; all
            mergers give the same merges.

    Raises:
        VocabularyError: an option, the corpus or the motifs are invalid, a token that is learnt is
            also a special token, or the file of the state belongs to another training.
        OSError: the file cannot be read or written.

    Example: train(Corpus.of(["ACGACG", "ACG"]), TrainingOptions(8)).vocabulary.tokens is
    [UNK] A C G AC ACG. The next pair, ACG ACG, occurs once, below `min_frequency`.
    """
    options = options or TrainingOptions()
    normalizers: tuple[Normalizer, ...] = ()
    if options.t_and_u == "alike":
        corpus, normalizers = join_t_and_u(corpus, options.alphabet)
    layout = lay_out(corpus, options, motifs, confidence)
    key = _key(corpus, options, motifs, confidence)
    before = read_state(state, key) if state is not None else None
    trainer = _Trainer(layout, options, normalizers, before, make_merger)
    try:
        return _train(trainer, state, key, progress, should_stop)
    finally:
        trainer.merger.close()


def _train(
    trainer: _Trainer,
    state: Path | None,
    key: dict[str, object],
    progress: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> Training:
    """Merge until the training ends, and report and save its state."""

    def save() -> None:
        if state is not None:
            write_state(state, key, trainer.state())

    save()  # A file that cannot be written raises an error before the work, not after it.
    started = reported = saved = monotonic()
    while (ending := trainer.ending()) is None:
        if should_stop is not None and should_stop():
            ending = "stopped"
            break
        if not trainer.merge_best():
            ending = "no pair"
            break
        now = monotonic()
        if progress is not None and now - reported >= REPORT_SECONDS:
            reported = now
            progress(trainer.progress(now - started))
        if now - saved >= SAVE_SECONDS:
            save()
            saved = monotonic()
    save()
    seconds = monotonic() - started
    if progress is not None:
        progress(trainer.progress(seconds))
    return Training(
        trainer.vocabulary(), tuple(trainer.merges), ending, trainer.compression, seconds
    )


def _key(
    corpus: Corpus,
    options: TrainingOptions,
    motifs: MotifBank | None,
    confidence: NDArray[np.int64] | None,
) -> dict[str, object]:
    """Return everything on which a training depends; a state with another key is not continued.

    `t_and_u` is not included: the corpus has been changed already, and merges do not depend on it.
    """
    fields = dataclasses.asdict(options)
    del fields["t_and_u"]
    return {
        "corpus": corpus.digest,
        "options": fields,
        "motifs": None if motifs is None else motifs.digest,
        "confidence": None if confidence is None else _digest(confidence),
    }


def _digest(array: NDArray[np.int64]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, "<i8").data).hexdigest()


class _Trainer:
    """A training between two merges."""

    def __init__(
        self,
        layout: Layout,
        options: TrainingOptions,
        normalizers: tuple[Normalizer, ...],
        state: TrainingState | None,
        make_merger: MakeMerger,
    ) -> None:
        self.layout = layout
        self.options = options
        self.normalizers = normalizers
        self.merges: list[Merge] = []
        self._tokens = [content.encode() for content in options.special_tokens]
        self._lengths = [0] * layout.num_special
        for token in layout.tokens:
            self._add(token)
        symbols = layout.symbols
        if state is not None:
            for merge in state.merges:
                self._learn(Merge(*merge))
            symbols = state.first
        largest = np.iinfo(np.int16).max
        fits = options.stop == "either" and options.vocabulary_size <= largest
        first: NDArray[np.signedinteger[Any]] = symbols.astype(np.int16 if fits else np.int32)
        self.merger = make_merger(layout, options, first, [*self._lengths])

    @property
    def num_ids(self) -> int:
        return len(self._lengths)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the whole corpus."""
        return self.merger.num_tokens + self.layout.num_fixed_tokens

    @property
    def compression(self) -> float:
        return self.layout.num_bases / max(1, self.num_tokens)

    def ending(self) -> Ending | None:
        """Return why the training has ended; None if it has not."""
        options = self.options
        is_large = self.num_ids >= options.vocabulary_size
        if options.min_compression is None:
            return "size" if is_large else None
        least = thousandths(options.min_compression)
        is_short = self.layout.num_bases * 1000 >= least * self.num_tokens
        if options.stop == "both":
            return "both" if is_large and is_short else None
        return "size" if is_large else "compression" if is_short else None

    def merge_best(self) -> bool:
        """Merge the pair with the highest score; return False if there is none."""
        merge = self.merger.best()
        if merge is None:
            return False
        self.merger.merge(merge, self.num_ids)
        self._learn(merge)
        return True

    def _learn(self, merge: Merge) -> None:
        self.merges.append(merge)
        self._add(self._tokens[merge.left] + self._tokens[merge.right])

    def _add(self, token: bytes) -> None:
        """Give a token the next id.

        Raises:
            VocabularyError: the token is also a special token.
        """
        if token in self._tokens[: self.layout.num_special]:
            where = f"special_tokens[{self._tokens.index(token)}]"
            message = f"{token.decode()!r} is also a token that the corpus or the motifs give"
            raise VocabularyError.at(where, message)
        self._tokens.append(token)
        self._lengths.append(len(token))

    def progress(self, seconds: float) -> Progress:
        return Progress(
            num_ids=self.num_ids,
            target_ids=self.options.vocabulary_size,
            first_ids=self.layout.num_ids,
            compression=self.compression,
            seconds=seconds,
        )

    def state(self) -> TrainingState:
        return TrainingState(self.merger.first, [*self.merges])

    def vocabulary(self) -> Vocabulary:
        """Make the vocabulary of the merges so far."""
        layout, contents = self.layout, self.options.special_tokens
        tokens = self._tokens
        # Two pairs never give the same token, because the letters between two borders are merged in
        # only one way.
        assert len(set(tokens)) == len(tokens), "two tokens are equal; this is a bug"
        return Vocabulary(
            tokens=tuple(tokens),
            model=Bpe(
                merges=tuple((merge.left, merge.right) for merge in self.merges),
                byte_level=False,
                ignore_merges=bool(layout.motifs),
                unknown_id=contents.index(UNKNOWN) if UNKNOWN in contents else None,
            ),
            special_tokens=tuple(SpecialToken(content, i) for i, content in enumerate(contents)),
            normalizers=self.normalizers,
            pretokenizer="motifs" if layout.motifs else "none",
            motifs=layout.motifs,
            roles=guess_roles((content, i) for i, content in enumerate(contents)),
        )
