"""`workbench run --headless`: the engine in the main thread, no screen, results at the end.

Invariant: stdout carries the summary and nothing else. Arrivals hold their schedule: each request is due when its
row says, however far the engine lags, and its latency counts from there.
Ctrl-C or SIGTERM ends the run after the iteration that is running and prints the summary of what was done.
`--out` lines are appended to `.FILE.part` as requests end, in that order, and the file gets its name at the end of
the run (also of an interrupted one): a file of that name is always whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from engine.clock import VirtualClock
from engine.errors import WorkbenchError
from traces.errors import RecordingError
from traces.metrics import Metrics, RequestRow
from traces.places import beside, is_direct, open_direct
from workbench.log import write_fault
from workbench.model.progress import Progress, clock_text
from workbench.say import StatusLine, error, say
from workbench.session import start_at

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.host import EngineInfo
    from engine.records import Iteration
    from engine.request import Request
    from traces.recording import Recorder
    from traces.slo import Slo

NAP = 0.1
"""Longest sleep in seconds: an interrupt is answered this soon."""
STUCK = 1000
"""Steps without effect, and with nothing to wait for, after which the engine is taken for broken."""
FAULT = 1
UNWRITTEN = 2
SHOWN_REJECTIONS = 5


class Interrupt:
    """Counts SIGINT and SIGTERM instead of raising in the middle of an iteration. The second one ends at once."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def __enter__(self) -> Interrupt:
        self._old = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum = signum

    @property
    def exit_code(self) -> int:
        return 0 if self.signum is None else 128 + self.signum


