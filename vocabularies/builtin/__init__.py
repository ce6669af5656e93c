"""The vocabularies that are part of the package and need no download.

`catalog` lists them and loads one by name. BPE vocabularies are stored in the canonical form
(`*.vocabulary.xz`). `build` creates these files from the upstream files that are listed in
`upstream_files`. `rules` creates k-mer and character vocabularies. SOURCES.md lists origins,
licences and digests.

The registry of the service, tests and benchmarks call these modules. The vocabulary of a name
always has the same digest.
"""

from vocabularies.builtin.catalog import BUILTINS as BUILTINS
from vocabularies.builtin.catalog import BuiltinInfo as BuiltinInfo
from vocabularies.builtin.catalog import describe as describe
from vocabularies.builtin.catalog import load as load
