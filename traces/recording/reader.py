"""`Recording`: a recording opened for reading, whole or cut anywhere, plain or packed.

Opening reads the `ix` lines and the last group; everything else is read when it is asked for. A group is decoded from
its keyframe, so any iteration is a keyframe and at most one group of records away.
Invariant: what comes before a bad line can be read; `notes` tell what is wrong with the rest. Records are equal to
those that were written (without tokens: to those without text).
Safe for several threads. Views that were handed out read from the file when they are asked for prompts and answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.host import EngineInfo
from engine.records import Arrived, Iteration
from engine.view import EngineView
from traces.errors import RecordingError
from traces.recording.groups import PREFIX, Group
from traces.recording.header import Header, read_header
from traces.recording.lazy import LazyRequests, LazyTuple
from traces.recording.lines import BadLine, load
from traces.recording.opening import Opening, Progress
from traces.recording.source import Source, open_source
from traces.recording.store import Store


class Recording:
    """See the module. Steps count executed iterations from 1, records are numbered by `seq` from 0."""

    def __init__(self, source: Source, name: str, progress: Progress | None = None) -> None:
        first = source.line_at(0)
        if len(first) == source.size:
            raise RecordingError(f"{name} is no recording, or its first line is not complete: it cannot be read")
        try:
            line = load(first)
        except BadLine:
            raise RecordingError(f"{name} is no recording: its first line is no JSON object") from None
        self.name = name
        self.header: Header = read_header(line, name)
        self._source = source
        self._store = store = Store(source, name, self.header)
        self._groups = store.groups
        opening = Opening(store)
        opening.run(len(first) + 1, progress or (lambda stage, done, total: None))
        self.closed = opening.closed
        """It was ended properly: the last line is its `end`."""
        self.end: dict[str, Any] = opening.end
        """The `end` line: totals and the check sum of all bytes before it."""
        self.bookmarks = opening.bookmarks
        """(iteration, text) in the order in which they were set."""
        self.marks, self.ends, self.durations = self._groups.tables()
        """By iteration, from `first_step` on: bits of `Mark`, and seconds."""
        store.ends = self.ends
        if not self.closed:
            self.notes.append(f"it was not ended: the last record is {self.first_seq + self.num_records - 1}")

    @classmethod
    def open(cls, path: str | Path, progress: Progress | None = None) -> Recording:
        """RecordingError when it is no recording, of a newer version, or cannot be read.

        progress: told (stage, bytes done, bytes in all) while a large file is opened.
        """
        path = Path(path)
        return cls(open_source(path), str(path), progress)

    @property
    def notes(self) -> list[str]:
        """What a person should know: bytes that were ignored, check sums that disagree, a missing end."""
        return self._store.notes

    def close(self) -> None:
        """Views handed out before can then no longer read prompts and answers."""
        self._source.close()

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        return self.header.info

    @property
    def first_seq(self) -> int:
        return self._groups.all[0].seq if self._groups.all else self.header.first_seq

    @property
    def num_records(self) -> int:
        last = self._groups.all[-1] if self._groups.all else None
        return last.seq + last.records - self.first_seq if last is not None else 0

    @property
    def first_step(self) -> int:
        """The first iteration in it; above `last_step` when there is none."""
        return self._groups.first_step

    @property
    def last_step(self) -> int:
        last = self._groups.all[-1] if self._groups.all else None
        return last.step + last.steps if last is not None else 0

    @property
    def num_requests(self) -> int:
        last = self._groups.all[-1] if self._groups.all else None
        return last.first_request + last.requests if last is not None else 0

    @property
    def size(self) -> int:
        """Bytes of the plain recording."""
        return self._source.size

    # ---- reading ----------------------------------------------------------------------------------

    def seq_of(self, step: int) -> int:
        """Number of the record of an iteration. ValueError when it is not in here."""
        if not self.first_step <= step <= self.last_step:
            raise ValueError(f"iteration {step} is not in the recording: it has {self.first_step} to {self.last_step}")
        return self._groups.seq_of(step)

    def iterations(self, first_seq: int = 0, stop: int | None = None) -> Iterator[Iteration]:
        """Records from `first_seq` to before `stop`, in order, a group at a time. A bad line ends it, with a note."""
        end = self.first_seq + self.num_records
        stop = end if stop is None else min(stop, end)
        seq = max(first_seq, self.first_seq)
        while seq < stop:
            index = self._groups.of_seq(seq)
            group = self._groups.all[index]
            records = self._store.records(index)
            yield from records[seq - group.seq : stop - group.seq]
            if len(records) < group.records:
                return
            seq = group.seq + group.records

    def before(self, seq: int) -> tuple[EngineView, int]:
        """A view from which `seq` can be reached by folding, and the first record to fold: its group's.

        `last` of the view is None until then.
        """
        group = self._groups.all[self._groups.of_seq(seq)]
        return self._store.restore(group).view, group.seq

    def view_at(self, step: int) -> EngineView:
        """The state after an iteration. It is the caller's. RecordingError when it lies behind a bad line."""
        return self.view_after(self.seq_of(step))

    def view_after(self, seq: int) -> EngineView:
        """The state after a record."""
        with self._store.lock:
            index = self._groups.of_seq(seq)
            group = self._groups.all[index]
            records = self._store.cache.get(index)
            if records is not None and len(records) > seq - group.seq:
                self._store.cache.move_to_end(index)
                view = self._store.restore(group).view
                for it in records[: seq - group.seq + 1]:
                    view.apply(it)
                return view
            decoder, records = self._store.decode(group, seq)
            if not records or records[-1].seq != seq:
                raise RecordingError(f"{self.name}: record {seq} cannot be read; {self.notes[-1]}")
            self._store.keep(index, records)
            return decoder.track.view

    def window(self, first_step: int, last_step: int) -> tuple[EngineView, list[Iteration]]:
        """The state before an iteration's record, and the records from there to that of `last_step`."""
        first, last = self.seq_of(first_step), self.seq_of(last_step)
        with self._store.lock:
            view, at = self.before(first)
            records = self._store.between(at, last + 1)
            for it in records[: first - at]:
                view.apply(it)
            return view, records[first - at :]

    def number_of(self, view: EngineView, id: str) -> int | None:
        """Place of a request of one of these views in the order of all arrivals, from 0; None: not known."""
        requests = view.requests
        return requests.number_of(id) if isinstance(requests, LazyRequests) else None

    def record_at(self, step: int) -> Iteration:
        """The record of an iteration. RecordingError when it lies behind a bad line."""
        seq = self.seq_of(step)
        for it in self.iterations(seq, seq + 1):
            return it
        raise RecordingError(f"{self.name}: record {seq} cannot be read; {self.notes[-1]}")

    def next_mark(self, step: int, direction: int, bits: int) -> int | None:
        """The nearest iteration before (-1) or after (1) a step that has one of these marks (see `Mark`)."""
        place = step - self.first_step
        part = self.marks[: max(0, place)] if direction < 0 else self.marks[max(0, place + 1) :]
        found = np.flatnonzero(part & bits)
        if not len(found):
            return None
        return self.first_step + (int(found[-1]) if direction < 0 else max(0, place + 1) + int(found[0]))

    def arrivals(self) -> Iterator[Arrived]:
        """Every request that arrived, in order, with its prompt. No record is decoded."""
        for number in range(self.num_requests):
            arrived = self._store.arrival(number)
            prompt = arrived.prompt_ids
            yield arrived._replace(prompt_ids=prompt.read()) if isinstance(prompt, LazyTuple) else arrived

    def tokens_of(self, view: EngineView, id: str) -> tuple[list[int], str]:
        """Output tokens and text of a request, as far as the view has seen it."""
        request = view.requests[id]
        return list(request.token_ids), "".join(request.pieces)

    # ---- group by group ---------------------------------------------------------------------------

    @property
    def groups(self) -> Sequence[Group]:
        return self._groups.all

    def before_group(self, index: int) -> tuple[EngineView, int]:
        """The state that a group's keyframe tells, and its first record. RecordingError when it cannot be read."""
        group = self._groups.all[index]
        return self._store.restore(group).view, group.seq

    def records_of(self, index: int) -> list[Iteration]:
        """All records of a group; fewer, with a note, when a line is bad."""
        return self._store.records(index)

    def plain(self, start: int, stop: int) -> bytes:
        """Bytes of the plain recording."""
        return self._source.read(start, stop)

    def parts(self) -> tuple[list[int], list[int], list[bytes]]:
        """Where groups begin in the plain file (the first begins at 0, what follows the last one counts as one), the
        places of their index lines, and those lines. For packing.
        """
        starts, offsets, lines = [0], [], []
        for group in self._groups.all:
            starts.append(group.start)
            begin, stop = group.ix
            line = self._source.read(begin, stop)
            if line.startswith(PREFIX[1:]):
                offsets.append(begin)
                lines.append(line)
                starts.append(stop + 1)
        return sorted({start for start in starts if start < self.size}), offsets, lines
