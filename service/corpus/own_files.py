"""Recognizes files that jobs have written, so that other jobs do not use them as inputs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from service.corpus.parts.checkpoint import MANIFEST, read_job_file
from service.corpus.writing import mds

BESIDE_SHARDS = r"manifest\.json|rejects_\d{5}\.jsonl|part_\d{5}\.checkpoint"


class OwnFiles:
    """Recognizes files of the next job, and of all jobs whose manifest is in the file's folder.

    Args:
        out: the folder of the next job.
        prefix: the common prefix of the names of its shards.
        format: the format of its shards.
    """

    def __init__(self, out: Path, prefix: str, format: str) -> None:
        own = _pattern({prefix}, has_index=format == "mds")
        self._patterns: dict[str, list[re.Pattern[str]]] = {}
        self._out = os.path.realpath(out)
        self._patterns[self._out] = [own, *_find_patterns(self._out)]

    def has(self, path: str) -> bool:
        """Return whether a job has written a file, or will write it."""
        folder, name = os.path.split(os.path.realpath(path))
        if folder not in self._patterns:
            self._patterns[folder] = _find_patterns(folder)
        return any(pattern.fullmatch(name) for pattern in self._patterns[folder])


def _find_patterns(folder: str) -> list[re.Pattern[str]]:
    """Return a pattern of the names of files of the job in a folder; [] without a job."""
    prefixes: set[str] = set()
    has_index = has_job = False
    for path in (Path(folder, MANIFEST), *Path(folder).glob("part_*.checkpoint")):
        try:
            content = read_job_file(path)
        except OSError:
            continue
        if content is not None:
            has_job = True
            has_index |= content.get("format") == "mds"
            prefixes |= {shard["name"].rsplit("_", 2)[0] for shard in content["shards"]}
    return [_pattern(prefixes, has_index)] if has_job else []


def _pattern(prefixes: set[str], has_index: bool) -> re.Pattern[str]:
    shards = [rf"{re.escape(prefix)}_\d{{5}}_\d{{5,}}\..*" for prefix in sorted(prefixes)]
    index = [re.escape(mds.INDEX)] if has_index else []
    return re.compile("|".join([BESIDE_SHARDS, *index, *shards]))
