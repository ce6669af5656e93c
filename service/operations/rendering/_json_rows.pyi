from typing import Any

def rows(ids: Any, offsets: list[int], begin: int, end: int, /) -> bytes: ...
def rows_and_sizes(
    before: bytes,
    between: bytes,
    after: bytes,
    ids: Any,
    offsets: list[int],
    begin: int,
    end: int,
    /,
) -> bytes: ...
def row_and_size(
    before: bytes, between: bytes, after: bytes, ids: Any, offsets: list[int], row: int, /
) -> bytes: ...
