"""The steps before the model: normalization, then pretokenization.

`normalizers` rewrites the text and keeps where each character came from; `pretokenizers` splits it
by a named rule: a published pattern (`published_patterns`, compiled by `class_patterns`) over the
Unicode classes of the published libraries (`unicode_classes`, measured by `probe_unicode`).
`running_time` finds the parts that may take unbounded time, such as unpublished patterns.
`motif_pretokenizer` splits at a vocabulary's motifs, `bert_basic_tokenizer` splits the k-mers of
DNABERT-1 as its published class does.

The reference and the checks of a vocabulary call it; engines compute the same in their own ways
and are tested against it. Knows no ids, no files and no special tokens.
"""
