"""Renders a Helm chart that uses a small part of the template language, without Helm.

The part: paths such as `.Values.image.tag`, `.` and `$name`, text in quotes; `include`, `toYaml`,
`quote`, `indent`, `nindent`, `eq`, `not`, `.Files.Get`; pipes; `if`, `else if`, `else`, `with`,
`range $key, $value :=`, `define`, `end`; `{{-` and `-}}`. Anything else is an error.
tests/deploy/test_kubernetes.py compares the result with Helm's where `helm` is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

DELIMITER = re.compile(r"\s*\{\{-\s+|\{\{\s+|\s+-\}\}\s*|\s+\}\}")
"""With the space that `{{-` and `-}}` trim."""
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\||:=|,|[^\s"|,]+')
BLOCKS = ("if", "with", "range", "define")
Body: TypeAlias = "list[str | list[str] | Block]"


@dataclass(frozen=True)
class Block:
    """An action with what it encloses.

    Attributes:
        words: the words of the action.
        body: texts, lists of words to evaluate, and blocks.
        otherwise: what follows `else`.
    """

    words: list[str]
    body: Body
    otherwise: Body


@dataclass(frozen=True)
class Scope:
    """What a template can name: the root, the dot, and variables."""

    root: dict[str, Any]
    dot: Any
    variables: dict[str, Any]


class Chart:
    """A chart whose templates can be rendered.

    Args:
        folder: the folder of Chart.yaml.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.defines: dict[str, Block] = {}
        self.values = yaml.safe_load((folder / "values.yaml").read_text())
        self.chart = yaml.safe_load((folder / "Chart.yaml").read_text())
        paths = sorted((folder / "templates").iterdir())
        self.templates = [self._parse(iter(DELIMITER.split(path.read_text())))[0] for path in paths]

    def render(self, release: str, *layers: dict[str, Any]) -> list[dict[str, Any]]:
        """Render all templates as resources, with values on top of the chart's own."""
        values: dict[str, Any] = json.loads(json.dumps(self.values))
        for layer in layers:
            _merge(values, layer)
        root = {
            "Values": values,
            "Release": {"Name": release, "Namespace": "default", "Service": "Helm"},
            "Chart": {key[0].upper() + key[1:]: value for key, value in self.chart.items()},
        }
        scope = Scope(root, root, {})
        texts = [self._render(body, scope) for body in self.templates]
        return [each for text in texts for each in yaml.safe_load_all(text) if each]

    def _parse(self, parts: Iterator[str]) -> tuple[Body, list[str]]:
        """Parse texts and actions in turns; return them, and the `else` or `end` that ends them."""
        body: Body = []
        for text in parts:
            body.append(text)
            words = WORD.findall(next(parts, "end"))
            if words[0] in ("else", "end"):
                return body, words
            body.append(self._parse_block(words, parts) if words[0] in BLOCKS else words)
        raise AssertionError("a block does not end")

    def _parse_block(self, words: list[str], parts: Iterator[str]) -> Block | str:
        body, last = self._parse(parts)
        otherwise: Body = []
        if last[1:]:  # The `end` of `else if` is the block's as well.
            otherwise = [self._parse_block(last[1:], parts)]
        elif last == ["else"]:
            otherwise, _ = self._parse(parts)
        block = Block(words, body, otherwise)
        if words[0] == "define":
            self.defines[json.loads(words[1])] = block
            return ""
        return block

    def _render(self, body: Body, scope: Scope) -> str:
        return "".join(
            each if isinstance(each, str) else self._render_action(each, scope) for each in body
        )

    def _render_action(self, action: Block | list[str], scope: Scope) -> str:
        if isinstance(action, list):
            return _text(self._evaluate(action, scope))
        kind, *words = action.words
        if kind == "range":
            key, comma, value, becomes, *words = words
            assert (comma, becomes) == (",", ":=")
            items = sorted(self._evaluate(words, scope).items())
            each = [Scope(scope.root, v, {**scope.variables, key: k, value: v}) for k, v in items]
            return "".join(self._render(action.body, inner) for inner in each)
        condition = self._evaluate(words, scope)
        if not condition:
            return self._render(action.otherwise, scope)
        dot = condition if kind == "with" else scope.dot
        return self._render(action.body, Scope(scope.root, dot, scope.variables))

    def _evaluate(self, words: list[str], scope: Scope) -> Any:
        """Evaluate a pipe: each call's result is the last argument of the next."""
        piped: list[Any] = []
        while words:
            end = words.index("|") if "|" in words else len(words)
            call, words = words[:end], words[end + 1 :]
            arguments = [_operand(word, scope) for word in call[1:]] + piped
            piped = [self._call(call[0], arguments, scope)]
        return piped[0]

    def _call(self, name: str, arguments: list[Any], scope: Scope) -> Any:
        match name, arguments:
            case "include", [define, dot]:
                return self._render(self.defines[define].body, Scope(scope.root, dot, {}))
            case ".Files.Get", [path]:
                return (self.folder / path).read_text()
            case "toYaml", [value]:
                return yaml.safe_dump(value, width=10**6).removesuffix("\n").removesuffix("\n...")
            case "quote", [value]:
                return json.dumps(_text(value))
            case "indent" | "nindent", [width, text]:
                lines = " " * width + text.replace("\n", "\n" + " " * width)
                return "\n" + lines if name == "nindent" else lines
            case "eq", [left, right]:
                return left == right
            case "not", [value]:
                return not value
            case _, []:
                return _operand(name, scope)
        raise AssertionError(f"{name} with {len(arguments)} arguments is not in the part")


def _operand(word: str, scope: Scope) -> Any:
    if word[0] == '"':
        return json.loads(word)
    if word.isdigit():
        return int(word)
    if word[0] == "$":
        return scope.variables[word]
    assert word[0] == ".", f"{word} is not in the part"
    value = scope.dot
    for key in filter(None, word.split(".")):
        value = value[key]
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merge(values: dict[str, Any], layer: dict[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = value
