"""The knobs, made from the rows of KNOBS: live ones to turn, the others to build the engine anew with."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.message import Message

from engine.knobs import Knob, KnobValue
from workbench.model.events import show
from workbench.model.history import History
from workbench.model.knob_steps import next_pace, pace_text, step
from workbench.model.knob_table import NAMES, PACE, ROWS, is_text, needs_build
from workbench.text import clean, fit, width_of, wrap
from workbench.widgets.panel import Line, Panel, Scene

VALUES = 15
"""Cells for value and range."""
PAGE = 8


class Knobs(Panel):
    TITLE = "Knobs"
    HELP = """The engine's settings. Those with a range change while it runs, at the next iteration boundary.

    up down    choose a knob      pageup pagedown   eight further
    [ ]        less, more: round numbers, the next choice, on or off
    left right one less, one more
    e          type a value: any number in the range, a policy of your own as module:Class, client weights
    enter      apply the value shown with a *      esc   take it back
    u          undo the last change that was applied

    Knobs marked "rebuild" cannot change while the engine runs: it is built anew, which is asked first. Running and
    swapped-out requests are then computed again, and the queue is kept; the question tells who ends or may be cut
    short. num_blocks is one of them above the blocks that are allocated. A change gets a version, a ! mark in the
    scrubber and an event; a refused one is told here, and nothing changes.
    While looking back the panel shows the values of that time. With the focus it shows the live ones, which are what
    the keys change, and its title says so."""
    BINDINGS = [
        Binding("up", "choose(-1)", "Knob", show=False, id="knobs.up"),
        Binding("down", "choose(1)", "Knob", show=False, id="knobs.down"),
        Binding("left", "turn(-1, True)", "One less", show=False, id="knobs.left"),
        Binding("right", "turn(1, True)", "One more", show=False, id="knobs.right"),
        Binding("left_square_bracket", "turn(-1, False)", "Less", show=False, key_display="[", id="knobs.less"),
        Binding("right_square_bracket", "turn(1, False)", "More", show=False, key_display="]", id="knobs.more"),
        Binding("pageup", f"choose({-PAGE})", "Knobs up", show=False, id="knobs.page-up"),
        Binding("pagedown", f"choose({PAGE})", "Knobs down", show=False, id="knobs.page-down"),
        Binding("e", "type", "Type a value", show=False, id="knobs.type"),
        Binding("enter", "apply", "Apply", show=False, id="knobs.apply"),
        Binding("escape", "take_back", "Take back", show=False, id="knobs.take-back"),
    ]

    class Changed(Message):
        """A person asks for a value; PACE is a pseudo knob."""

        def __init__(self, name: str, value: KnobValue) -> None:
            self.name = name
            self.value = value
            super().__init__()

    class Rebuild(Message):
        """A person asks for values that need the engine to be built anew."""

        def __init__(self, changes: dict[str, KnobValue]) -> None:
            self.changes = changes
            super().__init__()

    class Typing(Message):
        """A person wants to type the value of a row."""

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
            if self.live_value(scene.history, name) == value:
                del self.asked[name]

    def _shown(self, scene: Scene) -> Scene:
        """Whose values are seen: with the focus the live ones, since it is them that the keys change."""
        return _live(scene) if self.has_focus else scene

    def refused(self, notice: str) -> str:
        """A notice came; the name of the knob asked for here whose change it refuses, else ""."""
        name = notice.removeprefix("refused ").partition(":")[0]
        if name not in self.asked:
            return ""
        del self.asked[name]
        self.answer = clean(notice)
        return name

    def applied(self, name: str, step_number: int, version: int) -> None:
        self.asked.pop(name, None)
        self.answer = f"{name} applied at step {step_number} v{version}"

    # ---- lines ------------------------------------------------------------------------------------

    def note(self) -> str:
        scene = self.scene
        if scene is None:
            return ""
        changes = [(at, change) for at, change in scene.history.knob_changes if at <= scene.step]
        version = f"v{scene.view.knob_version} @{changes[-1][0]}" if changes else f"v{scene.view.knob_version}"
        if self.has_focus and scene.cursor is not None:
            version = "live values"
        return f"{version}  {self.chosen + 1}/{len(NAMES)}"

    def value(self, scene: Scene, name: str) -> KnobValue:
        """The value of a row as the scene has it."""
        if name == PACE:
            return scene.view.pace
        if name in scene.view.knobs:
            return scene.view.knobs[name]
        return getattr(scene.history.build_at(scene.step), name, None)  # model, dtype

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None or height < 1:
            return []
        scene = self._shown(scene)
        below = self._below(scene, width, height)
        rows = height - len(below)
        self.top = max(0, min(self.chosen, len(NAMES) - 1, max(self.top, self.chosen - rows + 1)))
        self.top = max(0, min(self.top, len(NAMES) - rows))
        names = NAMES[self.top : self.top + rows]
        return [self._row(scene, name, width) for name in names] + below

    def _row(self, scene: Scene, name: str, width: int) -> Line:
        look = self.look
        current = self.value(scene, name)
        pending = name in self.wanted or name in self.asked
        value = self.wanted.get(name, self.asked.get(name, current))
        text = pace_text(value) if name == PACE else show(value)  # type: ignore[arg-type]
        live = not needs_build(name, value, scene.view.num_blocks)
        right = self._range(scene, name) if live else "rebuild"
        chosen = NAMES[self.chosen] == name
        width = min(width, 58)
        values = VALUES if width < 50 else VALUES + 4
        room = width - values - 1
        label = name if name == PACE or len(name) <= room else ROWS[name].short
        spare = max(0, min(room - len(label) - 1, width_of(text) - (values - len(right) - 2)))
        room, values = room - spare, values + spare
        if name in ("policy", "model") and width_of(text) > values - len(right) - 2:
            text = "…" + text[-(values - len(right) - 3) :]  # of a path the end tells most
        star = "*" if pending else " "
        value_style = look.warn if pending else look.muted if not live else look.strong if chosen else look.text
        return (
            ("▸" if chosen else " ", look.key),
            (fit(label, room), look.muted if not live else look.text),
            (fit(text, values - len(right) - 2, ">") + star, value_style),
            (" " + right, look.muted),
        )

    def live_value(self, history: History, name: str) -> KnobValue:
        """The value of a row as the engine has it now."""
        return self.value(Scene(history, history.live), name)

    def range_of(self, history: History, name: str) -> str:
        """All that a row can be, for a question."""
        if name == PACE:
            return "iterations a second, or max"
        if name == "num_blocks":
            return f"{ROWS[name].low:g}..{history.live.num_blocks} live, more builds anew"
        return ROWS[name].range_text

    def _range(self, scene: Scene, name: str) -> str:
        if name == PACE:
            return "1..max"
        return f"2..{scene.view.num_blocks}" if name == "num_blocks" else short_range(ROWS[name])

    def _about(self, scene: Scene, name: str, width: int) -> str:
        """The chosen knob: what it is for, before which values it takes; in full where its value was cut."""
        if name == PACE:
            return "pace: most iterations a second"
        knob = ROWS[name]
        text = f"{name}: {knob.help} {self.range_of(scene.history, name)}"
        value = show(self.value(scene, name))
        return f"{name} {clean(value)}: {knob.help}" if is_text(name) and len(value) > 8 else text

    def _below(self, scene: Scene, width: int, height: int) -> list[Line]:
        """What binds, the chosen knob in full, and the last answer."""
        look = self.look
        if height < 6:
            if not self.answer or height < 3:
                return []
            texts = wrap(self.answer, width)
            most = 2 if height > 4 else 1
            if len(texts) > most:
                texts = [*texts[: most - 1], fit(" ".join(texts[most - 1 :]), width)]
            return [((line, look.warn),) for line in texts]
        n, shares = scene.history.limit_shares(scene.cursor)
        limit = f"limit {shares[0][0]} {shares[0][1]:.0%} of {n}" if shares else "limit -"
        lines: list[Line] = [((fit(limit, width), look.strong),)]
        if self.has_focus or self.answer:
            text = self.answer or self._about(scene, NAMES[self.chosen], width)
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
        scene = _live(scene)
        value = self.wanted.get(name, self.asked.get(name, self.value(scene, name)))
        if name == PACE:
            self.wanted[name] = next_pace(value, direction)  # type: ignore[arg-type]
        elif is_text(name):
            self.answer = f"{name} is text: e or enter types it"
        else:
            self.wanted[name] = step(ROWS[name], value, direction, fine=fine)
        if name in self.wanted and self.wanted[name] == self.value(scene, name):
            del self.wanted[name]
        self.repaint()

    def action_apply(self) -> None:
        name = NAMES[self.chosen]
        if self.scene is None:
            return
        allocated = self.scene.history.live.num_blocks
        if not self.wanted and is_text(name):
            self.action_type()
            return
        builds = {name: value for name, value in self.wanted.items() if needs_build(name, value, allocated)}
        for name, value in self.wanted.items():
            if name not in builds:
                self.asked[name] = value
                self.post_message(self.Changed(name, value))
        if builds:
            self.post_message(self.Rebuild(builds))
        if not self.wanted and not self.asked:
            self.answer = "nothing to apply: [ ] change the value, e types one"
        self.wanted.clear()
        self.repaint()

    def action_type(self) -> None:
        if self.scene is None:
            return
        name = NAMES[self.chosen]
        self.answer = ""
        value = self.wanted.pop(name, self.asked.get(name, self.live_value(self.scene.history, name)))
        self.post_message(self.Typing(name, value))
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


def _live(scene: Scene) -> Scene:
    return scene if scene.cursor is None else Scene(scene.history, scene.history.live, scene.look)


def short_range(knob: Knob) -> str:
    """1..1048576 as 1..1M, so that it fits beside the value; choices are gone through."""
    if knob.choices:
        return "‹ ›"
    if knob.type is bool:
        return "on|off"
    if knob.type is str:
        return "text"
    high = knob.high
    if high is None:
        return f"{knob.low:g}.."
    if knob.type is float and high >= 1000:
        return f"{knob.low:g}.."
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if high >= size and high % size == 0:
            return f"{knob.low:g}..{high / size:g}{unit}"
    return f"{knob.low:g}..{high:g}"
