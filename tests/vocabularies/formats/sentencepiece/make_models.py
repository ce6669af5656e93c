"""Trains the small models of these tests, and writes the ids that the published packages give.

    python make_models.py        # needs sentencepiece 0.2 and transformers 4.57

The tests need neither package: they read the models and `expected.json`.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
from transformers import AutoTokenizer

HERE = Path(__file__).parent.resolve()
MODELS = HERE / "models"
LINES = [
    "The quick brown fox jumps over the lazy dog, 42 times a day.",
    "She sells sea shells by the sea shore; the shells she sells are sea shells.",
    "Größe und Straße über Äpfel, naïve café résumé",
    "Привет мир, это проверка",
    "你好世界 这是一个测试",
    "한국어 텍스트",
    "emoji 😀 and 🎉",
    "x = y + 1;\tfoo(bar) < 3 >= 2",
    "<sep> hello <sep>x hello there",
    "1234 5678 2024 $12.50",
]
# A few rules in the format of SentencePiece: code points of a key, a tab, those of its replacement.
RULES = "".join(
    f"{key:X}\t{' '.join(f'{ord(c):X}' for c in value)}\n"
    for key, value in [(0x9, " "), (0xA, " "), (0xA0, " "), (0x3000, " "), (0xBD, "1/2")]
    + [(ord(c), c.lower()) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZÄ"]
)
PLAIN = {"normalization_rule_name": "identity"}
LLAMA = PLAIN | {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False}
KINDS: dict[str, dict[str, Any]] = {
    "unigram": PLAIN,
    "unigram_rules": {},
    "unigram_bytes": PLAIN | {"byte_fallback": True, "split_digits": True},
    "unigram_all_spaces": PLAIN | {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "unigram_symbols": PLAIN
    | {"user_defined_symbols": ["<sep>", "hello"], "control_symbols": ["<ctl>"]},
    "unigram_t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "unigram_albert": {"pad_id": 0, "unk_id": 1, "eos_id": -1, "bos_id": -1}
    | {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
    "bpe": PLAIN | {"model_type": "bpe"},
    "bpe_rules": {"model_type": "bpe", "split_digits": True},
    "bpe_llama": LLAMA,
    "bpe_symbols": LLAMA
    | {"user_defined_symbols": ["<sep>", "hello", "▁▁", "\n\n"], "control_symbols": ["<ctl>"]},
    "bpe_gemma": LLAMA
    | {"user_defined_symbols": ["<mask>", "\n\n", "▁▁", "▁▁▁"], "add_dummy_prefix": False}
    | {"control_symbols": ["<start_of_turn>"], "allow_whitespace_only_pieces": True}
    | {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "split_digits": True},
    "char": PLAIN | {"model_type": "char", "user_defined_symbols": ["<sep>"]},
    "char_bytes": PLAIN | {"model_type": "char", "byte_fallback": True},
    "word": PLAIN | {"model_type": "word"},
    "suffix": PLAIN | {"model_type": "bpe", "treat_whitespace_as_suffix": True},
}
REFUSED = ("word", "suffix")
FULL = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
LISTED = {
    "0": FULL | {"content": "<unk>", "special": True},
    "1": FULL | {"content": "<s>", "special": True},
    "2": FULL | {"content": "</s>", "special": True},
    "380": FULL | {"content": "<pad>", "special": True},
    "381": FULL | {"content": "<img>", "normalized": True, "special": False},
}
# Name -> its model, the name of the model's file, and the files beside it.
CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("bpe_llama", "tokenizer.model", {"tokenizer_config.json": {}}),
    "llama_not_legacy": (
        "bpe_llama",
        "tokenizer.model",
        {"tokenizer_config.json": {"legacy": False, "add_eos_token": True}},
    ),
    "llama_no_prefix": (
        "bpe_llama",
        "tokenizer.model",
        {"tokenizer_config.json": {"add_prefix_space": False, "add_bos_token": False}},
    ),
    "llama_listed": (
        "bpe_llama",
        "tokenizer.model",
        {"tokenizer_config.json": {"added_tokens_decoder": LISTED, "pad_token": "<pad>"}},
    ),
    "llama_older_files": (
        "bpe_llama",
        "tokenizer.model",
        {
            "tokenizer_config.json": {},
            "special_tokens_map.json": {"pad_token": "<pad>", "bos_token": "<s>"},
            "added_tokens.json": {"<pad>": 380, "<img>": 381},
        },
    ),
    "llama_symbols": ("bpe_symbols", "tokenizer.model", {"tokenizer_config.json": {}}),
    "gemma": ("bpe_gemma", "tokenizer.model", {"tokenizer_config.json": {}}),
    "t5": ("unigram_t5", "spiece.model", {"tokenizer_config.json": {"extra_ids": 3}}),
    "t5_not_legacy": (
        "unigram_t5",
        "spiece.model",
        {"tokenizer_config.json": {"legacy": False, "extra_ids": 0}},
    ),
    "xlm_roberta": ("unigram", "sentencepiece.bpe.model", {"tokenizer_config.json": {}}),
    "albert": ("unigram_albert", "spiece.model", {"tokenizer_config.json": {}}),
    "albert_cased": (
        "unigram_albert",
        "spiece.model",
        {"tokenizer_config.json": {"do_lower_case": False, "keep_accents": True}},
    ),
}
NAMES = {
    "llama": "LlamaTokenizer",
    "gemma": "GemmaTokenizer",
    "t5": "T5Tokenizer",
    "xlm": "XLMRobertaTokenizer",
    "albert": "AlbertTokenizer",
}
TEXTS = [
    *("", "a", " ", "  ", "\n", "\t", "\r\n", "▁", "▁▁", "a▁", "▁a", " ▁ a", "a ▁", "\0", "a\0b"),
    *(
        "Hello, world!",
        "  the   quick  ",
        "the quick brown fox",
        "\n\n",
        "a\n\n\nb",
        "   a",
        "a   ",
    ),
    *(
        "Größe Äpfel",
        "naïve café",
        "Привет мир",
        "你好世界",
        "こんにちは",
        "한국어",
        "😀🎉👍🏽",
        "مرحبا",
    ),
    *("<s>", "a<s>b</s>", "<unk>", "<0x41>", "a<0x41>b", "<sep>", "<sep>a", "a<sep>b", " <sep> a "),
    *(
        "<ctl>a",
        "hellohello",
        "<pad>",
        "x  <img> y",
        "a <mask> b",
        "[CLS] a [MASK]",
        "<extra_id_0>a",
    ),
    *("``a''", "12,5,", "½\u00a0A\u3000B", "aaaaaaaaaaaaaaaa", "!!!!!!!!", "e\u0301", "\U0010ffff"),
    "x = y + 1;\tfoo(bar) <start_of_turn> 2024",
]


def train(name: str, options: dict[str, Any]) -> None:
    """Train a model, and write it to its file."""
    content = io.BytesIO()
    lines = LINES * 4
    random.Random(1).shuffle(lines)
    given = {"model_type": "unigram", "hard_vocab_limit": False, "minloglevel": 2} | options
    if "normalization_rule_name" not in options:
        given["normalization_rule_tsv"] = "rules.tsv"
    size = 380 if options.get("byte_fallback") else 120
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("rules.tsv").write_text(RULES)  # A model contains the path of its rules.
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=content,
            vocab_size=size,
            character_coverage=0.99,
            **given,
        )
    (MODELS / f"{name}.model").write_bytes(content.getvalue())


def encode_as_sentencepiece(name: str) -> dict[str, Any]:
    """Return the ids of all texts, and what they are decoded to."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(MODELS / f"{name}.model"))
    ids = [model.encode(text) for text in TEXTS]
    return {"ids": ids, "decoded": [model.decode(each) for each in ids]}


