"""What a file is by its first bytes: FASTA, FASTQ, or text unless it only seems so."""

from __future__ import annotations

import re

FORMATS = {b">": "fasta", b"@": "fastq"}
PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
MARK = b"\xef\xbb\xbf"
UTF16 = b"\xff\xfe", b"\xfe\xff", b"\x00>", b"\x00@"
# A byte order mark, white space, comments; then a header and a line of letters, or a read.
LATE = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|;.*+\n)*+(?:(>).*+\n\s*+[A-Za-z*-]++\s|(@).*+\n[A-Za-z]*+\r?\n\+)"
)


def format_of(begin: bytes) -> str | None:
    """The format that these bytes begin; None: text.

    Args:
        begin: of an unpacked file, some lines if it can be.

    Raises:
        ValueError: it is text by its first byte, and something else by those that follow.
    """
    if format := FORMATS.get(begin[:1]):
        return format
    for magic, name in PACKED.items():
        if begin.startswith(magic):
            raise ValueError(f"packed by {name}{' twice' if name == 'gzip' else ''}; unpack it")
    if begin.startswith(UTF16):
        raise ValueError("in UTF-16; only UTF-8 is read")
    if late := LATE.match(begin):
        sign = late[late.lastindex or 0]
        line = begin.count(b"\n", 0, late.start(late.lastindex or 0)) + 1
        behind = " behind a byte-order mark (EF BB BF)" if begin.startswith(MARK) else ""
        raise ValueError(
            f"line {line} begins with {sign.decode()!r}{behind}, but {FORMATS[sign].upper()} does "
            "so with its first byte; as text with --whole or --lines"
        )
    return None
