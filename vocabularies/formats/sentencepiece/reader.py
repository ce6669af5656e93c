"""Reads a SentencePiece model, with or without the configuration beside it, to a Vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from vocabularies.errors import VocabularyError
from vocabularies.formats.huggingface.reader import read_tokenizer_json
from vocabularies.formats.sentencepiece.class_config import CONFIG_FILES, read_class_config
from vocabularies.formats.sentencepiece.model_file import ModelFile, PieceType, parse_model
from vocabularies.formats.sentencepiece.own_rules import (
    find_unknown_id,
    refuse_long_pieces,
    write_by_own_rules,
)
from vocabularies.formats.sentencepiece.published_classes import write_for_class
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary


def read_sentencepiece(
    files: Mapping[str, bytes], *, decodes_inversely: bool = False
) -> Vocabulary:
    """Read the vocabulary of a SentencePiece model.

    Args:
        files: the model, and any of CONFIG_FILES: file name -> content.
        decodes_inversely: as for `read_tokenizer_json`, which refuses it for such a vocabulary.

    Raises:
        VocabularyError: a file is invalid, or a rule of the model is not one of ours; the error
            lists the place of every fault.
    """
    models = [name for name in files if name not in CONFIG_FILES]
    if len(models) != 1:
        message = f"{', '.join(sorted(files))} are not the files of the format sentencepiece"
        raise VocabularyError.at("files", message)
    model = parse_model(files[models[0]])
    refuse_long_pieces(model)
    config = read_class_config(files)
    if config.name is None:
        return _read_by_own_rules(model, decodes_inversely)
    content = json.dumps(write_for_class(model, config), ensure_ascii=False).encode()
    return read_tokenizer_json(content, decodes_inversely=decodes_inversely)


def _read_by_own_rules(model: ModelFile, decodes_inversely: bool) -> Vocabulary:
    """Read a model whose special tokens a text never contains, as in SentencePiece."""
    content = json.dumps(write_by_own_rules(model), ensure_ascii=False).encode()
    vocabulary = read_tokenizer_json(content, decodes_inversely=decodes_inversely)
    special = tuple(
        SpecialToken(piece.text, i, special=piece.type != PieceType.USER_DEFINED, matched=False)
        for i, piece in enumerate(model.pieces)
        if piece.type in (PieceType.CONTROL, PieceType.UNKNOWN, PieceType.USER_DEFINED)
    )
    ids = {"bos": model.bos_id, "eos": model.eos_id, "pad": model.pad_id}
    is_special = {token.id for token in special if token.special}
    roles = {role: i for role, i in ids.items() if i in is_special}
    return replace(
        vocabulary,
        tokens=tuple(piece.text.encode() for piece in model.pieces),
        special_tokens=special,
        roles=roles | {"unk": find_unknown_id(model)},
    )