def encode_as_transformers(name: str) -> dict[str, Any]:
    """Return the files of a folder, its decoder, and the ids and offsets of all texts."""
    model, file, files = CLASSES[name]
    config = files["tokenizer_config.json"] | {"tokenizer_class": NAMES[name.split("_")[0]]}
    files = files | {"tokenizer_config.json": config}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODELS / f"{model}.model", Path(folder) / file)
        for each, content in files.items():
            (Path(folder) / each).write_text(json.dumps(content))
        tokenizer = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    found = [tokenizer.encode(text) for text in TEXTS]
    return {
        "model": model,
        "file": file,
        "files": files,
        "ids": [each.ids for each in found],
        "decoder": json.loads(tokenizer.to_str())["decoder"],
        "offsets": [each.offsets for each in found],
    }


if __name__ == "__main__":
    MODELS.mkdir(exist_ok=True)
    for name, options in KINDS.items():
        train(name, options)
    expected = {
        "texts": TEXTS,
        "refused": REFUSED,
        "own": {name: encode_as_sentencepiece(name) for name in KINDS if name not in REFUSED},
        "classes": {name: encode_as_transformers(name) for name in CLASSES},
    }
    written = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    (HERE / "expected.json").write_text(written.replace('},"', '},\n"') + "\n")
