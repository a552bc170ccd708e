"""Bytes of a text file as people really have them: plain, gzip or zstd by magic bytes, byte-order marks, CRLF.

Invariant: only `\\n` ends a line (JSON strings may hold U+2028), whatever the file's name says; what is in memory is
one piece and one line. Several gzip members or zstd frames one after the other are one text.
Omission: other compressions and archives are named and refused.
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from engine.errors import WorkbenchError
from traces.readers.signatures import GZIP, ZSTD, not_a_trace

LONGEST_LINE = 64 << 20
"""Bytes. A file of one endless line (or a gzip of zeros) must not fill the memory."""
MOST_INFLATED = 256 << 30
"""Bytes that a compressed file may hold: ten times the largest public trace."""
MOST_RATIO = 300
RATIO_COUNTS_FROM = 1 << 30
"""A compressed file that has given this many bytes and is still more than MOST_RATIO times as large as what was read
of it is a bomb: text of traces shrinks 4 to 20 times, zeros 1,000 times with gzip and 30,000 times with zstd."""

PIECE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_FEED = {"gzip": 1 << 16, "zstd": 1 << 11}
"""Compressed bytes decompressed at once: at the worst ratio that is 64 MiB."""


class _Unpacker(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, the line without its end) of a file. WorkbenchError names what is wrong."""
    for number, block in read_blocks(path):
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for offset, line in enumerate(lines):
            yield number + offset, line.rstrip(b"\r")


def read_blocks(path: Path, size: int = PIECE) -> Iterator[tuple[int, bytes]]:
    """(number of its first line, whole lines with their ends) in blocks of about `size` bytes. The last line of the
    last block may lack its end. WorkbenchError names what is wrong with the file."""
    number = 1
    rest: list[bytes] = []
    held = 0
    for piece in read_pieces(path, size):
        cut = piece.rfind(b"\n") + 1
        if cut:
            block = b"".join((*rest, piece[:cut]))
            yield number, block
            number += block.count(b"\n")
            rest, held = [], 0
        rest.append(piece[cut:])
        held += len(piece) - cut
        if held > LONGEST_LINE:
            raise WorkbenchError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB")
    if held:
        yield number, b"".join(rest)


def read_head(path: Path, size: int) -> tuple[bytes, bool]:
    """The first `size` bytes or a little more, and whether that is the whole file. There is one whole line that is not
    blank among them, however long, unless the file is an array in one line."""
    pieces: list[bytes] = []
    total = 0
    first = b""
    whole_line = False
    for piece in (pieces_of := read_pieces(path, min(size, PIECE))):
        pieces.append(piece)
        total += len(piece)
        seen = piece if first else piece.lstrip()
        first = first or seen[:1]
        whole_line = whole_line or b"\n" in seen
        if total >= size and (whole_line or first == b"["):
            more = next(pieces_of, None)
            pieces_of.close()
            return b"".join((*pieces, more or b"")), more is None
        if total > LONGEST_LINE and not whole_line:
            raise WorkbenchError(f"{path}:1: the line is longer than {LONGEST_LINE >> 20} MiB")
    return b"".join(pieces), True


def read_pieces(path: Path, size: int = PIECE) -> Iterator[bytes]:
    """The text in pieces that are not empty, without a byte-order mark. WorkbenchError names what is wrong."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise WorkbenchError(f"{path} is a folder; give a file")
        if not stat.S_ISREG(mode):
            raise WorkbenchError(f"{path} is not a plain file; save what it gives to one first")
        with path.open("rb") as file:
            yield from _text(path, file, size)
    except FileNotFoundError:
        raise WorkbenchError(f"{path}: no such file") from None
    except PermissionError:
        raise WorkbenchError(f"{path} cannot be read: permission denied") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise WorkbenchError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _text(path: Path, file: BinaryIO, size: int) -> Iterator[bytes]:
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(GZIP):
        pieces = _inflated(path, file, "gzip")
    elif magic in ZSTD:
        pieces = _inflated(path, file, "zstd")
    else:
        pieces = iter(lambda: file.read(size), b"")
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= 512:  # what is seen of a file before it is judged
            break
    if why := not_a_trace(head[:4096]):
        raise WorkbenchError(f"{path} {why}")
    if head := head.removeprefix(_BOM):
        yield head
    yield from pieces


def _inflated(path: Path, file: BinaryIO, kind: str) -> Iterator[bytes]:
    unpacker = _unpacker(kind)
    given = 0
    fresh = True
    while data := file.read(_FEED[kind]):
        while data:
            if unpacker.eof:
                if kind == "gzip" and not data.strip(b"\0"):
                    break  # tapes and block devices pad with zeros
                unpacker, fresh = _unpacker(kind), True
            try:
                piece = unpacker.decompress(data)
            except (zlib.error, zstandard.ZstdError) as error:
                raise WorkbenchError(f"{path} is damaged {kind} data: {error}") from None
            data = unpacker.unused_data if unpacker.eof else b""
            fresh = False
            given += len(piece)
            if given > MOST_INFLATED:
                raise WorkbenchError(f"{path} holds more than {MOST_INFLATED >> 30} GiB; split it")
            if given > RATIO_COUNTS_FROM and given > MOST_RATIO * file.tell():
                raise WorkbenchError(
                    f"{path} is {given // file.tell()} times as large as its {kind} data: a bomb or only filling; "
                    "decompress it yourself if it is sound"
                )
            if piece:
                yield piece
    if not unpacker.eof and not fresh:
        raise WorkbenchError(f"{path} is damaged {kind} data: it ends in the middle (a download that was cut?)")


def _unpacker(kind: str) -> _Unpacker:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
