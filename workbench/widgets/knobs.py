"""The knobs, made from the rows of KNOBS: live ones to turn, the others to read."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.message import Message

from engine.knobs import KNOBS, Knob, KnobValue
from workbench.model.events import show
from workbench.model.knob_steps import next_pace, pace_text, step
from workbench.text import clean, fit, wrap
from workbench.widgets.panel import Line, Panel, Scene

PACE = "pace"
VALUES = 15
"""Cells for value and range."""
NAMES = (
    *(name for name, knob in KNOBS.items() if knob.live),
    PACE,
    *(name for name, knob in KNOBS.items() if not knob.live),
)


class Knobs(Panel):
    TITLE = "Knobs"
    HELP = """The engine's settings. Those with a range change while it runs, at the next iteration boundary.

    up down    choose a knob
    [ ]        less, more: round numbers, the next choice, on or off
    left right one less, one more
    enter      apply the value shown with a *      esc   take it back
    u          undo the last change that was applied

    Knobs marked "restart" are set when the workbench starts. A change gets a version, a ! mark in the scrubber
    and an event; a refused one is told here, and nothing changes."""
    BINDINGS = [
        Binding("up", "choose(-1)", "Knob", show=False, id="knobs.up"),
        Binding("down", "choose(1)", "Knob", show=False, id="knobs.down"),
        Binding("left", "turn(-1, True)", "One less", show=False, id="knobs.left"),
        Binding("right", "turn(1, True)", "One more", show=False, id="knobs.right"),
        Binding("left_square_bracket", "turn(-1, False)", "Less", show=False, key_display="[", id="knobs.less"),
        Binding("right_square_bracket", "turn(1, False)", "More", show=False, key_display="]", id="knobs.more"),
        Binding("enter", "apply", "Apply", show=False, id="knobs.apply"),
        Binding("escape", "take_back", "Take back", show=False, id="knobs.take-back"),
    ]

    class Changed(Message):
        """A person asks for a value; PACE is a pseudo knob."""

        def __init__(self, name: str, value: KnobValue) -> None:
            self.name = name
            self.value = value
            super().__init__()

    class Left(Message):
        """Escape with nothing to take back."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen = 0
        self.wanted: dict[str, KnobValue] = {}
        """Values turned to and not applied yet."""
        self.asked: dict[str, KnobValue] = {}
        """Values sent and not answered yet."""
        self.answer = ""
        self._first_row = 0

    def set_view(self, scene: Scene) -> None:
        self._listen(scene)
        super().set_view(scene)

    def _listen(self, scene: Scene) -> None:
        """Drop what has been answered: a change, or a notice that names the knob."""
        for name, value in list(self.asked.items()):
            if self._value(scene, name) == value:
                del self.asked[name]

    def refused(self, notice: str) -> bool:
        """A notice came; True when it answers a change asked for here."""
        name = notice.removeprefix("refused ").partition(":")[0]
        if name not in self.asked:
            return False
        del self.asked[name]
        self.answer = clean(notice)
        return True

    def applied(self, name: str, step_number: int, version: int) -> None:
        self.asked.pop(name, None)
        self.answer = f"{name} applied at step {step_number} v{version}"

    # ---- lines ------------------------------------------------------------------------------------

    def note(self) -> str:
        scene = self.scene
        if scene is None:
            return ""
        changes = [(at, change) for at, change in scene.history.knob_changes if at <= scene.step]
        return f"v{scene.view.knob_version} @{changes[-1][0]}" if changes else f"v{scene.view.knob_version}"

    def _value(self, scene: Scene, name: str) -> KnobValue:
        return scene.view.pace if name == PACE else scene.view.knobs.get(name)

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None or height < 1:
            return []
        below = self._below(scene, width, height)
        rows = height - len(below)
        self.top = max(0, min(self.chosen, len(NAMES) - 1, max(self.top, self.chosen - rows + 1)))
        self.top = max(0, min(self.top, len(NAMES) - rows))
        names = NAMES[self.top : self.top + rows]
        return [self._row(scene, name, width) for name in names] + below

    def _row(self, scene: Scene, name: str, width: int) -> Line:
        look = self.look
        live = name == PACE or KNOBS[name].live
        current = self._value(scene, name)
        pending = name in self.wanted or name in self.asked
        value = self.wanted.get(name, self.asked.get(name, current))
        text = pace_text(value) if name == PACE else show(value)  # type: ignore[arg-type]
        right = "1..max" if name == PACE else short_range(KNOBS[name]) if live else "restart"
        chosen = NAMES[self.chosen] == name
        width = min(width, 58)
        values = VALUES if width < 50 else VALUES + 4
        room = width - values - 1
        label = name if name == PACE or len(name) <= room else KNOBS[name].short
        star = "*" if pending else " "
        value_style = look.warn if pending else look.muted if not live else look.strong if chosen else look.text
        return (
            ("▸" if chosen else " ", look.key),
            (fit(label, room), look.muted if not live else look.text),
            (fit(text, values - len(right) - 2, ">") + star, value_style),
            (" " + right, look.muted),
        )

    def _below(self, scene: Scene, width: int, height: int) -> list[Line]:
        """What binds, the chosen knob in full, and the last answer."""
        look = self.look
        if height < 6:
            return [((fit(self.answer, width), look.warn),)] if self.answer and height > 2 else []
        n, shares = scene.history.limit_shares(scene.cursor)
        limit = f"limit {shares[0][0]} {shares[0][1]:.0%} of {n}" if shares else "limit -"
        lines: list[Line] = [((fit(limit, width), look.strong),)]
        if self.has_focus or self.answer:
            name = NAMES[self.chosen]
            help_text = "most iterations a second" if name == PACE else f"{KNOBS[name].range_text}. {KNOBS[name].help}"
            text = self.answer if self.answer and not self.has_focus else f"{name}: {help_text}"
            if self.answer and self.has_focus:
                text = self.answer
            most = 2 if height < 14 else 3
            texts = wrap(text, width)
            if len(texts) > most:
                texts = [*texts[: most - 1], fit(" ".join(texts[most - 1 :]), width)]
            lines = [((line, look.warn if self.answer else look.muted),) for line in texts] + lines
        return lines

    # ---- keys -------------------------------------------------------------------------------------

    def action_choose(self, rows: int) -> None:
        self.answer = ""
        self.chosen = max(0, min(len(NAMES) - 1, self.chosen + rows))
        self.repaint()

    def action_turn(self, direction: int, fine: bool) -> None:
        scene, name = self.scene, NAMES[self.chosen]
        if scene is None:
            return
        self.answer = ""
        value = self.wanted.get(name, self.asked.get(name, self._value(scene, name)))
        if name == PACE:
            self.wanted[name] = next_pace(value, direction)  # type: ignore[arg-type]
        elif not KNOBS[name].live:
            self.answer = f"{name} is set at the start: restart with --{name.replace('_', '-')}"
        else:
            self.wanted[name] = step(KNOBS[name], value, direction, fine=fine)
        if name in self.wanted and self.wanted[name] == self._value(scene, name):
            del self.wanted[name]
        self.repaint()

    def action_apply(self) -> None:
        for name, value in self.wanted.items():
            self.asked[name] = value
            self.post_message(self.Changed(name, value))
        if not self.wanted and not self.asked:
            self.answer = "nothing to apply: [ ] change the value"
        self.wanted.clear()
        self.repaint()

    def action_take_back(self) -> None:
        if not self.wanted and not self.answer:
            self.post_message(self.Left())
        self.wanted.clear()
        self.answer = ""
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        row = event.y - self.framed + self.top
        if 0 <= event.y - self.framed < self.inner[1] and row < len(NAMES):
            self.chosen = row
            self.repaint()

    def scroll_lines(self, lines: int) -> None:
        self.action_choose(lines)


def short_range(knob: Knob) -> str:
    """1..1048576 as 1..1M, so that it fits beside the value; choices are gone through."""
    if knob.choices:
        return "‹ ›"
    if knob.type is bool:
        return "on|off"
    high = knob.high
    if high is None:
        return f"{knob.low:g}.."
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if high >= size and high % size == 0:
            return f"{knob.low:g}..{high / size:g}{unit}"
    return f"{knob.low:g}..{high:g}"
