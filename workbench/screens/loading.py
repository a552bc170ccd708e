"""What is shown while the model loads: stages, and how far the present one is."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen

from workbench.text import clean, fit
from workbench.widgets.panel import Line, Panel


class Stages(Panel, can_focus=False):
    FRAMED = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.stages: dict[str, tuple[int, int]] = {}

    def content(self, width: int, height: int) -> list[Line]:
        look = self.look
        lines: list[Line] = [((" SERVING WORKBENCH", look.title),), ()]
        stages = list(self.stages.items())
        for n, (stage, (done, total)) in enumerate(stages[-max(1, height - 5) :]):
            now = n == len(stages) - 1
            bar = ""
            if total > 0:
                cells = max(4, min(40, width - 40))
                full = min(cells, cells * done // total)
                bar = "█" * full + "·" * (cells - full) + f" {done}/{total}"
            lines.append(
                (
                    (" ▸ " if now else " ✓ ", look.key),
                    (fit(clean(stage), min(32, max(8, width // 3))), look.strong if now else look.muted),
                    (bar, look.text),
                )
            )
        return [*lines, (), ((" q quits", look.muted),)]


class LoadingScreen(Screen[None]):
    BINDINGS = [Binding("q", "app.quit", "Quit", id="loading.quit")]

    def compose(self) -> ComposeResult:
        yield Stages(id="stages")

    def show(self, stages: dict[str, tuple[int, int]]) -> None:
        panel = self.query_one(Stages)
        panel.stages = stages
        panel.look = self.app.look  # type: ignore[attr-defined]
        panel.repaint()
