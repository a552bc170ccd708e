"""Packed containers: gzip members and zstd frames, one for each group, and how an index hides behind them.

Whatever the index needs lies where decompressors look away: in the extra field of empty gzip members, in zstd's
skippable frames. So `zcat` gives the plain recording, byte for byte.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import zstandard

MAGIC = b"WBRECIX1"
_FOOT = struct.Struct("<8sQQ")
_SKIP = 0x184D2A5B
_CHUNK = 60_000
_GZIP_HEAD = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff"
"""Deflate, with an extra field, no time."""
_GZIP_NOTHING = b"\x03\0" + bytes(8)


class Part(NamedTuple):
    """What one member or frame holds."""

    data: bytes
    end: int
    """Where the next one begins; the end of the file where this one is cut."""
    whole: bool


class Frames(Protocol):
    """One kind of container."""

    foot: int
    """Bytes of the last frame, which says where the index is."""

    def pack(self, data: bytes) -> bytes: ...

    def unpack(self, packed: memoryview, start: int) -> Part:
        """The frame that begins there. ValueError when it is damaged."""
        ...

    def hide(self, payload: bytes) -> bytes:
        """Frames that hold nothing for a decompressor, and this for us."""
        ...

    def hidden(self, packed: memoryview) -> bytes:
        """What `hide` was given. ValueError when it is something else."""
        ...


class Gzip:
    foot = 10 + 2 + 4 + _FOOT.size + 10

    def pack(self, data: bytes) -> bytes:
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()

    def unpack(self, packed: memoryview, start: int) -> Part:
        opener = zlib.decompressobj(31)
        parts: list[bytes] = []
        at = start
        try:
            while at < len(packed) and not opener.eof:
                parts.append(opener.decompress(packed[at : at + _CHUNK]))
                at = min(at + _CHUNK, len(packed))
        except zlib.error as error:
            raise ValueError(str(error)) from None
        return Part(b"".join(parts), at - len(opener.unused_data), opener.eof)

    def hide(self, payload: bytes) -> bytes:
        out = []
        for at in range(0, len(payload), _CHUNK):
            piece = payload[at : at + _CHUNK]
            field = b"WB" + struct.pack("<H", len(piece)) + piece
            out.append(_GZIP_HEAD + struct.pack("<H", len(field)) + field + _GZIP_NOTHING)
        return b"".join(out)

    def hidden(self, packed: memoryview) -> bytes:
        out = []
        at = 0
        while at < len(packed):
            if bytes(packed[at : at + 10]) != _GZIP_HEAD or bytes(packed[at + 12 : at + 14]) != b"WB":
                raise ValueError("no hidden data")
            (length,) = struct.unpack("<H", packed[at + 14 : at + 16])
            out.append(bytes(packed[at + 16 : at + 16 + length]))
            at += 16 + length + len(_GZIP_NOTHING)
        return b"".join(out)


class Zstd:
    foot = 8 + _FOOT.size

    def pack(self, data: bytes) -> bytes:
        return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)

    def unpack(self, packed: memoryview, start: int) -> Part:
        if len(packed) - start >= 8:
            magic, length = struct.unpack("<II", packed[start : start + 8])
            if magic == _SKIP:
                end = start + 8 + length
                return Part(b"", min(end, len(packed)), end <= len(packed))
        opener = zstandard.ZstdDecompressor().decompressobj()
        parts: list[bytes] = []
        at = start
        try:
            while at < len(packed) and not opener.eof:
                parts.append(opener.decompress(packed[at : at + _CHUNK]))
                at = min(at + _CHUNK, len(packed))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        return Part(b"".join(parts), at - len(opener.unused_data), opener.eof)

    def hide(self, payload: bytes) -> bytes:
        return struct.pack("<II", _SKIP, len(payload)) + payload

    def hidden(self, packed: memoryview) -> bytes:
        if len(packed) < 8:
            raise ValueError("no hidden data")
        magic, length = struct.unpack("<II", packed[:8])
        if magic != _SKIP or length != len(packed) - 8:
            raise ValueError("no hidden data")
        return bytes(packed[8:])


def foot(frames: Frames, start: int, length: int) -> bytes:
    """The last frame of a packed file: the index's frames are there."""
    return frames.hide(_FOOT.pack(MAGIC, start, length))


def index_of(frames: Frames, packed: memoryview) -> bytes | None:
    """What was hidden as the index; None when there is none (the file is cut)."""
    try:
        magic, start, length = _FOOT.unpack(frames.hidden(packed[len(packed) - frames.foot :]))
        if magic != MAGIC or start + length > len(packed):
            return None
        return frames.hidden(packed[start : start + length])
    except (ValueError, struct.error):
        return None


def each(frames: Frames, packed: memoryview) -> Iterator[tuple[int, Part]]:
    """(offset, what is in it) of all frames in turn, the last one maybe cut. ValueError at a damaged one."""
    at = 0
    while at < len(packed):
        part = frames.unpack(packed, at)
        yield at, part
        at = part.end
