from typing import Any

def make(
    flags: Any,
    kinds: Any,
    codes: Any,
    characters: Any,
    complement: Any,
    numbers: tuple[int, int, int, int, int, int, bool, bool, bool, bool],
    /,
) -> Any: ...
def measure(
    rules: Any,
    data: Any,
    offsets: Any,
    options: tuple[bool, bool, bool, bool],
    threads: int,
    task_bytes: int,
    /,
) -> Any: ...
def counts(measured: Any, counts: Any, reasons: Any, /) -> None: ...
def write(
    measured: Any,
    offsets: Any,
    prefix: Any,
    suffix: Any,
    piece_size: int,
    ids: Any,
    spans: Any,
    /,
) -> None: ...
