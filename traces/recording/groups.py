"""Groups: a keyframe and the records up to the next. An `ix` line at a group's end says what is in it.

    o offset of the keyframe line · p offset of the `ix` line before, -1: none
    i first record · n records · s iteration before · st iterations · r first request · nr requests
    ids, q ids of the requests that arrived, and the offsets of their lines · voc offsets of `voc` lines · bm bookmarks
    x records (from i on) that ran nothing · m marks by iteration, the one before first · e ends · du durations

Offsets in lists count from `o`. Times are base 64 of 32-bit nanoseconds (ends: since the end before), or a list
of seconds where one does not fit. A file is opened by its `ix` lines alone.
"""

from __future__ import annotations

import binascii
import itertools
from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from engine.records import Iteration
from traces.recording.lines import BadLine
from traces.recording.marks import StepMark
from traces.recording.times import Units, to_units

PREFIX = b'\n{"k":"ix"'


class Summary:
    """An `ix` line while its group grows."""

    def __init__(self, offset: int, seq: int, step: int, first_request: int, end: Units, previous: int = -1) -> None:
        """previous: offset of the `ix` line before."""
        self.offset = offset
        self._previous = previous
        self.seq, self.step, self.first_request = seq, step, first_request
        self.records = 0
        self.ids: list[str] = []
        self.at: list[int] = []
        self.pieces: list[int] = []
        self.bookmarks: list[tuple[int, str]] = []
        self._base = end
        self._idle: list[int] = []
        self._marks = bytearray(1)
        self._ends: list[float] = []
        self._durations: list[float] = []

    def add(self, it: Iteration, mark: StepMark) -> None:
        if it.scheduled:
            self._marks.append(0)
            self._ends.append(it.t_end)
            self._durations.append(it.t_end - it.t_start)
        else:
            self._idle.append(self.records)
        self.records += 1
        place = mark.step - self.step
        if 0 <= place < len(self._marks):
            self._marks[place] |= mark.bits

    def arrived(self, id: str, offset: int) -> None:
        self.ids.append(id)
        self.at.append(offset - self.offset)

    def said(self, offset: int) -> None:
        self.pieces.append(offset - self.offset)

    def line(self) -> dict[str, Any]:
        line: dict[str, Any] = {
            "k": "ix", "o": self.offset, "p": self._previous, "i": self.seq, "n": self.records,
            "s": self.step, "st": len(self._ends),
            "r": self.first_request, "nr": len(self.ids), "t": self._base,
            "m": binascii.b2a_base64(self._marks, newline=False).decode("ascii"),
            "e": self._packed_ends(), "du": _packed([round(one * 1e9) for one in self._durations], self._durations),
        }  # fmt: skip
        if self._idle:
            line["x"] = self._idle
        if self.bookmarks:
            line["bm"] = [list(one) for one in self.bookmarks]
        if self.pieces:
            line["voc"] = self.pieces
        if self.ids:
            line["ids"], line["q"] = self.ids, self.at
        return line

    def _packed_ends(self) -> str | list[float]:
        units = [self._base, *map(to_units, self._ends)]
        whole = [one for one in units if isinstance(one, int)]
        if len(whole) < len(units):
            return self._ends
        return _packed([b - a for a, b in itertools.pairwise(whole)], self._ends)


def _packed(whole: list[int], seconds: list[float]) -> str | list[float]:
    try:
        return binascii.b2a_base64(np.array(array("I", whole), "<u4").tobytes(), newline=False).decode("ascii")
    except OverflowError:
        return seconds


class _Ix(msgspec.Struct):
    """What opening needs of an `ix` line; the rest is skipped unread."""

    o: int
    i: int
    n: int
    s: int
    st: int
    r: int
    nr: int
    t: int | float | str
    m: str
    e: str | list[float]
    du: str | list[float]
    x: list[int] = []
    voc: list[int] = []
    bm: list[tuple[int, str]] = []


class Arrivals(msgspec.Struct):
    ids: list[str] = []
    q: list[int] = []


_ix = msgspec.json.Decoder(_Ix)
_arrivals = msgspec.json.Decoder(Arrivals)


class Group:
    """One group as its `ix` line tells."""

    __slots__ = ("_arrivals", "bookmarks", "end", "first_request", "idle", "ix", "pieces", "records", "requests",
                 "seq", "start", "step", "steps")  # fmt: skip

    def __init__(self, ix: _Ix, at: int, length: int) -> None:
        self.start, self.end = ix.o, at
        """Its lines, from the keyframe to before the `ix` line."""
        self.ix = (at, at + length)
        self.seq, self.records = ix.i, ix.n
        self.step, self.steps = ix.s, ix.st
        self.first_request, self.requests = ix.r, ix.nr
        self.idle = ix.x
        self.pieces = ix.voc
        self.bookmarks = ix.bm
        self._arrivals: Arrivals | None = None

    def arrivals(self, read: Callable[[], bytes]) -> Arrivals:
        """Ids and line offsets of its arrivals. read: gives the `ix` line, when it is asked for the first time."""
        if self._arrivals is None:
            self._arrivals = _read_arrivals(read(), self.requests)
        return self._arrivals

    def know(self, ids: list[str], places: list[int]) -> None:
        """Its arrivals, where no `ix` line is in the file."""
        self._arrivals = Arrivals(ids, places)


