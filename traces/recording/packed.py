"""`PackedSource`: a packed recording, read group by group by the places in the plain file.

With its index (see `pack`) nothing is decompressed before it is asked for. A file that is cut has lost the index:
then all of it is decompressed once, to find where the groups are.
"""

from __future__ import annotations

import json
import mmap
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from traces.recording.frames import Frames, Gzip, Zstd, each, index_of
from traces.recording.groups import PREFIX

KEEP_PARTS = 16


class PackedSource:
    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._packed = memoryview(self._map)
        self._frames: Frames = Gzip() if self._map[:2] == b"\x1f\x8b" else Zstd()
        self._starts: list[int] = []
        """Of each part in the plain file, and in the packed one."""
        self._places: list[int] = []
        self._index: list[tuple[int, bytes]] | None = None
        self._parts: OrderedDict[int, bytes] = OrderedDict()
        self.size = 0
        if not self._read_index():
            self._scan()

    def _read_index(self) -> bool:
        hidden = index_of(self._frames, self._packed)
        if hidden is None:
            return False
        try:
            head, _, lines = zlib.decompress(hidden).partition(b"\n")
            index = json.loads(head)
            self.size, starts, places, offsets = index["size"], index["starts"], index["places"], index["ix"]
            rows = lines.split(b"\n")[: len(offsets)]
            if len(starts) != len(places) or len(rows) != len(offsets) or starts != sorted(starts):
                return False
        except (ValueError, KeyError, TypeError, zlib.error):
            return False
        self._starts, self._places = starts, places
        self._index = list(zip(offsets, rows, strict=True))
        return True

    def _scan(self) -> None:
        self._index = []
        try:
            for place, part in each(self._frames, self._packed):
                if part.data:
                    self._starts.append(self.size)
                    self._places.append(place)
                    at = part.data.find(PREFIX)
                    while at >= 0:
                        end = part.data.find(b"\n", at + 1)
                        if end >= 0:
                            self._index.append((self.size + at + 1, part.data[at + 1 : end]))
                        at = part.data.find(PREFIX, at + 1)
                    self.size += len(part.data)
                if not part.whole:
                    self.notes.append("the packed file is cut: its last part is not complete")
        except ValueError as problem:
            self.notes.append(f"the packed file is damaged: {problem}; what comes after it was not read")

    def _part(self, index: int) -> bytes:
        data = self._parts.get(index)
        if data is None:
            try:
                data = self._frames.unpack(self._packed, self._places[index]).data
            except ValueError as problem:
                note = f"the packed file is damaged at byte {self._places[index]}: {problem}"
                if note not in self.notes:
                    self.notes.append(note)
                data = b""
            self._parts[index] = data
            if len(self._parts) > KEEP_PARTS:
                self._parts.popitem(last=False)
        else:
            self._parts.move_to_end(index)
        return data

    def _at(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1

    def read(self, start: int, stop: int) -> bytes:
        out = []
        stop = min(stop, self.size)
        while start < stop:
            index = self._at(start)
            end = self._starts[index + 1] if index + 1 < len(self._starts) else self.size
            upto = min(stop, end)
            out.append(self._part(index)[start - self._starts[index] : upto - self._starts[index]])
            start = upto
        return b"".join(out)

    def line_at(self, start: int) -> bytes:
        """Lines do not reach from one part into the next."""
        if not 0 <= start < self.size:
            return b""
        index = self._at(start)
        data, at = self._part(index), start - self._starts[index]
        end = data.find(b"\n", at)
        return data[at : end if end >= 0 else len(data)]

    def lines(self, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        stop = self.size if stop is None else min(stop, self.size)
        while start < stop:
            index = self._at(start)
            first = self._starts[index]
            end = self._starts[index + 1] if index + 1 < len(self._starts) else self.size
            data = self._part(index)
            last = min(stop, end) - first
            at = start - first
            while at < min(last, len(data)):
                after = data.find(b"\n", at, last) + 1 or min(last, len(data))
                yield first + at, data[at:after]
                at = after
            start = end

    def index_lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        for offset, line in self._index or ():
            if offset >= start:
                yield offset, line

    def parts(self) -> Iterator[bytes]:
        """All of it, in order."""
        for index in range(len(self._starts)):
            yield self._part(index)

    def close(self) -> None:
        self._packed.release()
        self._map.close()
