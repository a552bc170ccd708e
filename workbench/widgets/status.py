"""One line below the panels: a notice while it is fresh, else what the size has no other room for."""

from __future__ import annotations

from engine.records import Phase
from workbench.model.events import Event
from workbench.text import clean, fit, seconds
from workbench.widgets.events import event_line
from workbench.widgets.panel import Line, Panel, Scene

NOTICE_SECONDS = 5.0


class Status(Panel, can_focus=False):
    FRAMED = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.notice = ""
        self.bad = False
        self.hint = ""
        """Shown when there is nothing else to say on a wide screen."""

    def say(self, text: str, *, bad: bool = False) -> None:
        self.notice, self.bad = clean(text), bad
        self.repaint()

    def content(self, width: int, height: int) -> list[Line]:
        scene, look = self.scene, self.look
        if self.notice:
            return [((f" {fit(self.notice, width - 2)} ", look.error if self.bad else look.warn),)]
        if scene is None:
            return []
        if scene.cursor is not None:
            return [((" " + fit(step_detail(scene), width - 1), look.text),)]
        if width >= 118 and self.hint:
            return [((" " + fit(self.hint, width - 1), look.muted),)]
        last: Event | None = scene.history.events[-1] if scene.history.events else None
        return [event_line(last, scene.history, look)] if last is not None else []


def step_detail(scene: Scene) -> str:
    """One line on the step under the cursor."""
    it = scene.history.record_at(scene.step)
    if it is None:
        return f"step {scene.step} is no longer here"
    t = it.timings
    longest, taken = max((("build", t.build), ("sample", t.sample), ("commit", t.commit)), key=lambda phase: phase[1])
    more = f" {longest} {seconds(taken)}" if taken > it.duration / 4 else ""
    parts = [
        f"step {it.step}: {seconds(it.duration)} (sched {seconds(t.schedule)} fwd {seconds(t.forward)}{more})",
        f"{it.tokens_in(Phase.DECODE)} dec + {it.total_tokens - it.tokens_in(Phase.DECODE)} pre = "
        f"{it.total_tokens}/{it.budget}",
        f"{it.limit}",
        f"free {it.free_blocks}",
    ]
    if it.preempted:
        swapped = sum(victim.swapped_blocks > 0 for victim in it.preempted)
        parts.append(f"{len(it.preempted)} preempted" + (f", {swapped} of them swapped out" if swapped else ""))
    if it.batch:
        parts.append(f"slots {it.slots.used}/{it.slots.total}")
    if it.copied.num_bytes:
        parts.append(f"copied {it.copied.out_blocks} out {it.copied.in_blocks} in {seconds(t.swap)}")
    return "  ".join(parts)
