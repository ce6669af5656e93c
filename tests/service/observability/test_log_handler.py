"""A reader of the log that stands still holds nothing up; what was lost is counted."""

from __future__ import annotations

import logging
import os
import select

import pytest

from service.observability.log_handler import LossyHandler

PIPE_BYTES = 65_536


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    for each in (reader, writer):
        os.close(each)


def log(handler: LossyHandler, text: str) -> None:
    handler.handle(logging.LogRecord("a", logging.INFO, "", 0, text, (), None))


def test_lines_are_written_as_they_are(pipe):
    reader, writer = pipe
    handler = LossyHandler(writer)
    log(handler, "first")
    log(handler, "ä" * 10_000)
    log(handler, "\ud800")
    assert os.read(reader, PIPE_BYTES).decode() == "first\n" + "ä" * 10_000 + "\n\\ud800\n"


def test_a_full_pipe_loses_lines_and_says_how_many(pipe, monkeypatch):
    reader, writer = pipe
    handler = LossyHandler(writer)
    for number in range(1000):
        log(handler, f"{number:03} {'x' * 200}")
    begin = os.read(reader, PIPE_BYTES).decode().splitlines()
    number = len(begin)
    assert number > 200 and begin[-1].startswith(f"{number - 1:03} ")
    log(handler, "read again")
    assert os.read(reader, PIPE_BYTES).decode().splitlines() == [
        f"{1000 - number} lines of the log were lost, as nobody read them",
        "read again",
    ]


def test_the_line_about_lost_lines_needs_no_second_page(pipe):
    reader, writer = pipe
    handler = LossyHandler(writer)
    for _ in range(PIPE_BYTES // select.PIPE_BUF):
        os.write(writer, b"x" * select.PIPE_BUF)
    log(handler, "lost")
    os.read(reader, select.PIPE_BUF)
    log(handler, "y" * (select.PIPE_BUF - 10))  # It would wait for a reader for ever.
    os.read(reader, PIPE_BYTES - select.PIPE_BUF)
    log(handler, "read again")
    lost = "1 lines of the log were lost, as nobody read them"
    first, cut, *others = os.read(reader, PIPE_BYTES).decode().splitlines()
    assert [first, *others] == [lost, lost, "read again"]
    assert set(cut) == {"y"}


def test_a_long_traceback_does_not_block(pipe):
    reader, writer = pipe
    handler = LossyHandler(writer)
    log(handler, "x" * 10 * PIPE_BYTES)
    log(handler, "lost as well")
    assert len(os.read(reader, 2 * PIPE_BYTES)) <= PIPE_BYTES
    log(handler, "read again")
    assert os.read(reader, PIPE_BYTES).decode().splitlines()[-2:] == [
        "2 lines of the log were lost, as nobody read them",
        "read again",
    ]


def test_a_reader_that_has_gone_and_a_full_disk_are_no_errors(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log(LossyHandler(writer), "nobody")
    os.close(writer)
    with open("/dev/full", "wb") as full:
        log(LossyHandler(full.fileno()), "no room")


def test_a_file_gets_every_line(tmp_path):
    with open(tmp_path / "log", "wb") as file:
        handler = LossyHandler(file.fileno())
        for _ in range(10_000):
            log(handler, "x" * 100)
    assert (tmp_path / "log").stat().st_size == 10_000 * 101
    assert select.PIPE_BUF >= 512
