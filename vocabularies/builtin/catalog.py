"""Lists the built-in vocabularies with their origins, and loads them."""

from __future__ import annotations

import difflib
import functools
import lzma
from dataclasses import dataclass
from importlib import resources

from vocabularies.builtin.rules import RULES
from vocabularies.builtin.upstream_files import SUFFIX, UPSTREAM
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class BuiltinInfo:
    """The origin, licence and family of a built-in vocabulary.

    Attributes:
        source: the published project or file.
        licence: the licence that the source states; a list made from a rule has no licence.
        family: the kind of tokenizer, such as "byte-level BPE".
    """

    name: str
    source: str
    licence: str
    family: str


_MIT, _APACHE = "MIT", "Apache-2.0"
_NT = "InstaDeep Nucleotide Transformer"
_FACTS = "generated from the published rule (facts)"
_NT_LICENCE = f"{_FACTS}; that project's code and models: CC BY-NC-SA 4.0"
_DNABERT = "DNABERT, jerryji1993/DNABERT"
_INFOS = (
    BuiltinInfo("gpt2", "OpenAI tiktoken, r50k_base.tiktoken", _MIT, "byte-level BPE"),
    BuiltinInfo("cl100k_base", "OpenAI tiktoken, cl100k_base.tiktoken", _MIT, "byte-level BPE"),
    BuiltinInfo("o200k_base", "OpenAI tiktoken, o200k_base.tiktoken", _MIT, "byte-level BPE"),
    BuiltinInfo("dnabert2", "DNABERT-2, MAGICS-LAB/DNABERT_2", _APACHE, "DNA BPE"),
    BuiltinInfo("gena_lm_t2t_32k", "GENA-LM, AIRI-Institute/GENA_LM", _MIT, "DNA BPE"),
    BuiltinInfo("nt_v1", f"{_NT} v1", _NT_LICENCE, "DNA k-mers"),
    BuiltinInfo("nt_v2", f"{_NT} v2", _NT_LICENCE, "DNA k-mers"),
    BuiltinInfo("ntv3", f"{_NT} v3", _NT_LICENCE, "DNA characters"),
    BuiltinInfo("dnabert1_3mer", _DNABERT, _APACHE, "DNA k-mers"),
    BuiltinInfo("dnabert1_4mer", _DNABERT, _APACHE, "DNA k-mers"),
    BuiltinInfo("dnabert1_5mer", _DNABERT, _APACHE, "DNA k-mers"),
    BuiltinInfo("dnabert1_6mer", _DNABERT, _APACHE, "DNA k-mers"),
    BuiltinInfo("gpn", "GPN, songlab/tokenizer-dna-mlm", _MIT, "DNA characters"),
    BuiltinInfo("hyenadna", "HyenaDNA, HazyResearch/hyena-dna", _APACHE, "DNA characters"),
    BuiltinInfo("caduceus", "Caduceus, kuleshov-group/caduceus", _APACHE, "DNA characters"),
    BuiltinInfo("evo_bytes", "Evo, Zymrael/vortex", _FACTS, "bytes"),
    BuiltinInfo("mtdna6", "vthawfeek/mtdna-foundation-model", _APACHE, "DNA k-mers"),
)
_BY_NAME = {info.name: info for info in _INFOS}
BUILTINS: tuple[str, ...] = tuple(_BY_NAME)
assert _BY_NAME.keys() == RULES.keys() | UPSTREAM.keys()


def describe(name: str) -> BuiltinInfo:
    """Return origin, licence and family of a built-in vocabulary.

    Raises:
        KeyError: there is no built-in vocabulary of this name; the message lists similar names.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, BUILTINS, n=3) or BUILTINS
    raise KeyError(
        f"no built-in vocabulary is called {name!r}; similar names are {', '.join(near)}"
    )


@functools.cache
def load(name: str) -> Vocabulary:
    """Load a built-in vocabulary; later calls in the same process return the same object.

    Raises:
        KeyError: as `describe`.
        VocabularyError: its file is damaged or cannot be read.
    """
    describe(name)
    if name in RULES:
        return RULES[name]()
    try:
        stored = resources.files(__package__).joinpath(f"{name}{SUFFIX}").read_bytes()
        return read_canonical(lzma.decompress(stored))
    except (lzma.LZMAError, OSError) as error:
        raise VocabularyError.at(f"{name}{SUFFIX}", f"cannot be read: {error}") from error
