"""`Source`: the bytes of a recording by their place in the plain file, however the file is stored."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from traces.errors import RecordingError
from traces.recording.groups import PREFIX

_HEAD = re.compile(rb'\{"k":"ix","o":\d+,"p":(-?\d+),')


class Source(Protocol):
    size: int
    """Bytes of the plain recording, as far as the file goes."""
    notes: list[str]
    """What is wrong with the file itself, one line each."""

    def read(self, start: int, stop: int) -> bytes: ...

    def line_at(self, start: int) -> bytes:
        """The line that begins there, without its newline; what there is of it where the file ends."""
        ...

    def lines(self, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """(offset, line with its newline) of what lies there; the last one of a file may lack the newline."""
        ...

    def index_lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        """(offset, line) of every `ix` line from there on."""
        ...

    def close(self) -> None: ...


class PlainSource:
    """A plain file, mapped: nothing of it is read before it is looked at."""

    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        with path.open("rb") as file:
            try:
                self._map: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # nothing in it
                self._map = b""
        self.size = len(self._map)

    def read(self, start: int, stop: int) -> bytes:
        return self._map[start:stop]

    def line_at(self, start: int) -> bytes:
        end = self._map.find(b"\n", start)
        return self._map[start : end if end >= 0 else self.size]

    def lines(self, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        end = self.size if stop is None else min(stop, self.size)
        find = self._map.find
        while start < end:
            after = find(b"\n", start, end) + 1 or end
            yield start, self._map[start:after]
            start = after

    def index_lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        chain = self._chain(start)
        if chain is not None:
            for at in reversed(chain):
                yield at, self.line_at(at)
            return
        find = self._map.find
        at = find(PREFIX, max(0, start - 1))
        while at >= 0:
            end = find(b"\n", at + 1)
            if end < 0:
                return
            yield at + 1, self._map[at + 1 : end]
            at = find(PREFIX, end)

    def _chain(self, start: int) -> list[int] | None:
        """Places of all index lines from `start` on, last one first, each told by the next; None: the chain is broken.

        So a file of gigabytes is opened without reading it. Where it is broken, index lines are looked for instead.
        """
        at = self._map.rfind(PREFIX)
        while at >= 0 and self._map.find(b"\n", at + 1) < 0:  # cut in the middle of one
            at = self._map.rfind(PREFIX, 0, at)
        at += 1
        places: list[int] = []
        while at >= start:
            head = _HEAD.match(self._map[at : at + 80])
            if head is None or int(head[1]) >= at:
                return None
            places.append(at)
            at = int(head[1])
        return places

    def close(self) -> None:
        if isinstance(self._map, mmap.mmap):
            self._map.close()


def open_source(path: Path) -> Source:
    """By the first bytes: plain, gzip or zstd. RecordingError when it cannot be read."""
    try:
        if path.is_dir():
            raise RecordingError(f"{path} is a folder; give a recording")
        with path.open("rb") as file:
            head = file.read(4)
        if head[:2] == b"\x1f\x8b" or head == b"\x28\xb5\x2f\xfd":
            from traces.recording.packed import PackedSource

            return PackedSource(path)
        return PlainSource(path)
    except FileNotFoundError:
        raise RecordingError(f"{path}: no such file") from None
    except OSError as problem:
        raise RecordingError(f"{path} cannot be read: {problem.strerror or problem}") from None
