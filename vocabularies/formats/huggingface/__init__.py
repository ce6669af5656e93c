"""Reads and writes Hugging Face's tokenizer.json.

`reader` makes a Bpe model where that gives exactly the same ids, else an Upstream model with the
reason; `writer` is its inverse; `pipeline` reads normalizer, pre_tokenizer and post_processor;
`motif_pattern` writes motifs as the regex of a Split step and reads it; `limits` bounds the memory
and time that a file costs in the library.

`formats.vocabulary_files` calls it. The ids are always those of the tokenizers library.
"""
