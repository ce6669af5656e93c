"""Reads SentencePiece's models, such as tokenizer.model, to a Vocabulary.

`model_file` parses the protobuf, `charsmap` its normalization rules and `class_config` the JSON
files beside it; `merges` finds the merges that its scores mean. `own_rules` writes the
tokenizer.json of a model by the rules of SentencePiece itself; `published_classes` writes that of a
tokenizer class of transformers, which the tokenizer_config.json beside a model names. `reader`
chooses between the two and hands the document to `huggingface.reader`, so that one reader knows
what such documents mean.

`vocabulary_files` calls `reader`. Nothing here depends on the package sentencepiece or protobuf.
"""
