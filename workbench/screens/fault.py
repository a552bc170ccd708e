"""The engine has failed: its traceback, over a screen that can still be read."""

from __future__ import annotations

from workbench.screens.reading import Reader, ReadingScreen
from workbench.text import wrap
from workbench.widgets.panel import Line


class FaultScreen(ReadingScreen):
    hint = "↑ ↓ scroll  esc look at the screen below  q quit"

    def __init__(self, trace: str) -> None:
        super().__init__("The engine has stopped with a fault")
        self.trace = trace

    def lines(self, width: int) -> list[Line]:
        look = self.query_one(Reader).look
        out: list[Line] = [
            (("This is an error of the workbench, not of yours. The traceback:", look.warn),),
            (),
        ]
        for line in self.trace.splitlines():
            out += [((part, look.text),) for part in wrap(line, width)]
        return out

    async def action_leave(self) -> None:  # type: ignore[override]
        await self.app.action_quit()
