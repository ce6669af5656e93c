"""Files of a channel: their values, and every fault with its line."""

from __future__ import annotations

import pytest

from vocabularies.sequences.channel import ChannelError, SparseChannel


def test_bases_that_are_not_named_have_zero() -> None:
    channel = SparseChannel(
        b"# levels\none\t2\t0.25\n\nname with blank\t0\t1\r\none\t0\t1e-3\nn\xe9\t0\t2"
    )
    assert channel.values("one", 4).tolist() == pytest.approx([0.001, 0, 0.25, 0])
    assert channel.values("name with blank", 1).tolist() == [1]
    assert channel.values("two", 2).tolist() == [0, 0]
    assert channel.values("n\xe9", 1).tolist() == [2]
    channel.check_used()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"one 1 0.5", "separated by tabs"),
        (b"one\t1", "separated by tabs"),
        (b"one\t-1\t0.5", "position"),
        (b"one\t1.0\t0.5", "position"),
        (b"one\t" + b"1" * 5000 + b"\t0.5", "position"),
        (b"one\t1\tnan", "value"),
        (b"one\t1\t1_0", "value"),
        ("one\t1\t\u0663".encode(), "value"),
        (b"one\t1\t1e39", "value"),
        (b"one\t1\thalf", "value"),
        (b"one\t0\t0.5", "already"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(ChannelError, match=rf"line 2: .*{reason}"):
        SparseChannel(b"one\t0\t1\n" + line + b"\n")


def test_what_fits_no_sequence_is_named() -> None:
    channel = SparseChannel(b"one\t1\t1\none\t5\t1\ntwo\t0\t1\n")
    with pytest.raises(ChannelError, match=r"line 2: .* after the 5 bases"):
        channel.values("one", 5)
    channel.values("one", 6)
    with pytest.raises(ChannelError, match=r"line 3: .*no sequence"):
        channel.check_used()
