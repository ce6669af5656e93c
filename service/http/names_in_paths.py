"""Matches names of vocabularies, which may contain slashes, in the paths of routes.

No part of a name after a slash is a word of the API's paths, so that each path has only one
meaning: /v2/models/a/b/ready asks whether the model a/b is ready.
"""

from __future__ import annotations

from typing import ClassVar

from starlette.convertors import PathConvertor, register_url_convertor

from service.registry.names import PATH_WORDS


class NameConvertor(PathConvertor):
    """Matches the name of a vocabulary in a path, valid or not."""

    regex: ClassVar[str] = rf"[^/]*(?:/(?!(?:{'|'.join(sorted(PATH_WORDS))})(?:/|$))[^/]*)*"


register_url_convertor("vocabulary", NameConvertor())
NAME_PATH = "{name:vocabulary}"
MODEL_PATH = "{model:vocabulary}"
ALIAS_PATH = "{alias:vocabulary}"
