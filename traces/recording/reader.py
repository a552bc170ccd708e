"""`Recording`: a recording opened for reading, whole or cut anywhere, plain or packed.

Opening reads the `ix` lines and the last group; everything else is read when it is asked for. A group is decoded from
its keyframe, so any iteration is a keyframe and at most one group of records away.
Invariant: what comes before a bad line can be read; `notes` tell what is wrong with the rest. Records are equal to
those that were written (without tokens: to those without text).
Safe for several threads. Views that were handed out read from the file when they are asked for prompts and answers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.host import EngineInfo
from engine.knobs import KnobValue
from engine.records import Arrived, Iteration
from engine.view import EngineView
from traces.errors import RecordingError
from traces.recording.decode import Decoder
from traces.recording.groups import PREFIX, Group, Groups, Summary
from traces.recording.header import Header, read_header
from traces.recording.keyframe import Restored
from traces.recording.lazy import LazyTuple
from traces.recording.lines import BadLine, dump, load
from traces.recording.marks import SLOW_WINDOW, Marks
from traces.recording.requests import arrived_of
from traces.recording.source import Source, open_source
from traces.recording.times import to_seconds
from traces.recording.track import Track
from traces.recording.vocabulary import Vocabulary

KEEP_GROUPS = 8
"""Decoded groups that are kept: 128 records of 64 requests take about 5 MB."""
KEEP_ARRIVALS = 1 << 16
Progress = Callable[[str, int, int], None]


class Recording:
    """See the module. Steps count executed iterations from 1, records are numbered by `seq` from 0."""

    def __init__(self, source: Source, name: str, progress: Progress | None = None) -> None:
        self._source = source
        self.name = name
        self.notes: list[str] = list(source.notes)
        """What a person should know: bytes that were ignored, check sums that disagree, a missing end."""
        self.closed = False
        """It was ended properly: the last line is its `end`."""
        self.end: dict[str, Any] = {}
        """The `end` line: totals and the check sum of all bytes before it."""
        self.bookmarks: list[tuple[int, str]] = []
        """(iteration, text) in the order in which they were set."""
        self._lock = threading.RLock()
        self._cache: OrderedDict[int, list[Iteration]] = OrderedDict()
        self._known: OrderedDict[int, Arrived] = OrderedDict()
        self._groups = Groups()
        self._vocabulary = Vocabulary(self._all_pieces)
        self._before: dict[int, dict[int, float]] = {}
        first = source.line_at(0)
        if len(first) == source.size:
            raise RecordingError(f"{name} is no recording, or its first line is not complete: it cannot be read")
        try:
            line = load(first)
        except BadLine:
            raise RecordingError(f"{name} is no recording: its first line is no JSON object") from None
        self.header: Header = read_header(line, name)
        self._open(len(first) + 1, progress or (lambda stage, done, total: None))
        self.marks, self.ends, self.durations = self._groups.tables()
        if not self.closed:
            self.notes.append(f"it was not ended: the last record is {self.first_seq + self.num_records - 1}")

    @classmethod
    def open(cls, path: str | Path, progress: Progress | None = None) -> Recording:
        """RecordingError when it is no recording, of a newer version, or cannot be read.

        progress: told (stage, bytes done, bytes in all) while a large file is opened.
        """
        path = Path(path)
        return cls(open_source(path), str(path), progress)

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
        return self._groups.all[0].step + 1 if self._groups.all else 1

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
            records = self._records(index)
            yield from records[seq - group.seq : stop - group.seq]
            if len(records) < group.records:
                return
            seq = group.seq + group.records

    def before(self, seq: int) -> tuple[EngineView, int]:
        """A view from which `seq` can be reached by folding, and the first record to fold: its group's.

        `last` of the view is None until then.
        """
        group = self._groups.all[self._groups.of_seq(seq)]
        return self._restore(group).view, group.seq

    def view_at(self, step: int) -> EngineView:
        """The state after an iteration. It is the caller's. RecordingError when it lies behind a bad line."""
        return self.view_after(self.seq_of(step))

    def view_after(self, seq: int) -> EngineView:
        """The state after a record."""
        with self._lock:
            index = self._groups.of_seq(seq)
            group = self._groups.all[index]
            records = self._cache.get(index)
            if records is not None and len(records) > seq - group.seq:
                self._cache.move_to_end(index)
                view = self._restore(group).view
                for it in records[: seq - group.seq + 1]:
                    view.apply(it)
                return view
            decoder, records = self._decode(group, seq)
            if not records or records[-1].seq != seq:
                raise RecordingError(f"{self.name}: record {seq} cannot be read; {self.notes[-1]}")
            self._keep(index, records)
            return decoder.track.view

    def window(self, first_step: int, last_step: int) -> tuple[EngineView, list[Iteration]]:
        """The state before an iteration's record, and the records from there to that of `last_step`."""
        first, last = self.seq_of(first_step), self.seq_of(last_step)
        with self._lock:
            view, at = self.before(first)
            for it in self.iterations(at, first):
                view.apply(it)
            return view, list(self.iterations(first, last + 1))

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
            arrived = self.arrival(number)
            prompt = arrived.prompt_ids
            yield arrived._replace(prompt_ids=prompt.read()) if isinstance(prompt, LazyTuple) else arrived

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
        return self._restore(group).view, group.seq

    def records_of(self, index: int) -> list[Iteration]:
        """All records of a group; fewer, with a note, when a line is bad."""
        return self._records(index)

    def plain(self, start: int, stop: int) -> bytes:
        """Bytes of the plain recording."""
        return self._source.read(start, stop)

    # ---- for keyframes ----------------------------------------------------------------------------

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """At the start of the recorded engine."""
        return self.header.info.config.values()

    def names(self, numbers: Iterable[int]) -> list[str]:
        """Ids of requests."""
        out: list[str] = []
        group: Group | None = None
        ids: list[str] = []
        for number in numbers:
            if group is None or not 0 <= number - group.first_request < group.requests:
                group, ids, _ = self._arrived_in(number)
            out.append(ids[number - group.first_request])
        return out

    def arrival(self, number: int) -> Arrived:
        """A request as it arrived; its prompt is read when it is asked for."""
        with self._lock:
            known = self._known.get(number)
            if known is not None:
                return known
            offset = self._offset_of(number)
            raw = self._source.line_at(offset)
            line = load(raw)
            if line["k"] != "req" or line.get("r") != number:
                raise BadLine(f"is not request number {number}")
            arrived = arrived_of({**line, "pl": 0}, None)
            length = line.get("pl")
            if not isinstance(length, int) or length < 0:
                raise BadLine("tells no length of a prompt")
            if self.header.tokens:
                after = offset + len(raw) + 1
                text = self._prompt(after, number).get("text")
                prompt: Any = LazyTuple(length, lambda: self._prompt_ids(after, number))
                arrived = arrived._replace(prompt_ids=prompt, prompt_text=text)
            else:
                arrived = arrived_of(line, None)
            self._known[number] = arrived
            if len(self._known) > KEEP_ARRIVALS:
                self._known.popitem(last=False)
            return arrived

    def replaced_prompt(self, id: str, seq: int) -> tuple[int, ...]:
        for it in self.iterations(seq, seq + 1):
            if it.rebuilt is not None:
                return dict(it.rebuilt.prompts)[id]
        raise RecordingError(f"{self.name}: record {seq} tells no prompt of {id!r}")

    def times(self, steps: Sequence[int]) -> list[float]:
        first, ends = self.first_step, self.ends
        if steps and steps[0] < first:
            before = {step: end for table in self._before.values() for step, end in table.items()}
            return [float(ends[step - first]) if step >= first else before[step] for step in steps]
        return ends[np.asarray(steps, np.int64) - first].tolist() if steps else []

    def answer(self, number: int, id: str, steps: Sequence[int]) -> tuple[list[int], list[str]]:
        tokens: list[int] = []
        texts: list[str] = []
        first = self.first_step
        if steps and steps[0] < first:
            had = self._had(number)
            tokens += had[0]
            texts += had[1]
        wanted = [step for step in steps if step >= first]
        at = 0
        while at < len(wanted):
            index = self._groups.of_step(wanted[at])
            group = self._groups.all[index]
            last = group.step + group.steps
            inside = {step for step in wanted[at : at + group.steps] if step <= last}
            for it in self._records(index):
                if it.step in inside and it.scheduled:
                    for token in it.tokens:
                        if token.id == id:
                            tokens.append(token.token_id)
                            texts.append(token.text)
                            break
            at += len(inside)
        return tokens, texts

    # ---- inside -----------------------------------------------------------------------------------

    def _open(self, at: int, progress: Progress) -> None:
        """Read all index lines from `at` on, and decode groups that have none: the last one, or a damaged one."""
        size = self._source.size
        after: int | None = at
        while after is not None and after < size and not self.closed:
            after = self._open_tail(self._open_index(after, progress))
        progress("reading the index", size, size)

    def _open_index(self, at: int, progress: Progress) -> int:
        """Take in the groups that follow one another from `at` on; returns where the last one ends."""
        source, groups = self._source, self._groups
        for offset, line in source.index_lines(at):
            if not line.startswith(b'{"k":"ix","o":%d,' % at):
                break
            try:
                group = groups.add(line, offset)
            except BadLine:
                break
            self.bookmarks += group.bookmarks
            if len(groups.all) == 1:
                self._read_prelude(group)
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
        for offset, raw in self._source.lines(at):
            if not raw.endswith(b"\n"):
                self.notes.append(f"{len(raw)} bytes of an unfinished last line were ignored")
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
                    restored = Restored(line, self)
                    decoder = self._decoder(restored)
                    marks.prime(self._groups.recent_durations(SLOW_WINDOW))
                    summary = Summary(
                        offset, restored.view.seq + 1, restored.view.step, restored.next_number, restored.end
                    )
                    following = None
                    continue
                if decoder is None or summary is None:
                    if kind in ("req", "pid", "had"):
                        self._note_bad(offset, "comes before any keyframe")
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
                self._note_bad(offset, str(problem))
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
            group = self._groups.add(dump(summary.line()), end)
            group.know(summary.ids, summary.at)
            self.bookmarks += bookmarks
            self._tell(decoder)
        return following if following is not None and following > at else None

    def _take_end(self, line: dict[str, Any], offset: int) -> None:
        self.closed, self.end = True, line
        records = line.get("n")
        have = sum(group.records for group in self._groups.all)
        if records != have:
            self.notes.append(f"its end tells of {records} records, {have} are there")

    def _note_bad(self, offset: int, why: str) -> None:
        note = f"the line at byte {offset} {why}: what comes after it was not read"
        if note not in self.notes:
            self.notes.append(note)

    def _tell(self, decoder: Decoder | None) -> None:
        if decoder is not None and decoder.disagreement is not None:
            note = f"check sums disagree: {decoder.disagreement}"
            if note not in self.notes:
                self.notes.append(note)

    def _restore(self, group: Group) -> Restored:
        raw = self._source.line_at(group.start)
        try:
            line = load(raw)
            if line["k"] != "kf":
                raise BadLine("is no keyframe")
            return Restored(line, self)
        except BadLine as problem:
            self._note_bad(group.start, str(problem))
            raise RecordingError(
                f"{self.name}: the keyframe of records {group.seq} to {group.seq + group.records - 1} cannot be read"
            ) from None

    def _decoder(self, restored: Restored) -> Decoder:
        track = Track(restored.view)
        track.generation = restored.generation
        track.begin_group(restored.end)
        return Decoder(track, restored.names, self._vocabulary, tokens=self.header.tokens)

    def _decode(self, group: Group, last: int | None = None) -> tuple[Decoder, list[Iteration]]:
        """Records of a group, up to number `last`; fewer, with a note, when a line is bad."""
        decoder = self._decoder(self._restore(group))
        records: list[Iteration] = []
        lines = self._source.lines(group.start, group.end)
        next(lines)
        most = group.seq + group.records - 1 if last is None else last
        for offset, raw in lines:
            try:
                it = decoder.feed(load(raw))
            except BadLine as problem:
                self._note_bad(offset, str(problem))
                break
            if it is not None:
                records.append(it)
                if it.seq >= most:
                    break
        self._tell(decoder)
        return decoder, records

    def _records(self, index: int) -> list[Iteration]:
        """All records of a group; fewer when a line is bad."""
        with self._lock:
            records = self._cache.get(index)
            group = self._groups.all[index]
            if records is None or len(records) < group.records:
                try:
                    _, records = self._decode(group) if group.records else (None, [])
                except RecordingError:
                    records = []
                self._keep(index, records)
            else:
                self._cache.move_to_end(index)
            return records

    def _keep(self, index: int, records: list[Iteration]) -> None:
        self._cache[index] = records
        self._cache.move_to_end(index)
        while len(self._cache) > KEEP_GROUPS:
            self._cache.popitem(last=False)

    def _arrived_in(self, number: int) -> tuple[Group, list[str], list[int]]:
        """The group in which a request arrived, the ids of all that did, and the offsets of their lines."""
        at = self._groups.of_request(number) if type(number) is int else -1
        group = self._groups.all[at] if at >= 0 else None
        if group is None or not 0 <= number - group.first_request < group.requests:
            raise BadLine(f"names request number {number}, which has not arrived")
        found = group.arrivals(lambda: self._source.read(*group.ix))
        return group, found.ids, found.q

    def _offset_of(self, number: int) -> int:
        group, _, offsets = self._arrived_in(number)
        return group.start + offsets[number - group.first_request]

    def _prompt(self, offset: int, number: int) -> dict[str, Any]:
        line = load(self._source.line_at(offset))
        if line["k"] != "pid" or line.get("r") != number:
            raise BadLine(f"is not the prompt of request number {number}")
        return line

    def _prompt_ids(self, offset: int, number: int) -> tuple[int, ...]:
        try:
            return arrived_of({"id": "", "t": 0, "max": 0}, self._prompt(offset, number)).prompt_ids
        except BadLine as problem:
            raise RecordingError(f"{self.name}: the prompt of request number {number} {problem}") from None

    def _all_pieces(self) -> Iterator[dict[str, Any]]:
        for group in self._groups.all:
            for place in group.pieces:
                try:
                    line = load(self._source.line_at(group.start + place))
                except BadLine:
                    continue
                if line["k"] == "voc":
                    yield line

    def _read_prelude(self, group: Group) -> None:
        """What live requests had said before a recording that begins in the middle of a run."""
        if group.records or not self.header.first_seq:
            return
        for offset, raw in self._source.lines(group.start, group.end):
            try:
                line = load(raw)
                if line["k"] == "had":
                    ends = [to_seconds(one) for one in line["e"]]
                    self._before[line["r"]] = dict(zip(line["s"], ends, strict=True))
            except (BadLine, KeyError, TypeError, ValueError) as problem:
                self._note_bad(offset, str(problem))

    def _had(self, number: int) -> tuple[list[int], list[str]]:
        from traces.recording.ints import unpack
        from traces.recording.strip import UNKNOWN

        prelude = self._groups.all[0]
        for _, raw in self._source.lines(prelude.start, prelude.end):
            line = load(raw)
            if line["k"] == "had" and line["r"] == number:
                if "tok" not in line:
                    return [UNKNOWN] * len(line["s"]), [""] * len(line["s"])
                return unpack(line["tok"]), line["text"]
        return [], []
