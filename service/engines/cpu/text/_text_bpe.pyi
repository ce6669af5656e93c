from collections.abc import Callable
from typing import Any

def make(
    rule: Any,
    automaton: Any,
    classes: Any,
    composed: Any,
    tokens: Any,
    pairs: Any,
    symbol_ids: Any,
    special: Any,
    parts: Any,
    may_cut: bool,
    seed: Any,
    /,
) -> Any: ...
def encode(
    vocabulary: Any,
    data: Any,
    offsets: Any,
    is_valid: bool,
    is_composed: bool,
    is_plain: bool,
    threads: int,
    task_bytes: int,
    id_offsets: Any,
    reasons: Any,
    should_continue: Callable[[], bool],
    /,
) -> tuple[bytearray, int] | None: ...
def encode_short(vocabulary: Any, text: Any, as_list: bool, /) -> Any: ...
