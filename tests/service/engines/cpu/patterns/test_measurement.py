"""Uploads whose regular expressions are slow on some text are refused; others are not."""

from __future__ import annotations

import pytest

from service.engines.cpu.patterns.hostile_texts import make_texts, make_units
from service.engines.cpu.patterns.measurement import NUM_TIMES, refuse_slow_patterns
from service.engines.cpu.patterns.messages import Message
from service.engines.cpu.patterns.worker_process import WorkerProcess
from vocabularies.errors import VocabularyError
from vocabularies.preprocessing.published_patterns import GPT2, LLAMA3, O200K
from vocabularies.preprocessing.running_time import UnknownPattern

PLACE = "pre_tokenizer.pattern.Regex"
# Exponential, cubic and quadratic ones; with classes, groups, lookarounds and references.
SLOW = (
    *(r"(a+)+b", r"(?:foo|fo|o)*x", r"(.*,){8}P", r"(?i:k+|\u212a)*z", r"\w+\s*\w+\s*\w+!"),
    r"([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|(com))",
    *(r"^(\(.*\)|[^()])*$", r"(?:\s*\p{L}+)*\.", r"(?:a{1000}){1000}", r"a+b", r"\p{L}+[0-9]"),
    *(r"(\w+)\s\1", r"(?=(a+))a*b\1", r"a{0,60000}b", r"(?=(\d{3})+(?!\d))", r"[ \t]+\n"),
)
# Published ones, spelled so that the service does not know them, and other quick ones.
QUICK = (
    *(GPT2, LLAMA3.replace(r"\s+(?!\S)", r"\s+(?!(?:\S))"), O200K + "|(?:x)"),
    *(r"(?<=[a-z])(?=[A-Z])", r"\A[^€]*\z"),
)


def refuse(pattern: str, us_per_byte: float = 10.0) -> str:
    with pytest.raises(VocabularyError) as refused:
        refuse_slow_patterns([UnknownPattern(PLACE, pattern)], us_per_byte)
    (finding,) = refused.value.findings
    assert finding.where == PLACE
    return finding.message


def test_a_refusal_has_the_pattern_the_time_and_the_limit():
    message = refuse(r"(a+)+b")
    assert message.startswith("the regular expression '(a+)+b' takes ")
    assert " ms for " in message and " µs a byte" in message
    assert message.endswith("pattern_us_per_byte is 10")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", SLOW)
def test_a_slow_pattern_is_found(pattern):
    assert "made to be slow" in refuse(pattern)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", QUICK)
def test_a_quick_pattern_is_not_refused(pattern):
    refuse_slow_patterns([UnknownPattern(PLACE, pattern)], 10.0)


@pytest.mark.parametrize(("slow_times", "is_refused"), [(NUM_TIMES - 1, False), (NUM_TIMES, True)])
def test_a_text_that_is_slow_only_sometimes_is_timed_again(monkeypatch, slow_times, is_refused):
    """Other processes may have taken the time."""
    times = [1.0] * slow_times + [0.0] * 10_000

    def call(_, message, cpu_s):
        return Message({"seconds": times.pop(0) if message.values["call"] == "time" else 0.0})

    monkeypatch.setattr(WorkerProcess, "call", call)
    if is_refused:
        assert "takes 1000 ms for " in refuse("a")
    else:
        refuse_slow_patterns([UnknownPattern(PLACE, "a")], 10.0)


@pytest.mark.parametrize("pattern", ["(", "a{", "[", "\\", "(?<=a*)b(", "*"])
def test_texts_are_made_of_anything(pattern):
    for unit in make_units(pattern):
        assert unit
        assert all(make_texts(pattern, unit, 50))


def test_what_the_library_does_not_compile_is_refused_at_its_place():
    assert "cannot be compiled by the library" in refuse("(a")


def test_the_published_pattern_of_deepseek_is_accepted():
    refuse_slow_patterns([UnknownPattern(PLACE, r"\s+$")], 10.0)
