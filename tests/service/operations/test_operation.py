"""Bodies of any kind are parsed or refused."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import ServiceError, TooLarge
from service.operations import operation
from service.operations.schemas import (
    DecodeBatchRequest,
    EncodeBatchRequest,
    EncodeRequest,
    PlainEncodeRequest,
    WindowsRequest,
)

MODELS = (EncodeRequest, EncodeBatchRequest, DecodeBatchRequest, WindowsRequest)
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, -(2**63) - 1, 1.0, -0.0])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
FITTING = {
    "vocabulary": st.just("gpt2"),
    "text": st.text(max_size=5),
    "texts": st.lists(st.text(max_size=5), max_size=3),
    "ids": st.lists(st.lists(st.integers(-2, 2**70), max_size=3), max_size=3),
    "sequence": st.text("ACGT", max_size=8),
    "window": st.integers(0, 9),
    "channel": st.none() | st.lists(st.floats(0, 1) | st.integers(0, 1), max_size=3),
    "max_length": st.none() | st.integers(-1, 9),
    "return_offsets": st.sampled_from(["bytes", "codepoints", "words"]),
    "padding": st.sampled_from(["longest", 7, 7.0, True]),
}
REFUSALS = (("bad_json", 400), ("invalid_request", 422), ("lone_surrogate", 400))
WRITTEN = ('{"vocabulary":"gpt2",%s}', '{"text":"a","text":"b",%s}', " [%s]", "%s", "\ufeff{%s}")
PARTS = ('"text":"\\ud800"', '"text":"a\nb"', '"max_length":1e400', '"texts":["a",]', '"ids":[NaN]')


@st.composite
def bodies(draw):
    """JSON of requests that fit, nearly fit, or are none."""
    if draw(st.integers(0, 3)) == 0:
        return (draw(st.sampled_from(WRITTEN)) % draw(st.sampled_from(PARTS))).encode()
    names = draw(st.sets(st.sampled_from([*FITTING]), max_size=6)) | {"vocabulary"}
    body = {name: draw(FITTING[name] if draw(st.integers(0, 5)) else VALUES) for name in names}
    return json.dumps(body, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


@settings(max_examples=300)
@given(st.sampled_from(MODELS), bodies())
def test_a_body_is_a_request_or_refused_with_its_place(model, body):
    try:
        request = operation.parse(model, body)
    except ServiceError as error:
        assert (error.code, error.status) in REFUSALS
        assert error.message
    else:
        given_fields = {name: getattr(request, name) for name in request.model_fields_set}
        assert given_fields == json.loads(body)


def read(model, body):
    """Return what a body says: the given fields and the values of all fields, or the refusal."""
    try:
        request = operation.parse(model, body)
    except ServiceError as error:
        return error.code, str(error), error.status
    values = {name: getattr(request, name) for name in model.model_fields}
    return sorted(request.model_fields_set), values


@settings(max_examples=300)
@given(st.sampled_from(MODELS), bodies())
def test_a_body_means_the_same_to_both_libraries(model, body):
    with mock.patch.object(operation, "ORJSON_BYTES", 0):
        by_orjson = read(model, body)
    by_default = read(model, body)
    with (
        mock.patch.object(operation, "ORJSON_BYTES", len(body) + 1),
        mock.patch.object(operation, "FIELD_END", b"no body has this"),
    ):
        by_pydantic = read(model, body)
    assert repr(by_orjson) == repr(by_default) == repr(by_pydantic)


@pytest.mark.parametrize(
    ("body", "is_plain"),
    [
        ('{"vocabulary":"gpt2","text":"a\\u00e9 \\"quoted\\""}', True),
        ('{"text": "", "vocabulary": "gpt2"}', True),
        ('{"vocabulary":"gpt2","text":"a","uppercase":false}', False),
        ('{"vocabulary":"gpt2","text":"a \\":"}', False),
        ('{"vocabulary" :"gpt2","text" :"a"}', False),
        ('{"text":"a","text":"b","vocabulary":"gpt2"}', False),
    ],
)
def test_a_request_of_one_text_without_options_needs_no_model(body, is_plain):
    request = operation.parse(EncodeRequest, body.encode())
    assert isinstance(request, PlainEncodeRequest) == is_plain
    model = EncodeRequest.model_validate_json(body)
    assert {name: getattr(request, name) for name in EncodeRequest.model_fields} == dict(model)
    assert request.model_fields_set == model.model_fields_set


@given(st.lists(st.text(max_size=9), max_size=5), st.integers(1, 40))
def test_bytes_are_counted_and_limited_however_many_there_are(texts, limit):
    sizes = [len(text.encode()) for text in texts]
    too_long = [row for row, size in enumerate(sizes) if size > limit]
    if not too_long:
        assert operation._count_bytes(texts, limit, "/texts/{}") == sum(sizes)
        return
    with pytest.raises(TooLarge) as refused:
        operation._count_bytes(texts, limit, "/texts/{}")
    assert refused.value.where == f"/texts/{too_long[0]}"
