"""The screen as text, to look at: python -m tests.workbench.look WIDTH HEIGHT STEPS [keys...]

With LOOK_DIR set, also as look.svg in that folder.
"""

from __future__ import annotations

import asyncio
import os
import sys

from engine.commands import Submit
from tests.workbench.scripted import ScriptedHost, traffic
from workbench.app import Options, WorkbenchApp
from workbench.model.session import Session
from workbench.screens.live import LiveScreen


async def main(width: int, height: int, steps: int, keys: list[str]) -> None:
    host = ScriptedHost({"num_blocks": 64})
    host.post(Submit(tuple(traffic(60))))
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
        if folder := os.environ.get("LOOK_DIR"):
            app.save_screenshot("look.svg", folder)
        print("\n".join(strip.text for strip in app.screen._compositor.render_strips()))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
