"""The rules of published k-mer and character tokenizers, identified by the first tokens of a list.

Sources: jerryji1993/DNABERT tokenization_dna.py; instadeepai/nucleotide-transformer tokenizers.py;
transformers' EsmTokenizer, for Nucleotide Transformer and ESM's proteins; HazyResearch/hyena-dna
hg38_char_tokenizer.py; vthawfeek/mtdna-foundation-model mtdna_fm/tokenizer.
"""

from __future__ import annotations

from dataclasses import replace

from vocabularies.model.types import Bpe, Characters, Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

DNABERT1 = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MTDNA = ("[PAD]", "[CLS]", "[MASK]", "[UNK]", "[SEP]", "[HET]")
HYENADNA = ("[CLS]", "[SEP]", "[BOS]", "[MASK]", "[PAD]", "[RESERVED]", "[UNK]")
ESM = ("<cls>", "<pad>", "<eos>", "<unk>", "<null_1>", "<mask>")
NT_V1 = ("<unk>", "<pad>", "<mask>", "<cls>")
NT_V2 = (*NT_V1, "<eos>", "<bos>")
NT_V3 = NT_V2
DNABERT1_PIECE_TOKENS = 510


def apply_published_rule(vocabulary: Vocabulary) -> Vocabulary:
    """Return the vocabulary with the rule of the published list that begins with the same tokens.

    The order of the four letters may differ from the published one; it affects ids, not the rule.
    """
    head = tuple(token.content for token in vocabulary.special_tokens)
    match vocabulary.model:
        case Kmers(frame="sequence") as model if head == DNABERT1 and len(model.letters) == 4:
            return _dnabert1(vocabulary, model)
        case Kmers(frame="sequence", letters="ACGT") if head == MTDNA:
            return _mtdna(vocabulary, vocabulary.model)
        case Characters(letter_ids=letters) if head == MTDNA and _are_acgt(letters):
            _, first_id = letters[0]
            unknown_id = vocabulary.roles["unk"]
            return _mtdna(vocabulary, Kmers(1, first_id, unknown_id, "ACGT"))
        case Kmers(frame="run") as model if head in (NT_V1, NT_V2) and len(model.letters) == 4:
            return _nucleotide_transformer(vocabulary)
        case Characters() if head == HYENADNA:
            return _hyenadna(vocabulary)
        case Characters() if head == ESM:
            return _esm(vocabulary)
    return vocabulary


def _are_acgt(letters: tuple[tuple[str, int], ...]) -> bool:
    """Return whether these are the 1-mers A, C, G and T with ids in that order."""
    first_id = letters[0][1]
    return letters == tuple((letter, first_id + i) for i, letter in enumerate("ACGT"))


def _dnabert1(vocabulary: Vocabulary, model: Kmers) -> Vocabulary:
    """Put [CLS] and [SEP] around every 510 k-mers; blanks separate k-mers."""
    model = replace(model, whitespace="words", max_piece_tokens=DNABERT1_PIECE_TOKENS)
    prefix, suffix = (vocabulary.roles["cls"],), (vocabulary.roles["sep"],)
    return replace(vocabulary, model=model, prefix=prefix, suffix=suffix)


def _mtdna(vocabulary: Vocabulary, model: Kmers) -> Vocabulary:
    """Convert sequences to upper case and match no special tokens, as the published code does."""
    special = tuple(replace(token, matched=False) for token in vocabulary.special_tokens)
    return replace(vocabulary, model=replace(model, case="upper"), special_tokens=special)


def _nucleotide_transformer(vocabulary: Vocabulary) -> Vocabulary:
    """Put <cls> first and nothing last; <eos> and <bos> are in the list, but are not used."""
    special = tuple(
        replace(token, special=token.content in NT_V1) for token in vocabulary.special_tokens
    )
    roles = {role: i for role, i in vocabulary.roles.items() if role not in ("eos", "bos")}
    prefix = (vocabulary.roles["cls"],)
    return replace(vocabulary, special_tokens=special, roles=roles, prefix=prefix)


def _hyenadna(vocabulary: Vocabulary) -> Vocabulary:
    """Put [SEP] last; the published class treats [RESERVED] as an ordinary token."""
    special = tuple(
        replace(token, special=False, matched=False) if token.content == "[RESERVED]" else token
        for token in vocabulary.special_tokens
    )
    suffix = (vocabulary.roles["sep"],)
    return replace(vocabulary, special_tokens=special, suffix=suffix, padding_side="left")


def _esm(vocabulary: Vocabulary) -> Vocabulary:
    """Put <cls> first and <eos> last; drop white space, and encode each unknown run as one <unk>.

    The published class splits at Python's white space. It includes four control characters that the
    pretokenizer does not treat as white space, so a normalizer replaces them by blanks.
    """
    roles = vocabulary.roles
    return replace(
        vocabulary,
        model=Bpe((), byte_level=False, unknown_id=roles["unk"], fuse_unknown=True),
        special_tokens=tuple(
            replace(token, special=token.content != "<null_1>")
            for token in vocabulary.special_tokens
        ),
        normalizers=(Normalizer("replace_regex", "[\x1c\x1d\x1e\x1f]", " "),),
        pretokenizer="whitespace_split",
        prefix=(roles["cls"],),
        suffix=(roles["eos"],),
    )
