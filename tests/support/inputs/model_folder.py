"""Writes a model's folder as it lies on disk, with GPT-2's tokenizer and a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
CHAT = [{"role": "user", "content": "Hello, world"}]
CHAT_TEXT = "<user>Hello, world\n<assistant>"
CONFIG = {"_name_or_path": "openai/gpt-2", "max_position_embeddings": 1024}
GENERATION = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 200, "eos_token_id": [50256]}
TOKENS = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"}}


def write_model_folder(folder: Path, **files: Any) -> Path:
    """Write the files of a model.

    Args:
        folder: the folder, which is made.
        files: other contents of files, by their names without the suffix .json; None: no such file.
    """
    folder.mkdir(parents=True)
    (document,) = write_vocabulary(load("gpt2"), "tokenizer.json").values()
    (folder / "tokenizer.json").write_bytes(document)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    contents = {
        "tokenizer_config": {"model_max_length": 2048, "tokenizer_class": "GPT2Tokenizer"},
        "special_tokens_map": TOKENS,
        "generation_config": GENERATION,
        "config": CONFIG,
    } | files
    for name, content in contents.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
