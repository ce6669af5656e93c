"""Defines a result of `warptok doctor`: the state of a check, its detail and advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of the machine or of the settings.

    Attributes:
        what: the subject of the check.
        state: "error" if the service does not start, "warning" if it starts but is slower or lacks
            something, else "ok".
        detail: what was found.
        advice: what to do; "" if nothing.
        facts: the facts of `detail` as values for programs, if there are any.
    """

    what: str
    state: State
    detail: str
    advice: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the finding as one line."""
        advice = f" -> {self.advice}" if self.advice else ""
        return f"{self.state:<8} {self.what}: {self.detail}{advice}"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return asdict(self)
