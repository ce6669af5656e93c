from typing import Any

class Launcher:
    def __init__(
        self,
        driver: tuple[int, ...],
        words: tuple[int, ...],
        status_words: tuple[int, ...],
        fields: tuple[int, ...],
        arrays: tuple[Any, ...],
        /,
    ) -> None: ...
    def encode(
        self,
        kernel: tuple[Any, ...],
        blocks: int,
        text: Any,
        way: int,
        begins: Any,
        framed: bool,
        validates: bool,
        id_bits: int,
        ids: int,
        /,
    ) -> int: ...