class OutFile:
    """One JSON line per ended request; see the module for what is on disk when."""

    def __init__(self, path: Path) -> None:
        """Opens at once, so that a mistake in the name costs no model load."""
        self.path = path
        self._part: Path | None = None
        try:
            if path.is_dir():
                raise WorkbenchError(f"--out: {path} is a folder; give a file")
            if is_direct(path):
                self._file: IO[str] = TextIOWrapper(open_direct(path), encoding="utf-8")
            else:
                self._place = beside(path)
                self._part = self._place.with_name(f".{self._place.name}.part")
                self._file = self._part.open("w", encoding="utf-8")
        except OSError as problem:
            raise WorkbenchError(f"--out: {path} cannot be written: {problem.strerror}") from None

    def write(self, row: RequestRow) -> None:
        self._file.write(json.dumps(row.as_dict()) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def commit(self) -> None:
        self._file.flush()
        if self._part is not None:
            os.fsync(self._file.fileno())
            os.replace(self._part, self._place)
            self._part = None

    def close(self) -> None:
        """Without `commit`: nothing is left behind unless it holds rows."""
        with contextlib.suppress(OSError):  # what could not be written has been told
            self._file.close()
        if self._part is not None and self._part.exists() and self._part.stat().st_size == 0:
            self._part.unlink()


@contextlib.contextmanager
def out_file(path: Path | None) -> Iterator[OutFile | None]:
    if path is None:
        yield None
        return
    file = OutFile(path)
    try:
        yield file
    finally:
        file.close()


def run_headless(
    engine: Engine,
    info: EngineInfo,
    requests: list[Request],
    *,
    as_json: bool = False,
    out: OutFile | None = None,
    slo: Slo | None = None,
    definitions: bool = False,
    recorder: Recorder | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Serve `requests`, print the summary, return the exit code: 0, 1 after a fault, 130 / 143 when interrupted.

    The list is empty afterwards. On a virtual clock nobody sleeps.
    slo: what goodput is measured by. definitions: tell in full what every figure means.
    recorder: is given every record, and closed at the end.
    """
    metrics = Metrics(info, planned=len(requests), slo=slo)
    prompt_lens = {request.id: request.num_prompt for request in requests}
    start_at(requests, engine.clock.now())
    progress = Progress(requests, virtual=isinstance(engine.clock, VirtualClock))
    fault: str | None = None
    what = ""
    unwritten: OSError | None = None
    rejected = 0
    line = StatusLine()

    def take(it: Iteration) -> None:
        nonlocal rejected, unwritten
        progress.add(it)
        if recorder is not None:
            try:
                recorder.add(it)
            except RecordingError as problem:  # told once; the run goes on
                line.clear()
                say(str(problem))
        rows = list(metrics.add(it))
        for row in rows:
            if row.prompt_len is None:
                row.prompt_len = prompt_lens.get(row.id)
        if out is not None and rows and unwritten is None:
            try:
                for row in rows:
                    out.write(row)
                out.flush()
            except OSError as problem:  # the run is worth more than the file: go on, and tell at the end
                unwritten = problem
        for refused in it.rejected:
            rejected += 1
            if rejected <= SHOWN_REJECTIONS and it.fault is None:
                line.clear()
                say(f"rejected {refused.id}: {refused.reason}")
        for notice in it.notices:
            line.clear()
            say(notice)

    with Interrupt() as interrupt:
        try:
            for request in requests:
                engine.submit(request)
            requests.clear()  # each is forgotten when it has ended: the prompts of a long trace are many
            for it in _iterations(engine, interrupt, sleep):
                take(it)
                if line.due:
                    line.show(_status(metrics, progress, it))
        except Exception as problem:  # whatever it is, what was measured so far is still told
            fault = traceback.format_exc()
            what = f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
            take(engine.fault_record(fault))
        finally:
            line.clear()
            if recorder is not None:
                with contextlib.suppress(RecordingError):  # `recorder.fault` tells
                    recorder.close()
        summary = {**metrics.summary(), "interrupted": interrupt.signum is not None}
        if out is not None and unwritten is None:
            try:
                out.commit()
            except OSError as problem:
                unwritten = problem
    print_summary(summary, as_json=as_json, definitions=definitions)
    if fault is not None:
        error(f"the engine stopped with a fault ({what}); the traceback is in {write_fault(fault)}")
        return FAULT
    if unwritten is not None:
        assert out is not None
        error(f"--out: {out.path} could not be written: {unwritten.strerror or unwritten}; the summary is complete")
        return UNWRITTEN
    if recorder is not None and recorder.fault is not None:
        error(f"--record: {recorder.fault}; the summary is complete")
        return UNWRITTEN
    if recorder is not None:
        say(f"recorded into {recorder.path}; workbench replay plays it")
    if interrupt.signum is not None:
        say(f"interrupted: {summary['requests']['unfinished']} requests were not finished")
    return interrupt.exit_code


def _iterations(engine: Engine, interrupt: Interrupt, sleep: Callable[[float], None]) -> Iterator[Iteration]:
    """Records until there is no work left, sleeping through the gaps between arrivals."""
    stuck = 0
    while interrupt.signum is None:
        it = engine.step()
        if it is not None:
            stuck = 0
            yield it
            continue
        if not engine.has_work():
            return
        due = engine.next_event()
        if due is not None:
            if isinstance(engine.clock, VirtualClock):
                engine.clock.advance_to(due)
            else:
                sleep(min(max(due - engine.clock.now(), 0.0), NAP))
            continue
        stuck += 1
        if stuck > STUCK:
            raise RuntimeError(f"the engine has work and did nothing {STUCK} times in a row")


def _status(metrics: Metrics, progress: Progress, it: Iteration) -> str:
    wall = metrics.wall_s
    speed = f"{metrics.output_tokens / wall:.0f}" if wall else "-"
    return (
        f"{progress.bar()} {metrics.ended}/{metrics.planned} ended · {progress.position(it.t_end)} · "
        f"{len(it.running)} run {it.num_waiting} wait · {speed} tok/s · ETA {clock_text(progress.eta(it.t_end))}"
    )


def print_summary(summary: dict[str, Any], *, as_json: bool = False, definitions: bool = False) -> None:
    """On stdout: tables, or one JSON object; with their definitions in full (a key `definitions`) if asked."""
    if as_json:
        if definitions:
            from traces.definitions import as_dict

            summary = {**summary, "definitions": as_dict()}
        print(json.dumps(summary), flush=True)
        return
    from rich.console import Console

    from workbench.summary import summary_tables

    console = Console()
    for table in summary_tables(summary, definitions):
        console.print(table)
