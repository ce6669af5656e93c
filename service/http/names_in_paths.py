"""Matches names of vocabularies, which may have slashes, in the paths of routes.

No word of the name behind a slash is a word of the API's paths, so that each path has one meaning:
/v2/models/a/b/ready asks whether the model a/b is ready.
"""

from __future__ import annotations

from typing import ClassVar

from starlette.convertors import PathConvertor, register_url_convertor

from service.registry.names import PATH_WORDS


class NameConvertor(PathConvertor):
    """Matches a name of a vocabulary in a path, also one that no vocabulary can have."""

    regex: ClassVar[str] = rf"[^/]*(?:/(?!(?:{'|'.join(sorted(PATH_WORDS))})(?:/|$))[^/]*)*"


register_url_convertor("vocabulary", NameConvertor())
NAME_PATH = "{name:vocabulary}"
MODEL_PATH = "{model:vocabulary}"
ALIAS_PATH = "{alias:vocabulary}"
