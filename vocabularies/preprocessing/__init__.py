"""What happens to a text before the model: normalization, then pretokenization.

`normalizers` rewrites the text and keeps where each character came from; `pretokenizers` splits it
by a named rule, whose published pattern (`published_patterns`) is run over the Unicode classes that
the reference libraries gave (`unicode_classes`, measured by `probe_unicode`). `motif_pretokenizer`
splits at a vocabulary's motifs, `bert_basic_tokenizer` is what DNABERT's class does to its k-mers.

The reference tokenizer and the checks of a vocabulary call it; engines compute the same in their
own ways and are tested against it. Knows no ids, no files and no special tokens.
"""
