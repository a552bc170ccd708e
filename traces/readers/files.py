"""Lines of a text file as people really have them: gzip by its magic bytes, byte-order marks, CRLF.

Invariant: only `\\n` ends a line (JSON strings may hold U+2028), and no more than one line is in memory.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from engine.errors import WorkbenchError

LONGEST_LINE = 64 << 20
"""Bytes. A file of one endless line (or a gzip of zeros) must not fill the memory."""

_NOT_OURS = (
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; decompress it first (gzip is read as it is)"),
    (b"PK\x03\x04", "is a zip archive; unpack it first"),
    (b"\xff\xfe", "is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; save it as UTF-8"),
    (b"PAR1", "is a Parquet file; convert it to JSON lines"),
    (b"version https://git-lfs", "is a git-lfs pointer, not the data itself; run git lfs pull"),
)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, the line without its end) of a plain or gzip file. WorkbenchError names what is wrong."""
    try:
        if path.is_dir():
            raise WorkbenchError(f"{path} is a folder; give a file")
        with path.open("rb") as file:
            yield from _lines(path, file)
    except FileNotFoundError:
        raise WorkbenchError(f"{path}: no such file") from None
    except PermissionError:
        raise WorkbenchError(f"{path} cannot be read: permission denied") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkbenchError(f"{path} is damaged gzip data: {error}") from None
    except OSError as error:
        raise WorkbenchError(f"{path} cannot be read: {error.strerror or error}") from None


def _lines(path: Path, file: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    head = file.peek(32)
    source: BinaryIO = file
    if head.startswith(b"\x1f\x8b"):
        packed = gzip.GzipFile(fileobj=file)
        source = packed  # type: ignore[assignment]
        head = packed.peek(32)
    for magic, why in _NOT_OURS:
        if head.startswith(magic):
            raise WorkbenchError(f"{path} {why}")
    number = 0
    while line := source.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise WorkbenchError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        yield number, line.rstrip(b"\r\n")
