"""Detects from the first bytes of a file whether it is FASTA, FASTQ or text."""

from __future__ import annotations

import re

FORMATS = {b">": "fasta", b"@": "fastq"}
ARCHIVES = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_STARTS = b"\xff\xfe", b"\xfe\xff", b"\x00>", b"\x00@"
# A byte-order mark, white space and comments; then a FASTA header and letters, or a FASTQ record.
LATE_HEADER = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|;.*+\n)*+(?:(>).*+\n\s*+[A-Za-z*-]++\s|(@).*+\n[A-Za-z]*+\r?\n\+)"
)


PREAMBLE = re.compile(rb"(?:\s|;.*+(?:\n|\Z))*+")
"""Matches blank lines and comments before the first record of a FASTA file."""
# A FASTA header before letters, or a FASTQ record, anywhere in a text.
INNER_HEADER = re.compile(
    rb"^(?:(>).*+\n\s*+[A-Za-z*-]++(?:\s|\Z)|(@).*+\n[A-Za-z]*+\r?\n\+)", re.MULTILINE
)


def check_text(begin: bytes) -> None:
    """Check the first bytes of a file of text.

    Raises:
        ValueError: the file is an archive or UTF-16.
    """
    for magic, name in ARCHIVES.items():
        if begin.startswith(magic):
            twice = " twice" if name == "gzip" else ""
            raise ValueError(f"the file is compressed by {name}{twice}; decompress it")
    if begin.startswith(UTF16_STARTS):
        raise ValueError("the file is in UTF-16; only UTF-8 is supported")


def check_no_header(data: bytes) -> None:
    """Check that a file that begins with a sequence has no later FASTA header.

    Raises:
        ValueError: it has one; probably it is a FASTA file whose first header was lost.
    """
    if found := INNER_HEADER.search(data):
        sign = found[found.lastindex or 0]
        line = data.count(b"\n", 0, found.start()) + 1
        raise ValueError(
            f"line {line} begins with {sign.decode()!r}, which a {FORMATS[sign].upper()} file has "
            "as its first byte; is the first header missing? --whole or --lines reads text"
        )


def detect_format(begin: bytes) -> str | None:
    """Detect the format of a file; None: text.

    Args:
        begin: the first bytes of the decompressed file, several lines if possible.

    Raises:
        ValueError: the file is an archive or UTF-16, or it looks like FASTA after a byte-order
            mark, or like FASTQ after bytes that may not precede it.
    """
    if format := FORMATS.get(begin[:1]):
        return format
    check_text(begin)
    if late := LATE_HEADER.match(begin):
        group = late.lastindex or 0
        sign = late[group]
        if sign == b">" and not begin.startswith(BYTE_ORDER_MARK):
            return "fasta"
        line = begin.count(b"\n", 0, late.start(group)) + 1
        behind = " after a byte-order mark (EF BB BF)" if begin.startswith(BYTE_ORDER_MARK) else ""
        raise ValueError(
            f"line {line} begins with {sign.decode()!r}{behind}, which a {FORMATS[sign].upper()} "
            "file has as its first byte; --whole or --lines reads the file as text"
        )
    return None