def _read_arrivals(line: bytes, count: int) -> Arrivals:
    try:
        found = _arrivals.decode(line)
    except (msgspec.DecodeError, ValueError):
        raise BadLine("is no index of arrivals") from None
    if not len(found.ids) == len(found.q) == count:
        raise BadLine("has not as many ids and places as arrivals")
    return found


class Groups:
    """All groups of a file, with the tables by iteration that `ix` lines make."""

    def __init__(self) -> None:
        self.all: list[Group] = []
        self._seqs: list[int] = []
        self._steps: list[int] = []
        self._requests: list[int] = []
        self._marks: list[np.ndarray] = []
        self._ends: list[np.ndarray] = []
        self._durations: list[np.ndarray] = []
        self._first_bits: list[tuple[int, int]] = []

    def add(self, line: bytes, at: int) -> Group:
        """The next group. BadLine when the line does not follow the one before."""
        try:
            ix = _ix.decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise BadLine("is no index line") from None
        last = self.all[-1] if self.all else None
        if last is not None and (
            ix.i != last.seq + last.records
            or ix.s != last.step + last.steps
            or ix.r != last.first_request + last.requests
        ):
            raise BadLine("does not follow the group before")
        if not 0 <= ix.o <= at or ix.n < ix.st or ix.st < 0 or ix.nr < 0 or len(ix.x) != ix.n - ix.st:
            raise BadLine("counts wrongly")
        try:
            marks = np.frombuffer(binascii.a2b_base64(ix.m), np.uint8)
            ends = _ends(ix)
            durations = _seconds(ix.du)
        except ValueError as error:
            raise BadLine(f"tells no times: {error}") from None
        if not len(marks) - 1 == len(ends) == len(durations) == ix.st:
            raise BadLine("has not as many times as iterations")
        group = Group(ix, at, len(line))
        self._first_bits.append((ix.s - self.all[0].step if self.all else 0, int(marks[0])))
        self.all.append(group)
        self._seqs.append(group.seq)
        self._steps.append(group.step)
        self._requests.append(group.first_request)
        self._marks.append(marks[1:])
        self._ends.append(ends)
        self._durations.append(durations)
        return group

    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(marks, ends, durations) by iteration, the first at index 0. Ends and durations in seconds."""
        if not self.all:
            return np.zeros(0, np.uint8), np.zeros(0), np.zeros(0)
        marks = np.concatenate(self._marks)
        for place, bits in self._first_bits:
            if bits and 0 < place <= len(marks):
                marks[place - 1] |= bits
        return marks, np.concatenate(self._ends), np.concatenate(self._durations)

    @property
    def first_step(self) -> int:
        """The first iteration in it."""
        return self.all[0].step + 1 if self.all else 1

    def recent_durations(self, count: int) -> list[float]:
        """Of the last iterations, oldest first."""
        found: list[float] = []
        for durations in reversed(self._durations):
            found = [*durations[-(count - len(found)) :].tolist(), *found]
            if len(found) >= count:
                break
        return found

    def of_seq(self, seq: int) -> int:
        """Index of the group that holds a record."""
        return bisect_right(self._seqs, seq) - 1

    def of_step(self, step: int) -> int:
        """Index of the group that holds an iteration: the last one that begins before it."""
        return bisect_right(self._steps, step - 1) - 1

    def of_request(self, number: int) -> int:
        """Index of the group in which a request arrived."""
        return bisect_right(self._requests, number) - 1

    def seq_of(self, step: int) -> int:
        """Number of the record of an iteration."""
        group = self.all[self.of_step(step)]
        place = step - group.step - 1
        for idle in group.idle:
            if idle > place:
                break
            place += 1
        return group.seq + place


def _ends(ix: _Ix) -> np.ndarray:
    if isinstance(ix.e, list):
        return np.array(ix.e, np.float64)
    if type(ix.t) is not int:
        raise ValueError("no whole time before")
    steps = np.frombuffer(binascii.a2b_base64(ix.e), "<u4").astype(np.int64)
    return (np.cumsum(steps) + ix.t) / 1e9


def _seconds(packed: str | list[float]) -> np.ndarray:
    if isinstance(packed, list):
        return np.array(packed, np.float64)
    return np.frombuffer(binascii.a2b_base64(packed), "<u4") / 1e9
