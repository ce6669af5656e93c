"""Chooses the fastest encoder of a vocabulary whose ids equal the reference's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gpu.errors import NotCovered
from service.engines.base import Decoded, SelfTest
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder, is_unknown_failure
from service.engines.cpu.decode import decode_by_library
from service.engines.cpu.dna.encoder import NAME, DnaEncoder
from service.engines.cpu.recorded_answers import recorded_answers
from service.engines.cpu.symbols.encoder import SymbolEncoder
from service.engines.cpu.text.encoder import TextEncoder
from service.engines.encoder import Encoder, ReferenceEncoder
from service.engines.fault_isolation import reraise_unless_failure
from service.engines.selftest import compare, make_test_texts
from vocabularies.errors import VocabularyError
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.tables import TokenTable, character_table
from vocabularies.model.types import Bpe, Kmers, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import forget_rules

Int64s = NDArray[np.int64]
logger = logging.getLogger(__name__)
# Measured (2026-11) as allocated and resident memory with tokenizers: 500 to 1,200 bytes a token.
TOKEN_BYTES = 768
WORKER_BYTES = 48 << 20  # A process of its own, for a vocabulary with unknown patterns.


@dataclass(frozen=True, slots=True, eq=False)
class ChosenEncoder:
    """The encoder of a vocabulary, and why it was chosen.

    Attributes:
        encoder: the encoder.
        self_test: the result of comparing it with the reference.
        fallback_reason: why no faster encoder was chosen; "" if it is the fastest.
        decode: for Upstream models only: decodes rows from ids, offsets, and whether to skip
            special tokens.
        close: ends the processes of the encoder, if any.
    """

    encoder: Encoder
    self_test: SelfTest
    fallback_reason: str = ""
    decode: Callable[[Int64s, Int64s, bool], Decoded] | None = None
    close: Callable[[], object] = lambda: None


MakeEncoder = Callable[[Vocabulary, TokenTable], Encoder]


def host_bytes(vocabulary: Vocabulary, encoder: Encoder) -> int:
    """Estimate the memory of a loaded vocabulary, its tables and its encoder together."""
    fixed = WORKER_BYTES if vocabulary.may_take_long else 0
    if isinstance(encoder, DnaEncoder | TextEncoder):
        fixed += encoder.num_bytes
    return fixed + TOKEN_BYTES * len(vocabulary)


def choose_encoder(
    vocabulary: Vocabulary, table: TokenTable, num_threads: int = 0
) -> ChosenEncoder:
    """Try the encoders, the fastest first; choose the reference if none has equal ids.

    Args:
        vocabulary: the vocabulary.
        table: the tokens of the vocabulary.
        num_threads: the most threads that encode a batch; 0: one per usable core.

    Raises:
        VocabularyError: no encoder can compute this vocabulary.
    """
    if isinstance(vocabulary.model, Upstream):
        return _choose_upstream(vocabulary, table)
    texts, reference = make_test_texts(vocabulary), ReferenceEncoder(vocabulary)
    recorded = recorded_answers(vocabulary)
    reasons: list[str] = []
    failed: SelfTest | None = None
    try:
        for make in _candidates(vocabulary, num_threads):
            try:
                encoder = make(vocabulary, table)
            except NotCovered as error:
                reasons.append(f"{NAME} does not cover it: {error}")
                continue
            except (ValueError, VocabularyError) as error:
                reasons.append(f"a library cannot read it: {error}")
                continue
            self_test = compare(encoder, reference, texts, recorded)
            if not self_test.num_different:
                return ChosenEncoder(encoder, self_test, "; ".join(reasons))
            failed = failed or self_test
            reasons.append(f"{encoder.name} differs on {self_test.first_difference}")
            logger.warning("Self-test of %s: %s", vocabulary.digest, reasons[-1])
    finally:
        forget_rules()
        tokenizer_json.cache_clear()
    if not reasons:
        reasons.append("no encoder covers normalizers or pretokens of this model")
    logger.warning("The reference answers for %s: %s", vocabulary.digest, "; ".join(reasons))
    none = SelfTest(reference.name, len(texts), 0)
    return ChosenEncoder(reference, failed or none, "; ".join(reasons))


def _candidates(vocabulary: Vocabulary, num_threads: int) -> Iterator[MakeEncoder]:
    if character_table(vocabulary) is not None:
        yield partial(_make_symbol_encoder, num_threads)
    elif isinstance(vocabulary.model, Kmers):
        if not vocabulary.normalizers and vocabulary.pretokenizer == "none":
            yield partial(_make_symbol_encoder, num_threads)
    if isinstance(vocabulary.model, Bpe):
        if vocabulary.model.byte_level:
            yield partial(_make_text_encoder, num_threads)
        else:
            yield partial(_make_dna_encoder, num_threads)
        yield TokenizersEncoder


def _make_symbol_encoder(
    num_threads: int, vocabulary: Vocabulary, table: TokenTable
) -> SymbolEncoder:
    return SymbolEncoder(vocabulary, num_threads)


def _make_text_encoder(num_threads: int, vocabulary: Vocabulary, table: TokenTable) -> TextEncoder:
    return TextEncoder(vocabulary, table, num_threads)


def _make_dna_encoder(num_threads: int, vocabulary: Vocabulary, table: TokenTable) -> DnaEncoder:
    return DnaEncoder(vocabulary, TokenizersEncoder(vocabulary, table), num_threads)


def _choose_upstream(vocabulary: Vocabulary, table: TokenTable) -> ChosenEncoder:
    """Choose the library that defines the ids; compare its batches with its single texts."""
    encoder = TokenizersEncoder(vocabulary, table)
    tokenizer = encoder.tokenizer(False)
    _check_added(tokenizer)
    num_added = len(vocabulary.prefix) + len(vocabulary.suffix)
    if tokenizer.num_special_tokens_to_add(False) != num_added:
        message = "the begin and end tokens are more than ids before and after the text"
        raise VocabularyError.at("post_processor", message)

    def decode_row(ids: list[int], skip: bool) -> str:
        return tokenizer.decode(ids, skip_special_tokens=skip)

    def decode(ids: Int64s, offsets: Int64s, skip: bool) -> Decoded:
        return decode_by_library(decode_row, table, ids, offsets, skip)

    texts = make_test_texts(vocabulary)
    wrong: list[str] = []
    try:
        for text in texts:
            try:
                row = _encode_alone(encoder, text)
            except Exception as error:
                if not is_unknown_failure(error):
                    raise
                continue  # Such a text is refused, and others have their ids.
            if _encode_as_batch(encoder, text) != row:
                wrong.append(text)
            decode_row(row, False)
    except BaseException as error:  # A Rust panic is no Exception.
        reraise_unless_failure(error)
        message = f"the library tokenizers fails on a text: {error}"
        raise VocabularyError.at("model", message) from error
    first = f"{wrong[0]!r}" if wrong else ""
    return ChosenEncoder(encoder, SelfTest(encoder.name, len(texts), len(wrong), first), "", decode)


def _check_added(tokenizer: Tokenizer) -> None:
    """Check the results of normalizing the added tokens that the library normalizes.

    Raises:
        VocabularyError: a token becomes empty, so that the library would search forever and use all
            memory; or two become equal, so that a random hash seed decides which of them it finds.
    """
    if not (normalizer := tokenizer.normalizer):
        return
    seen: dict[str, str] = {}
    for token_id, token in tokenizer.get_added_tokens_decoder().items():
        if not token.normalized:
            continue
        where = f"added_tokens, id {token_id}"
        normalized = normalizer.normalize_str(token.content)
        if not normalized:
            raise VocabularyError.at(where, "the normalizer removes all of it")
        if normalized in seen:
            message = f"{token.content!r} is the same as {seen[normalized]!r} after the normalizer"
            raise VocabularyError.at(where, f"{message}, so its id is ambiguous")
        seen[normalized] = token.content


def _encode_as_batch(encoder: TokenizersEncoder, text: str) -> list[int]:
    (encoding,) = encoder.tokenizer(False).encode_batch_fast([text], add_special_tokens=False)
    return list(encoding.ids)


def _encode_alone(encoder: TokenizersEncoder, text: str) -> list[int]:
    return list(encoder.tokenizer(False).encode(text, add_special_tokens=False).ids)
