from typing import Any

def make(
    tokens: Any, pairs: Any, sizes: Any, letters: Any, steps: Any, special: Any, whole: Any, /
) -> Any: ...
def encode(
    vocabulary: Any,
    data: Any,
    offsets: Any,
    mode: int,
    with_spans: bool,
    threads: int,
    task_bytes: int,
    /,
) -> Any: ...
def counts(encoded: Any, counts: Any, reasons: Any, /) -> None: ...
def write(
    encoded: Any, offsets: Any, prefix: Any, suffix: Any, ids: Any, spans: Any, /
) -> None: ...
