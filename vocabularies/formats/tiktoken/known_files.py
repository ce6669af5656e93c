"""The published rank files by their SHA-256, with the fields that a rank file does not contain.

Only facts: names, numbers, digests. Sources: tiktoken_ext/openai_public.py of openai/tiktoken
(r50k, p50k, cl100k, o200k), Meta's llama3 tokenizer.py, Qwen's tokenization_qwen.py, mistral-common
(tekken).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vocabularies.preprocessing.normalizers import Normalizer


@dataclass(frozen=True, slots=True)
class KnownRanks:
    """The pretokenizer, special tokens, offset and normalizers that belong to a rank file."""

    pretokenizer: str
    special_tokens: Mapping[str, int]
    id_offset: int = 0
    normalizers: tuple[Normalizer, ...] = ()


def _llama3_special_tokens() -> dict[str, int]:
    """Make the contents of the tokens 128000..128255; five have names, others are numbered."""
    named = {
        128000: "<|begin_of_text|>",
        128001: "<|end_of_text|>",
        128006: "<|start_header_id|>",
        128007: "<|end_header_id|>",
        128009: "<|eot_id|>",
    }
    others = (i for i in range(128000, 128256) if i not in named)
    reserved = {i: f"<|reserved_special_token_{number}|>" for number, i in enumerate(others)}
    return {content: i for i, content in sorted((named | reserved).items())}


_KNOWN = {
    # r50k_base, GPT-2
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": KnownRanks(
        "gpt2", {"<|endoftext|>": 50256}
    ),
    # p50k_base
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": KnownRanks(
        "gpt2", {"<|endoftext|>": 50256}
    ),
    # cl100k_base
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": KnownRanks(
        "cl100k",
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    # o200k_base; o200k_harmony has the same ranks, its special tokens must be given
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": KnownRanks(
        "o200k", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
    # Llama 3's tokenizer.model
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": KnownRanks(
        "llama3", _llama3_special_tokens()
    ),
    # qwen.tiktoken
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": KnownRanks(
        "qwen2",
        {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645},
        normalizers=(Normalizer("nfc"),),
    ),
    # tekken_240911: the first 130,072 ranks; ids 0..999 are kept for control tokens
    "64a081edb3cbb8639a4eea9a7135ab9a0467c50676c672b217ba655f4d50e127": KnownRanks(
        "tekken", {}, id_offset=1000
    ),
}


def find_known_ranks(sha256: str) -> KnownRanks | None:
    """Return the fields of the published file with this hex digest; None if it is unknown."""
    return _KNOWN.get(sha256)
