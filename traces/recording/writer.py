"""`Recorder`: writes a recording while a run goes on, in the thread that makes the records.

Invariant: every record is on its way to the disk, as one unbuffered write of whole lines, before the next iteration
begins: a process that is killed loses at most the line it was writing. Memory does not grow with the run.
An error (a full disk) ends the recording and not the run: it is raised once, and then nothing is written any more.
Every group of records begins with a keyframe and ends with an `ix` line, so a file needs no index beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
from pathlib import Path
from typing import Any

from engine.records import Iteration
from engine.request import RequestStatus
from engine.view import EngineView, RequestView
from traces.errors import RecordingError
from traces.recording.encode import Encoder
from traces.recording.groups import Summary
from traces.recording.header import Header, begun_at
from traces.recording.ints import pack
from traces.recording.keyframe import keyframe
from traces.recording.lines import dump
from traces.recording.marks import Marks
from traces.recording.requests import request_lines
from traces.recording.strip import strip_arrived
from traces.recording.times import Units, to_units
from traces.recording.track import Track

KEY_EVERY = 128
KEY_LEAST = 16
"""Records between two keyframes at least, however often knobs change."""
MANY_ARRIVALS = 512
"""In one group, after which the next keyframe comes soon: reading them takes long."""
SUFFIX = ".wbrec.jsonl"


class Recorder:
    """Feed it every record of a run, in order."""

    def __init__(
        self,
        path: str | Path,
        header: Header,
        *,
        tokens: bool = True,
        view: EngineView | None = None,
        force: bool = False,
    ) -> None:
        """Opens the file at once. RecordingError when it cannot be written, or is there and not to be overwritten.

        tokens: False leaves all prompts, tokens and texts out; lengths stay.
        view: the state before the first record, for a recording that begins in the middle of a run; it is folded on.
        force: overwrite an existing file.
        """
        self.path = Path(path)
        config = header.info.config
        if view is None:
            view = EngineView(config.num_blocks, config.block_size, config.values())
        self.header = begun_at(header, view.seq + 1, tokens=tokens)
        self.fault: str | None = None
        """Why nothing is written any more."""
        self.bytes = 0
        self.records = 0
        self.closed = False
        self._requests = 0
        self._last_index = -1
        """Where the last `ix` line is."""
        self._lock = threading.Lock()
        self._sha = hashlib.sha256()
        self._marks = Marks()
        self._encoder = Encoder(Track(view), tokens=tokens)
        self._encoder.track.begin_group(to_units(view.last.t_end) if view.last is not None else 0)
        self._knobs = config.values()
        self._since = 0
        self._soon = False
        self._fd: int | None = _open(self.path, force)
        try:
            data = dump(self.header.line())
            if view.seq >= 0:
                data += self._prelude(len(data))
            self._begin_group(len(data))
            self._write(data + dump(keyframe(self._encoder, self._knobs)))
        except OSError as problem:
            self._give_up(problem)
            raise RecordingError(self.fault or "") from None

    @property
    def next_seq(self) -> int:
        """The record it waits for."""
        return self._encoder.track.view.seq + 1

    def add(self, it: Iteration) -> None:
        """Write the next record. RecordingError when that fails, once; nothing is done after it, or after `close`.

        ValueError when a record is missing or repeated.
        """
        with self._lock:
            if self._fd is None:
                return
            if it.seq != self.next_seq:
                raise ValueError(f"record {it.seq} cannot follow record {self.next_seq - 1} in a recording")
            try:
                self._write(self._lines(it))
            except Exception as problem:  # whatever it is, the run is worth more than its recording
                self._give_up(problem)
                raise RecordingError(self.fault or "") from problem
            self.records += 1

    def mark(self, step: int, text: str = "") -> None:
        """Write a bookmark. Any thread may; RecordingError as from `add`."""
        with self._lock:
            if self._fd is None:
                return
            self._summary.bookmarks.append((step, text))
            try:
                self._write(dump({"k": "mark", "s": step, "text": text}))
            except OSError as problem:
                self._give_up(problem)
                raise RecordingError(self.fault or "") from None

    def close(self) -> None:
        """End the recording properly; again, or after a fault, it does nothing. RecordingError when that fails."""
        with self._lock:
            if self._fd is None:
                return
            view = self._encoder.track.view
            data = dump(self._summary.line())
            end: dict[str, Any] = {
                "k": "end", "n": self.records, "i": view.seq, "s": view.step, "requests": self._requests,
                "bytes": self.bytes + len(data), "sha256": "",
            }  # fmt: skip
            sha = self._sha.copy()
            sha.update(data)
            end["sha256"] = sha.hexdigest()
            try:
                self._write(data + dump(end))
                os.close(self._fd)
            except OSError as problem:
                self._give_up(problem)
                raise RecordingError(self.fault or "") from None
            self._fd, self.closed = None, True

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside -----------------------------------------------------------------------------------

    def _lines(self, it: Iteration) -> bytes:
        """All that is to be written with a record."""
        data = b""
        if self._since >= KEY_EVERY or (self._soon and self._since >= KEY_LEAST):
            self._last_index = self.bytes
            data = dump(self._summary.line())
            self._begin_group(self.bytes + len(data))
            data += dump(keyframe(self._encoder, self._knobs))
        encoder, summary = self._encoder, self._summary
        line = encoder.record(it)
        if it.arrived or encoder.pieces:
            at = self.bytes + len(data)
            for arrived, lines in zip(it.arrived, encoder.requests, strict=True):
                summary.arrived(arrived.id, at)
                at += len(lines)
            if encoder.pieces:
                summary.said(at)
            data += b"".join([*encoder.requests, encoder.pieces])
            self._requests += len(it.arrived)
        summary.add(it, self._marks.add(it))
        self._since += 1
        if it.knobs or it.rebuilt is not None or len(summary.ids) > MANY_ARRIVALS:
            self._soon = True
        return data + line

    def _begin_group(self, offset: int) -> None:
        encoder = self._encoder
        track = encoder.track
        end: Units = track.end
        track.begin_group(end)
        self._summary = Summary(
            offset, track.view.seq + 1, track.view.step, encoder.numbers.next, end, self._last_index
        )
        self._since, self._soon = 0, False

    def _prelude(self, offset: int) -> bytes:
        """Live requests of a run that goes on already, in a group of their own that holds no record."""
        encoder = self._encoder
        view = encoder.track.view
        summary = Summary(offset, view.seq + 1, view.step, 0, encoder.track.end)
        parts: list[bytes] = []
        at = offset
        for request in view.requests.values():
            if request.status is RequestStatus.FINISHED:
                continue
            number = encoder.numbers.give(request.id)
            data = b"".join(map(dump, _living(number, request, tokens=encoder.tokens)))
            summary.arrived(request.id, at)
            at += len(data)
            parts.append(data)
        self._last_index = at
        parts.append(dump(summary.line()))
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        done = os.write(self._fd, data)
        while done < len(data):  # a disk that fills up takes a part first
            done += os.write(self._fd, data[done:])
        self._sha.update(data)
        self.bytes += len(data)

    def _give_up(self, problem: Exception) -> None:
        why = problem.strerror if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"
        self.fault = f"{self.path} cannot be written: {why or problem}; the recording ends here"
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None


def _living(number: int, request: RequestView, *, tokens: bool) -> list[dict[str, Any]]:
    """The lines of a request that has been there before the recording, with what it has said."""
    from engine.records import Arrived

    arrived = Arrived(
        request.id, request.client, request.priority, request.arrival, tuple(request.prompt_ids), request.prompt_text,
        request.max_tokens, request.sampling, request.deadline, request.expected_output, request.params,
        request.session, request.after, request.delay,
    )  # fmt: skip
    lines = request_lines(number, arrived if tokens else strip_arrived(arrived), tokens=tokens)
    if request.token_ids:
        said: dict[str, Any] = {
            "k": "had", "r": number, "s": list(request.token_steps), "e": [to_units(t) for t in request.token_times],
        }  # fmt: skip
        if tokens:
            said["tok"], said["text"] = pack(request.token_ids), list(request.pieces)
        lines.append(said)
    return lines


def check_path(path: Path) -> None:
    """What can be known before there is an engine: RecordingError when nothing can be written there."""
    if path.exists():
        raise RecordingError(_there(path))
    if not path.parent.is_dir():
        raise RecordingError(f"{path} cannot be written: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise RecordingError(f"{path} cannot be written: the folder {path.parent} may not be written to")


def _there(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; give a file"
    return f"{path} is there already; give another name, or remove it first"


def _open(path: Path, force: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        if path.is_dir():
            raise RecordingError(_there(path))
        fd = os.open(path, flags | (os.O_TRUNC if force else os.O_EXCL), 0o644)
    except FileExistsError:
        raise RecordingError(_there(path)) from None
    except OSError as problem:
        raise RecordingError(f"{path} cannot be written: {problem.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode) and not force:
        os.close(fd)
        raise RecordingError(f"{path} is no ordinary file; give a file")
    return fd
