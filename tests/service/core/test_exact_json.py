"""Integers of JSON are exact, whatever their size."""

from __future__ import annotations

import json

import orjson
import pytest

from service.core.exact_json import load_json, may_have_long_integer


@pytest.mark.parametrize("size", [*range(1, 45), 300])
@pytest.mark.parametrize("before", ["", "[", '{"a":', '{"a" : ', "[-", "[0,"])
def test_integers_of_any_size_are_read(size, before):
    for shift in range(5):
        padding = " " * shift
        number = ("1234567890" * 30)[:size]
        after = {"": "", "[": "]", "{": "}"}[before[:1]]
        body = f"{padding}{before}{number}{after}".encode()
        assert load_json(body) == json.loads(body)
        assert may_have_long_integer(body) == (size >= 20)


@pytest.mark.parametrize("size", [2**63, 2**64, 10**19])
def test_integers_next_to_the_ends_of_64_bits_are_read(size):
    for number in (size - 2, size - 1, size, size + 1, -size - 2, -size - 1, -size, 1 - size):
        for body in (f"{number}", f"[{number}]", f'{{"a": {number}, "b":[-9, {number}]}}'):
            assert load_json(body.encode()) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b'"12345678901234567890123"',
        b"[0.12345678901234567890123]",
        b"[1e22, 1.5]",
        b'{"a12345678901234567890123": 1}',
    ],
)
def test_digits_in_texts_and_fractions_are_no_long_integers(body):
    assert not may_have_long_integer(body)
    assert load_json(body) == orjson.loads(body)


def test_what_is_no_json_is_refused_as_by_orjson():
    with pytest.raises(orjson.JSONDecodeError):
        load_json(b"12345678901234567890123 x")
