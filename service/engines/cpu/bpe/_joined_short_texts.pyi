from typing import Any

def join(
    texts: list[str], separator: bytes, max_text: int, max_group: int, sizes: Any, /
) -> list[str]: ...
def split(
    ids: Any, offsets: Any, sizes: Any, separator_id: int, out: Any, out_offsets: Any, /
) -> None: ...
