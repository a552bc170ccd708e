"""Packing recordings: one gzip member or zstd frame for each group, and an index. Unpacking gives the same bytes.

Copied a group at a time, into a file that gets its name when it is whole.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from traces.errors import RecordingError
from traces.recording.frames import Frames, Gzip, Zstd, foot
from traces.recording.packed import PackedSource
from traces.recording.reader import Recording
from traces.recording.source import open_source

Progress = Callable[[str, int, int], None]


class Packed(NamedTuple):
    path: Path
    before: int
    """Bytes."""
    after: int


def pack(
    path: Path, out: Path | None = None, *, zstd: bool = False, force: bool = False, progress: Progress | None = None
) -> Packed:
    """Pack a plain recording. out: None puts `.gz` or `.zst` behind its name. RecordingError as `Recording.open`."""
    out = out if out is not None else path.with_name(path.name + (".zst" if zstd else ".gz"))
    frames: Frames = Zstd() if zstd else Gzip()
    recording = Recording.open(path)
    try:
        source = recording._source
        if isinstance(source, PackedSource):
            raise RecordingError(f"{path} is packed already")
        starts, offsets, index = recording.parts()

        def pieces() -> Iterator[bytes]:
            places, place = [], 0
            for start, stop in zip(starts, [*starts[1:], source.size], strict=True):
                packed = frames.pack(source.read(start, stop))
                places.append(place)
                place += len(packed)
                if progress is not None:
                    progress("packing", stop, source.size)
                yield packed
            head = {"v": 1, "size": source.size, "starts": starts, "places": places, "ix": offsets}
            payload = zlib.compress(json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"\n".join(index))
            hidden = frames.hide(payload)
            yield hidden
            yield foot(frames, place, len(hidden))

        after = _write(out, pieces(), force)
    finally:
        recording.close()
    return Packed(out, source.size, after)


def unpack(path: Path, out: Path | None = None, *, force: bool = False, progress: Progress | None = None) -> Packed:
    """The plain recording of a packed one. out: None takes the name without its ending."""
    source = open_source(path)
    try:
        if not isinstance(source, PackedSource):
            raise RecordingError(f"{path} is not packed")
        if out is None:
            if path.suffix not in (".gz", ".zst"):
                raise RecordingError(f"{path}: its name does not end in .gz or .zst; say where to with --out")
            out = path.with_suffix("")

        def pieces() -> Iterator[bytes]:
            done = 0
            for part in source.parts():
                done += len(part)
                if progress is not None:
                    progress("unpacking", done, source.size)
                yield part

        after = _write(out, pieces(), force)
        if source.notes:
            raise RecordingError(f"{path}: {source.notes[0]}; {out} holds what could be read")
    finally:
        source.close()
    return Packed(out, path.stat().st_size, after)


def _write(out: Path, pieces: Iterator[bytes], force: bool) -> int:
    if out.is_dir():
        raise RecordingError(f"{out} is a folder; give a file")
    if out.exists() and not force:
        raise RecordingError(f"{out} is there already; give another name with --out, or remove it first")
    part = out.with_name(f".{out.name}.part")
    size = 0
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                size += len(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, out)
    except OSError as problem:
        part.unlink(missing_ok=True)
        raise RecordingError(f"{out} cannot be written: {problem.strerror or problem}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return size
