"""Hugging Face's tokenizer.json, read and written.

`reader` gives one of our models where that says exactly the same, else an Upstream model with the
reason; `writer` is its inverse; `pipeline` reads normalizer, pre_tokenizer and post_processor;
`motif_pattern` writes motifs as the regex of a Split step and reads it; `limits` bounds what a file
may ask of the library.

`formats.vocabulary_files` calls it. Ids are those of the tokenizers library, never close ones.
"""
