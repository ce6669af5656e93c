"""The C++ extensions under the sanitizers of GCC, which also find faults that are planted.

AddressSanitizer and UndefinedBehaviorSanitizer look at most tests of the encoders, ThreadSanitizer
at those of several threads.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.sanitized_extensions import (
    ADDRESS,
    ENGINE,
    SOURCES,
    THREAD,
    Sanitizer,
    compile_extensions,
    run_sanitized,
)

pytestmark = pytest.mark.slow
TESTS = "tests/service/engines/cpu"
LONG_TESTS = "gena_lm or 100_megabases or library or more_pretokens or long_pretoken or masks"
LONG_TESTS += " or long_row or limits_of_caches and not gpt2"
# Others run the same code.
ALIKE = "dnabert1_4mer or dnabert1_5mer or dnabert1_6mer or nt_v1 or ntv3 or caduceus"
ALIKE += " or cl100k or llama3 or qwen2 or tekken or deepseek_v3"
THREADED = "several_threads and not gena_lm"
ABANDONED = f"{TESTS}/text/test_abandoned.py"


@pytest.mark.parametrize(
    ("sanitizer", "chosen"),
    [
        (ADDRESS, f"abandoned or encoder and not ({LONG_TESTS} or {ALIKE})"),
        (THREAD, f"abandoned or {THREADED}"),
    ],
    ids=["address", "thread"],
)
def test_no_sanitizer_finds_a_fault(sanitizer: Sanitizer, chosen: str) -> None:
    files = [f"{TESTS}/{name}/test_encoder.py" for name in ("text", "dna", "symbols")]
    done = run_sanitized(
        sanitizer, compile_extensions(sanitizer), [*files, ABANDONED, "-k", chosen]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sanitizer.report not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("sanitizer", "encoder", "file", "right", "wrong", "chosen"),
    [
        (
            ADDRESS,
            "symbols",  # UndefinedBehaviorSanitizer compiles it in half of the time of the others.
            "symbols/native/batch.hpp",
            "letters.resize(static_cast<size_t>(end - begin));",
            "letters.resize(static_cast<size_t>(end - begin) - 1);",
            "every_place and hyenadna and True",
        ),
        (
            THREAD,
            "text",
            "native/share_tasks.hpp",
            "std::atomic<size_t> next{0};",
            "size_t next = 0;",
            THREADED,
        ),
    ],
    ids=["address", "thread"],
)
def test_a_planted_fault_is_found(
    tmp_path: Path,
    sanitizer: Sanitizer,
    encoder: str,
    file: str,
    right: str,
    wrong: str,
    chosen: str,
) -> None:
    engine = tmp_path / "cpu"
    shutil.copytree(ENGINE, engine, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    source = (engine / file).read_text()
    assert source.count(right) == 1
    (engine / file).write_text(source.replace(right, wrong))
    sources = {module: source for module, source in SOURCES.items() if f".{encoder}." in module}
    extensions = compile_extensions(sanitizer, engine, sources)
    done = run_sanitized(
        sanitizer, extensions, [f"{TESTS}/{encoder}/test_encoder.py", "-k", chosen]
    )
    assert done.returncode != 0
    assert sanitizer.report in done.stdout + done.stderr
