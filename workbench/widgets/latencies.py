"""Latency by client, made anew twice a second at most."""

from __future__ import annotations

from traces.stats import LEAST_FOR_P99
from workbench.model.latency import ClientLatency, Latency
from workbench.text import clean, fit, fit_name, seconds
from workbench.widgets.panel import Line, Panel, Scene

EVERY = 0.5


class Latencies(Panel):
    TITLE = "Latency by client"
    HELP = f"""For each client: requests with a first token, time to the first token (median and 99th percentile, from
    the planned arrival), median time between tokens, and preemptions.

    There is no 99th percentile below {LEAST_FOR_P99} requests: it would be the maximum under another name.
    The newest 1000 requests and 4000 gaps of a client count. Of a recording, those of the steps in the picture, up to
    the one shown; the title tells which. `workbench replay FILE --headless` has the figures of the whole run."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[ClientLatency] = []
        self._made = -1.0
        self._version = -1
        self._of: Latency | None = None

    def set_view(self, scene: Scene) -> None:
        latency = scene.history.latency  # of a recording another one with every stretch that is loaded
        late = scene.history.version != self._version and not 0 <= scene.now - self._made < EVERY
        if late or latency is not self._of:
            self._of = latency
            self._rows = [*scene.history.latency.table()]
            if len(self._rows) > 1:
                self._rows.append(scene.history.latency.overall())
            self._made, self._version = scene.now, scene.history.version
        super().set_view(scene)

    def note(self) -> str:
        """What counts, where that is not all up to what the other panels show."""
        if self.scene is None or self.scene.cursor is None:
            return ""
        counted = self.scene.history.counted
        return "now" if counted is None else f"{counted[0]}..{counted[1]}"

    def content(self, width: int, height: int) -> list[Line]:
        look = self.look
        first, other = (7, 6) if width < 40 else (8, 8)
        name = max(4, width - 3 - first - 2 * other - 4)
        head = fit("client", name) + fit("n", 3, ">") + fit("ttft50", first, ">")
        head += fit("p99", other, ">") + fit("itl50", other, ">") + fit("pre", 4, ">")
        lines: list[Line] = [((head, look.muted),)]
        if not self._rows:
            return [*lines, (("no first token yet", look.muted),)]
        rows: list[Line] = []
        for row in self._rows:
            text = fit_name(clean(row.client), name) + fit(few(row.n), 3, ">") + fit(seconds(row.ttft50), first, ">")
            text += fit(seconds(row.ttft99), other, ">") + fit(seconds(row.itl50), other, ">")
            text += fit(few(row.preemptions), 4, ">")
            rows.append(((text, look.text),))
        return lines + self.scrolled(rows, max(1, height - 1))


def few(number: int) -> str:
    """A count in three cells."""
    return str(number) if number < 1000 else f"{number // 1000}k"
