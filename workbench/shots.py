"""Pictures of a screen without a terminal: SVG of a run or a recording as it stood at a step.

The real screen is driven by Textual without a terminal, so a picture shows what a person would have seen.
The SVG asks the network for nothing: its letters are those of the machine that shows it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO

from engine.errors import WorkbenchError
from engine.host import EngineInfo, InFlight
from engine.records import Iteration
from traces.exports.target import check_target, open_target, writing
from workbench.app import Options, WorkbenchApp
from workbench.glyphs import Mode
from workbench.model.session import Session
from workbench.screens.live import LiveScreen

SIZE = (120, 40)
SMALLEST, LARGEST = (40, 12), (500, 200)
FETCHED = re.compile(r',?\s*url\("https?://[^"]*"\) format\("[^"]*"\)')
READY_SECONDS = 30.0
Out = Path | IO[str]


def read_size(text: str) -> tuple[int, int]:
    """Columns and rows of `120x40`. WorkbenchError when it is none, or no size a screen can have."""
    found = re.fullmatch(r"(\d{1,4})[xX×](\d{1,4})", text.strip())
    if found is None:
        raise WorkbenchError(f"--size: {text!r} is no size; give columns and rows, such as 120x40")
    size = int(found[1]), int(found[2])
    if not all(low <= value <= high for low, value, high in zip(SMALLEST, size, LARGEST, strict=True)):
        raise WorkbenchError(
            f"--size: {text} is out of range, allowed: {SMALLEST[0]}x{SMALLEST[1]} to {LARGEST[0]}x{LARGEST[1]}"
        )
    return size


def write_shot(
    info: EngineInfo,
    iterations: Iterable[Iteration],
    out: Out,
    *,
    step: int | None = None,
    size: tuple[int, int] = SIZE,
    glyphs: Mode = Mode.COLOUR,
    force: bool = False,
) -> None:
    """The live screen after a step of a run; None: after the last record. Records must begin with the run.

    Records are taken up to the step and no further, and folded in one by one.
    WorkbenchError when there is no such step, or the file cannot be written; nothing is written then.
    """
    check_target(out, force=force)
    host = RecordsHost(info, iterations, step)
    svg = shoot(Session(host, lambda text: []), host.fed, size=size, glyphs=glyphs)
    if step is not None and step != host.last_step:
        raise WorkbenchError(f"there is no step {step}: the run has {host.last_step}")
    with open_target(out, force=force) as file, writing(out):
        file.write(svg)


def shoot(
    session: Session,
    ready: Callable[[], bool] = lambda: True,
    *,
    step: int | None = None,
    size: tuple[int, int] = SIZE,
    glyphs: Mode = Mode.COLOUR,
) -> str:
    """SVG of the screen that belongs to a session, ticked until `ready`, standing at `step` (None: where it opens)."""
    return asyncio.run(_shoot(session, ready, step, size, glyphs))


async def _shoot(
    session: Session, ready: Callable[[], bool], step: int | None, size: tuple[int, int], glyphs: Mode
) -> str:
    app = WorkbenchApp(lambda progress: session, Options(fps=0, glyphs=glyphs))
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        until = time.monotonic() + READY_SECONDS
        while not (isinstance(app.screen, LiveScreen) and app.screen.is_mounted):
            if time.monotonic() > until or app.return_code is not None:
                raise RuntimeError("the screen did not open")
            await pilot.pause(0.02)
        live = app.screen
        await pilot.pause()
        while True:
            live.tick()
            if ready():
                break
        if step is not None:
            live.look_at(step)
        live.dirty()
        await pilot.pause()
        svg = app.export_screenshot(title="workbench")
    return FETCHED.sub("", svg)


class RecordsHost:
    """An `EngineHost` whose records are there already; its clock is that of the last one handed out."""

    in_flight: InFlight | None = None

    def __init__(self, info: EngineInfo, iterations: Iterable[Iteration], step: int | None) -> None:
        """step: hand out nothing that came after it."""
        self.info = info
        self.alive = False
        self.last_step = 0
        self._time = 0.0
        self._fed = False
        self._records: Iterator[Iteration] = takewhile(lambda it: step is None or it.step <= step, iterations)

    def fed(self) -> bool:
        """All records have been handed out."""
        return self._fed

    def start(self) -> None:
        self.alive = True

    def post(self, command: object) -> None:
        """Nobody is there to obey."""

    def drain(self, limit: int | None = None) -> list[Iteration]:
        records: list[Iteration] = []
        while limit is None or len(records) < limit:
            it = next(self._records, None)
            if it is None:
                self._fed = True
                break
            records.append(it)
        if records:
            self._time, self.last_step = records[-1].t_end, records[-1].step
        return records

    def now(self) -> float:
        return self._time

    def stop(self, timeout: float = 1.0) -> bool:
        self.alive = False
        return True
