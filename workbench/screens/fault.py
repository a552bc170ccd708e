"""The engine has failed: its traceback, over a screen that can still be read."""

from __future__ import annotations

from workbench.screens.reading import Reader, ReadingScreen
from workbench.text import wrap
from workbench.widgets import footer
from workbench.widgets.panel import Line


class FaultScreen(ReadingScreen):
    hint = "↑ ↓ scroll  esc look at the screen below  q quit"

    entries = footer.FAULT

    def __init__(self, trace: str, log: str) -> None:
        super().__init__("The engine has stopped with a fault")
        self.trace = trace
        self.log_file = log

    def lines(self, width: int) -> list[Line]:
        look = self.query_one(Reader).look
        whose = "This is an error of the workbench, not of yours."
        if "engine.errors.PolicyFault" in self.trace:
            whose = "The policy that was loaded from outside has failed."
        about = f"{whose} The traceback, also in {self.log_file}:"
        out: list[Line] = [((part, look.warn),) for part in wrap(about, width)]
        out.append(())
        for line in self.trace.splitlines():
            out += [((part, look.text),) for part in wrap(line, width)]
        return out

    async def action_leave(self) -> None:  # type: ignore[override]
        await self.app.action_quit()
