"""Guesses the roles of special tokens from the contents that published models use.

Only readers of formats that do not store the roles use it. It does not depend on a format.
"""

from __future__ import annotations

from collections.abc import Iterable

ROLE_CONTENTS = {
    "unk": ("[UNK]", "<unk>", "<|unk|>", "<UNK>"),
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<PAD>", "<｜▁pad▁｜>", "<|finetune_right_pad_id|>"),
    "bos": (
        "[BOS]",
        "<bos>",
        "<s>",
        "<|begin_of_text|>",
        "<|startoftext|>",
        "<｜begin▁of▁sentence｜>",
    ),
    "eos": (
        "[EOS]",
        "<eos>",
        "</s>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<｜end▁of▁sentence｜>",
    ),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}


def guess_roles(contents: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Guess the id of each role by ROLE_CONTENTS, which lists contents by priority."""
    ids = dict(contents)
    return {
        role: next(ids[content] for content in usual if content in ids)
        for role, usual in ROLE_CONTENTS.items()
        if not ids.keys().isdisjoint(usual)
    }
