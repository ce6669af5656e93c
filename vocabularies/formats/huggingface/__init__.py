"""Reads and writes Hugging Face's tokenizer.json.

`reader` makes a Bpe model if that gives exactly the same ids, else an Upstream model with the
reason; `writer` writes tokenizer.json; `pipeline` reads normalizer, pre_tokenizer, post_processor
and decoder; `motif_pattern` converts motifs to the regex of a Split step and back; `limits` bounds
the memory and time that the library needs for a file.

`formats.vocabulary_files` calls these modules. The ids always equal those of the tokenizers
library.
"""
