"""What one row of a batch asks for beside its ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFAULT_OPTIONS", "EncodeOptions"]

SPECIAL, SIDES = ("match", "plain", "refuse"), ("right", "left")


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """What one row asks for beside its ids.

    Attributes:
        add_special_tokens: put the vocabulary's begin and end tokens around the ids.
        special: what the text of a special token inside the input means: its id ("match"), ordinary
            text ("plain"), or a refusal of the row ("refuse").
        max_length: most ids the row may have, begin and end tokens included; None: all.
        truncation_side: the side that is cut.
        reverse_complement: encode the other strand.
        circular: the sequence wraps; None: as the vocabulary says.
        spans: report the bytes of the text that each id stands for.

    Raises:
        ValueError: max_length is below 0, or a word is none of these.
    """

    add_special_tokens: bool = True
    special: Literal["match", "plain", "refuse"] = "match"
    max_length: int | None = None
    truncation_side: Literal["right", "left"] = "right"
    reverse_complement: bool = False
    circular: bool | None = None
    spans: bool = False

    def __post_init__(self) -> None:
        if self.special not in SPECIAL:
            raise ValueError(f"special is {self.special!r}; it is one of {', '.join(SPECIAL)}")
        if self.truncation_side not in SIDES:
            raise ValueError(f"truncation_side is {self.truncation_side!r}, neither right nor left")
        if self.max_length is not None and self.max_length < 0:
            raise ValueError(f"max_length is {self.max_length}; the least is 0")


DEFAULT_OPTIONS = EncodeOptions()
