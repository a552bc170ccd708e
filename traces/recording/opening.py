"""Opening a recording: groups by their `ix` lines, and what no `ix` line closes decoded.

Invariant: whatever is wrong with a file is noted, and what comes before it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traces.recording.decode import Decoder
from traces.recording.groups import Summary
from traces.recording.keyframe import Restored
from traces.recording.lines import BadLine, dump, load
from traces.recording.marks import SLOW_WINDOW, Marks
from traces.recording.store import Store

Progress = Callable[[str, int, int], None]


class Opening:
    """Fills a store's groups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.closed = False
        self.end: dict[str, Any] = {}
        """The `end` line."""
        self.bookmarks: list[tuple[int, str]] = []

    def run(self, at: int, progress: Progress) -> None:
        """Read all index lines from `at` on, and decode groups that have none: the last one, or a damaged one."""
        size = self._store.source.size
        after: int | None = at
        while after is not None and after < size and not self.closed:
            after = self._open_tail(self._open_index(after, progress))
        progress("reading the index", size, size)

    def _open_index(self, at: int, progress: Progress) -> int:
        """Take in the groups that follow one another from `at` on; returns where the last one ends."""
        source, groups = self._store.source, self._store.groups
        for offset, line in source.index_lines(at):
            if not line.startswith(b'{"k":"ix","o":%d,' % at):
                break
            try:
                group = groups.add(line, offset)
            except BadLine:
                break
            self.bookmarks += group.bookmarks
            if len(groups.all) == 1:
                self._store.read_prelude(group)
            at = offset + len(line) + 1
            if len(groups.all) % 512 == 0:
                progress("reading the index", at, source.size)
        return at

    def _open_tail(self, at: int) -> int | None:
        """Decode a group that no index line closes (the last one, or one with a bad index line).

        Returns where the next group begins, None when there is none or it cannot be reached.
        """
        decoder: Decoder | None = None
        summary: Summary | None = None
        marks = Marks()
        offsets: list[int] = []
        bookmarks: list[tuple[int, str]] = []
        end = at
        following: int | None = None
        for offset, raw in self._store.source.lines(at):
            if not raw.endswith(b"\n"):
                self._store.notes.append(f"{len(raw)} bytes of an unfinished last line were ignored")
                break
            try:
                line = load(raw)
                kind = line["k"]
                if kind == "ix":
                    following = offset + len(raw)
                    continue
                if kind == "end":
                    self._take_end(line, offset)
                    break
                if kind == "kf":
                    if summary is not None:
                        following = offset
                        break
                    end = offset + len(raw)
                    restored = Restored(line, self._store)
                    decoder = self._store.decoder(restored)
                    marks.prime(self._store.groups.recent_durations(SLOW_WINDOW))
                    summary = Summary(
                        offset, restored.view.seq + 1, restored.view.step, restored.next_number, restored.end
                    )
                    following = None
                    continue
                if decoder is None or summary is None:
                    if kind in ("req", "pid", "had"):
                        self._store.note_bad(offset, "comes before any keyframe")
                        return None
                    continue
                if kind == "req":
                    offsets.append(offset)
                elif kind == "voc":
                    summary.said(offset)
                elif kind == "mark":
                    bookmarks.append((int(line["s"]), str(line["text"])))
                    summary.bookmarks.append(bookmarks[-1])
                it = decoder.feed(line)
            except (BadLine, KeyError, TypeError, ValueError) as problem:
                self._store.note_bad(offset, str(problem))
                following = None
                break
            if it is not None:
                for arrived, place in zip(it.arrived, offsets, strict=True):
                    summary.arrived(arrived.id, place)
                offsets = []
                summary.add(it, marks.add(it))
                end = offset + len(raw)
        if summary is None:
            return following if following is not None and following > at else None
        if summary.records or summary.bookmarks:
            group = self._store.groups.add(dump(summary.line()), end)
            group.know(summary.ids, summary.at)
            self.bookmarks += bookmarks
            self._store.tell(decoder)
        return following if following is not None and following > at else None

    def _take_end(self, line: dict[str, Any], offset: int) -> None:
        self.closed, self.end = True, line
        records = line.get("n")
        have = sum(group.records for group in self._store.groups.all)
        if records != have:
            self._store.notes.append(f"its end tells of {records} records, {have} are there")
