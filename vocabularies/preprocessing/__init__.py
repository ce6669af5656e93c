"""The steps before the model: normalization, then pretokenization.

`normalizers` rewrites the text and records the source of each character. `pretokenizers` splits the
text by a named rule: a published pattern (`published_patterns`, compiled by `class_patterns`) over
the Unicode classes of the published libraries (`unicode_classes`, measured by `probe_unicode`).
`running_time` finds the steps that may take unbounded time, such as unpublished patterns.
`motif_pretokenizer` splits at a vocabulary's motifs, and `bert_basic_tokenizer` splits the k-mers
of DNABERT-1 as its published class does.

The reference and the checks of a vocabulary call these modules. The engines have their own
implementations, which are tested against these. The package does not depend on ids, files or
special tokens.
"""
