"""Pictures of a screen without a terminal: SVG of a recording as it stood at a step.

The real screen is driven by Textual without a terminal, so a picture shows what a person would have seen.
The SVG asks the network for nothing: its letters are those of the machine that shows it.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine.errors import WorkbenchError
from traces.exports.target import check_target, open_target, writing
from workbench.app import Options, WorkbenchApp
from workbench.glyphs import Mode
from workbench.model.session import Session
from workbench.playing import session_of
from workbench.screens.live import LiveScreen

if TYPE_CHECKING:
    from traces.recording import Recording

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
    recording: Recording,
    out: Out,
    *,
    step: int | None = None,
    size: tuple[int, int] = SIZE,
    glyphs: Mode = Mode.COLOUR,
    force: bool = False,
) -> None:
    """The screen of a recording, standing at a step; None: the last one.

    WorkbenchError when there is no such step, or the file cannot be written; nothing is written then.
    """
    check_target(out, force=force)
    first, last = recording.first_step, recording.last_step
    session = session_of(recording)
    if step is not None and not first <= step <= last:
        raise WorkbenchError(f"--step: there is no iteration {step}; the recording has {first} to {last}")
    svg = shoot(session, step=last if step is None else step, size=size, glyphs=glyphs)
    with open_target(out, force=force) as file, writing(out):
        file.write(svg)


def shoot(
    session: Session,
    *,
    step: int | None = None,
    size: tuple[int, int] = SIZE,
    glyphs: Mode = Mode.COLOUR,
) -> str:
    """SVG of the screen that belongs to a session, standing at `step` (None: where it opens)."""
    return asyncio.run(_shoot(session, step, size, glyphs))


async def _shoot(session: Session, step: int | None, size: tuple[int, int], glyphs: Mode) -> str:
    app = WorkbenchApp(lambda progress: session, Options(fps=0, glyphs=glyphs, every_colour=True))
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        until = time.monotonic() + READY_SECONDS
        while not (isinstance(app.screen, LiveScreen) and app.screen.is_mounted):
            if time.monotonic() > until or app.return_code is not None:
                raise RuntimeError("the screen did not open")
            await pilot.pause(0.02)
        live = app.screen
        await pilot.pause()
        live.tick()
        if step is not None:
            live.look_at(step)
        live.dirty()
        await pilot.pause()
        svg = app.export_screenshot(title="workbench")
    return FETCHED.sub("", svg)
