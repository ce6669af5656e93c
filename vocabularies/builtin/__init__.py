"""The vocabularies that come with the package, so that a new machine works offline.

`catalog` names them and loads one by its name; the registry of the service, tests and benchmarks
call it. BPE vocabularies are stored in the canonical form (`*.vocabulary.xz`), made by `build` from
the upstream files that `upstream_files` names; k-mers and characters are made from their rule
(`rules`). SOURCES.md has origins, licences and digests. A name always means the same digest.
"""

from vocabularies.builtin.catalog import BUILTINS, BuiltinInfo, describe, load

__all__ = ["BUILTINS", "BuiltinInfo", "describe", "load"]
