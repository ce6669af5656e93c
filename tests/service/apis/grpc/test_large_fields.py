"""A large field cut out of a message and put in front of one, as protobuf itself reads them."""

from __future__ import annotations

import contextlib

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from service.apis.grpc.large_fields import cut_field, with_field
from service.protos import warptok_pb2 as pb


@given(st.binary(max_size=300), st.binary(max_size=40), st.text(max_size=9), st.booleans())
def test_what_is_cut_out_and_the_rest_are_the_message(data, offsets, name, reverse):
    message = pb.EncodeBatchRequest(
        vocabulary=name,
        data=data,
        offsets=offsets,
        options=pb.Options(reverse_complement=reverse, max_length=7),
    )
    found, rest = cut_field(message.SerializeToString(), 2)
    assert bytes(found) == data
    message.ClearField("data")
    assert pb.EncodeBatchRequest.FromString(rest) == message


@given(st.binary(max_size=70_000), st.binary(max_size=40))
def test_what_is_put_in_front_is_read(ids, offsets):
    message = pb.EncodeBatchResponse(offsets=offsets, engine="cpu")
    joined = with_field(1, ids, message.SerializeToString())
    message.ids = ids
    assert pb.EncodeBatchResponse.FromString(joined) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data):
    with contextlib.suppress(DecodeError):
        found, rest = cut_field(data, 2)
        assert len(found) + len(rest) <= len(data)
