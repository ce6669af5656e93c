"""The vocabularies that come with the package, so that a new machine works offline.

`catalog` names them and loads one by its name. BPE vocabularies are stored in the canonical form
(`*.vocabulary.xz`), which `build` makes of the upstream files that `upstream_files` names; k-mers
and characters are made from their rule (`rules`). SOURCES.md has origins, licences and digests.

The registry of the service, tests and benchmarks call it. A name always means the same digest.
"""

from vocabularies.builtin.catalog import BUILTINS as BUILTINS
from vocabularies.builtin.catalog import BuiltinInfo as BuiltinInfo
from vocabularies.builtin.catalog import describe as describe
from vocabularies.builtin.catalog import load as load
