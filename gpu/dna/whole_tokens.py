"""Finds the tokens of a BPE over letters that match only the whole text between two borders.

With `ignore_merges`, a pretoken that is a token encodes to this token without any merges. So a
token that merges do not reach, such as a special token's text in plain text, matches a whole
pretoken. cuda/special/accept.cuh finds them in a text.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from gpu.dna.normalizers import Steps
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS
from vocabularies.reference.bpe import token_ids_of

MAX_BYTES = constant("MAX_SPECIAL")


def whole_tokens(
    vocabulary: Vocabulary, reached: Container[bytes], steps: Steps
) -> dict[bytes, int]:
    """Return the ids of the tokens that match only a whole text between borders, without motifs.

    Args:
        vocabulary: a vocabulary whose model is BPE over letters.
        reached: the tokens that merges reach.
        steps: the normalizers.

    Raises:
        NotCovered: a normalizer may change such tokens or motifs before they are matched.
    """
    model = vocabulary.model
    assert isinstance(model, Bpe)
    motifs = {motif.encode() for motif in vocabulary.motifs}
    token_ids = token_ids_of(vocabulary) if model.ignore_merges else {}
    whole = {
        token: token_id
        for token, token_id in token_ids.items()
        if token and token not in reached and token not in motifs
    }
    for reason in _obstacles(vocabulary, whole, motifs, steps):
        raise NotCovered(reason)
    return whole


def _obstacles(
    vocabulary: Vocabulary, whole: dict[bytes, int], motifs: set[bytes], steps: Steps
) -> Iterator[str]:
    if whole and vocabulary.pretokenizer not in ("none", MOTIFS):
        yield "a pretoken that is a token which merges do not reach"
    if any(len(token) > MAX_BYTES for token in whole):
        yield f"a token of more than {MAX_BYTES} bytes that merges do not reach"
    if steps.strips and (whole or motifs):
        yield "white space is stripped, and tokens are found between borders"
    if steps.maps and not all(token.isascii() for token in (*whole, *motifs)):
        yield "letters become others, and tokens are cut whole that have such beyond ASCII"
    if steps.run_letter:
        run, made = bytes([steps.run_letter]), bytes([steps.run_content])
        if any(run in motif or made in motif for motif in motifs):
            yield f"a run of {run.decode()} becomes one letter, and motifs have such letters"
        if any(run * steps.run_length in token or made in token for token in whole):
            yield f"a run of {run.decode()} becomes one letter, and whole tokens have such letters"
    special = {t.content.encode(): t.id for t in vocabulary.special_tokens if t.matched}
    if any(special.get(token, token_id) != token_id for token, token_id in whole.items()):
        yield "a special token spells what a token does that merges do not reach"
