"""Run the application over a scripted host, ticked by the test and by nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from tests.workbench.scripted import ScriptedHost, busy_host
from workbench.app import Options, WorkbenchApp
from workbench.glyphs import Mode
from workbench.model.session import Session
from workbench.screens.live import LiveScreen

WIDE, SMALL = (120, 40), (80, 24)


def encode(text: str) -> list[int]:
    return [ord(c) % 1000 for c in text]


class Driven(NamedTuple):
    app: WorkbenchApp
    pilot: Pilot[None]
    host: ScriptedHost
    live: LiveScreen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()
        self.live.tick()
        await self.pilot.pause()

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        for _ in range(100):
            if self.live.board.size == (width, height):
                break
            await self.pilot.pause(0.01)
        self.live.tick()
        await self.pilot.pause()

    async def run(self, steps: int) -> None:
        self.host.advance(steps)
        self.live.tick()
        await self.pilot.pause()

    def text(self) -> str:
        return "\n".join(self.lines())

    def colours(self) -> set[object]:
        """All colours on the screen but the terminal's own."""
        styles = [segment.style for strip in self.app.screen._compositor.render_strips() for segment in strip]
        colours = {colour for style in styles if style is not None for colour in (style.color, style.bgcolor)}
        return {colour for colour in colours if colour is not None and not colour.is_default}

    def lines(self) -> list[str]:
        return [strip.text for strip in self.app.screen._compositor.render_strips()]


@asynccontextmanager
async def driven(
    size: tuple[int, int] = WIDE,
    host: ScriptedHost | None = None,
    *,
    steps: int = 60,
    encode: Callable[[str], list[int]] = encode,
    screenshots: Path = Path("."),
    glyphs: Mode = Mode.COLOUR,
) -> AsyncIterator[Driven]:
    host = host or busy_host()
    app = WorkbenchApp(lambda progress: Session(host, encode), Options(fps=0, screenshots=screenshots, glyphs=glyphs))
    async with app.run_test(size=size) as pilot:
        live = await live_screen(app, pilot)
        here = Driven(app, pilot, host, live)
        await here.run(steps)
        yield here


async def live_screen(app: WorkbenchApp, pilot: Pilot[None]) -> LiveScreen:
    for _ in range(200):
        if isinstance(app.screen, LiveScreen) and app.screen.is_mounted:
            await pilot.pause()
            return app.screen
        await pilot.pause(0.02)
    raise AssertionError(f"no live screen: {app.screen}")
