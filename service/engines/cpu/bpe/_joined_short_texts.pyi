from typing import Any

def join(
    texts: list[str], separator: bytes, longest: int, most: int, groups: Any, /
) -> list[str]: ...
def split(
    ids: Any, offsets: Any, groups: Any, separator_id: int, out: Any, out_offsets: Any, /
) -> None: ...
