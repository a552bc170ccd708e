"""Pictures of the screen as text and SVG, to look at: python -m tests.workbench.look W H STEPS [keys...]"""

from __future__ import annotations

import asyncio
import sys

from tests.workbench.scripted import busy_host
from workbench.app import Options, WorkbenchApp
from workbench.model.session import Session
from workbench.screens.live import LiveScreen


async def main(width: int, height: int, steps: int, keys: list[str]) -> None:
    host = busy_host()
    app = WorkbenchApp(lambda progress: Session(host, lambda text: [ord(c) for c in text]), Options(fps=0))
    async with app.run_test(size=(width, height)) as pilot:
        for _ in range(100):
            if isinstance(app.screen, LiveScreen):
                break
            await pilot.pause(0.02)
        assert isinstance(app.screen, LiveScreen), app.screen
        host.advance(steps)
        app.screen.tick()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause(0.1)
        app.save_screenshot("/tmp/look.svg")
        print("\n".join(strip.text for strip in app.screen._compositor.render_strips()))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
