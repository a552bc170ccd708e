"""What a file is by its first bytes, where it is not text with requests: each named, with what to do about it.

Invariant: nothing is ever loaded to find out. A pickle runs code when it is loaded, so it is refused unread.
"""

from __future__ import annotations

import re

GZIP = b"\x1f\x8b"
ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))
"""The frame's magic, and those of the skippable frames that parallel compressors put first."""

_NOT_TRACES = (
    (b"PK\x03\x04", "is a zip archive; unpack it first"),
    (b"PK\x05\x06", "is an empty zip archive"),
    (b"PAR1", "is a Parquet file; convert it to CSV or JSON lines"),
    (b"ARROW1", "is an Arrow file; convert it to CSV or JSON lines"),
    (b"FEA1", "is a Feather file; convert it to CSV or JSON lines"),
    (b"SQLite format 3\0", "is an SQLite database; export the table as CSV"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file; export it as CSV"),
    (b"\x93NUMPY", "is a NumPy array; export it as CSV"),
    (b"BZh", "is compressed with bzip2; decompress it first (gzip and zstd are read as they are)"),
    (b"\xfd7zXZ\0", "is compressed with xz; decompress it first (gzip and zstd are read as they are)"),
    (b"\x04\x22\x4d\x18", "is compressed with lz4; decompress it first (gzip and zstd are read as they are)"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive; unpack it first"),
    (b"\xd0\xcf\x11\xe0", "is an old Office file; export the sheet as CSV"),
    (b"%PDF", "is a PDF"),
    (b"\xff\xfe", "is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; save it as UTF-8"),
    (b"\0\0\xfe\xff", "is UTF-32 text; save it as UTF-8"),
    (b"version https://git-lfs", "is a git-lfs pointer, not the data itself; run git lfs pull"),
    (GZIP, "is compressed twice; decompress it once"),
    *((magic, "is compressed twice; decompress it once") for magic in ZSTD),
)
_PICKLE = "is a Python pickle; loading one can run any code, so it is never read. Export it as CSV or JSON lines"
_OLD_PICKLE = re.compile(rb"\(?[ld]p\d+\n|\([ldt][p.\n]|c[A-Za-z_.]+\n[A-Za-z_.]+\n")
"""Protocol 0 is text: a list, dict or tuple opcode with its memo number, or a global's module and name."""


def not_a_trace(head: bytes) -> str | None:
    """What a file with this beginning (decompressed, 512 bytes are enough) is, where it cannot be a trace."""
    for magic, why in _NOT_TRACES:
        if head.startswith(magic):
            return why
    if head[257:262] == b"ustar":
        return "is a tar archive; unpack it first"
    if re.match(rb"\x80[\x01-\x05]", head) or _OLD_PICKLE.match(head):
        return _PICKLE
    if head.lstrip()[:1] == b"<":
        return "looks like HTML or XML, perhaps an error page saved in place of the data; fetch it again"
    if b"\0" in head:
        if head[1:2] == b"\0" or head[:1] == b"\0":
            return "looks like UTF-16 text without its mark, or is binary; save it as UTF-8"
        return "is a binary file, not text"
    return None
