from collections.abc import Mapping
from typing import Any

class LaunchSpec:
    def __init__(
        self,
        *,
        function: int,
        threads: int,
        shared_bytes: int,
        max_blocks: int,
        takes_job: bool,
        is_grid: bool,
        is_dependent: bool,
    ) -> None: ...
    @property
    def function(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def max_blocks(self) -> int: ...
    @property
    def takes_job(self) -> bool: ...
    @property
    def is_grid(self) -> bool: ...
    @property
    def is_dependent(self) -> bool: ...

class Driver:
    def __init__(
        self,
        *,
        get_context: int,
        set_context: int,
        copy_in: int,
        launch: int,
        synchronize: int,
        context: int,
        stream: int,
    ) -> None: ...
    def launch(self, spec: LaunchSpec, blocks: int, job: int, /) -> None: ...

class Launcher:
    def __init__(
        self,
        driver: Driver,
        words: Mapping[str, int],
        status_words: Mapping[str, int],
        fields: Mapping[str, int],
        *,
        job: Any,
        text: Any,
        row_begins: Any,
        status: Any,
        offsets: Any,
    ) -> None: ...
    def put_batch(
        self,
        begins: Any,
        *,
        host_text: int = 0,
        num_bytes: int = 0,
        has_flags: bool = False,
        has_limits: bool = False,
        is_augmented: bool = False,
        validates: bool = False,
        planned_fallback: int = 0,
    ) -> int | None: ...
    def answer_in(self, post_processed: bool, /) -> None: ...
    def encode(
        self,
        spec: LaunchSpec,
        blocks: int,
        text: Any,
        source: int,
        begins: Any,
        post_processed: bool,
        validates: bool,
        id_bits: int,
        ids: int,
        /,
    ) -> int: ...
