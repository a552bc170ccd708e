"""What keys do to the picture: looking back, modes, panels, help."""

from __future__ import annotations

import re

from workbench.model.jumps import JUMPS
from workbench.screens.asking import AskScreen
from workbench.screens.help import HelpScreen
from workbench.screens.request_actions import RequestActions
from workbench.text import clean
from workbench.widgets.events import Events
from workbench.widgets.kvmap import KvMap
from workbench.widgets.panel import Panel

STEPS_A_COLUMN = (None, 1, 4, 16, 64)


class ViewActions(RequestActions):
    """For LiveScreen: all that its keys do."""

    jump = 0
    """What ( and ) go to, an index of JUMPS."""

    # ---- looking back -----------------------------------------------------------------------------

    def look_at(self, step: int | None) -> None:
        """Move the cursor; None or the newest step is live."""
        self.hush()
        history = self.history
        if step is None or not history.record_at(history.last_step):
            self.cursor = self.fixed_right = None
            self.dirty()
            return
        step = history.clamp(step)
        if self.fixed_right is None:
            self.fixed_right = history.last_step
        self.cursor = step
        if self.scene is not None:
            k = self.scene.per_column
            span = self.timeline.columns() * k
            if not self.fixed_right - span < step <= self.fixed_right:
                self.fixed_right = min(history.last_step, step + span // 2)
        self.dirty()

    def action_cursor(self, steps: int) -> None:
        last = self.history.last_step
        step = (last if self.cursor is None else self.cursor) + steps
        self.look_at(None if steps > 0 and step >= last else step)

    def action_first(self) -> None:
        self.look_at(self.history.first_step)

    def action_live(self) -> None:
        self.look_at(None)

    def action_jump(self, number: int, direction: int) -> None:
        """Go to the nearest step of a kind of `JUMPS`."""
        jump, history = JUMPS[number], self.history
        start = history.last_step + 1 if self.cursor is None else self.cursor
        step = jump.find(history, start, direction)
        if step is None:
            self.say(f"no {jump.word} {'before' if direction < 0 else 'after'} this step")
            return
        self.look_at(step)
        if jump.mark is None and history.bookmarks[step]:
            self.say(f"bookmark: {history.bookmarks[step]}")

    def action_mark(self, direction: int) -> None:
        self.action_jump(self.jump, direction)

    def action_jump_kind(self) -> None:
        self.jump = (self.jump + 1) % len(JUMPS)
        self.say(f"( and ) go to {JUMPS[self.jump].words}")

    def action_bookmark(self) -> None:
        """Ask for a note and keep it at the step shown; an emptied note of an old bookmark takes it away."""
        history = self.history
        step = history.last_step if self.cursor is None else self.cursor
        old = history.bookmarks.get(step)

        def chosen(text: str | None) -> None:
            if text is None:
                return
            text = clean(text).strip()
            if old and not text:
                del history.bookmarks[step]
                self.say(f"bookmark of step {step} taken away")
            else:
                history.bookmarks[step] = text
                self.say(f"bookmark at step {step}; j chooses bookmarks for ( and )")
            self.keep_bookmark(step, text)
            self.dirty()

        what = "empty takes it away" if old else "may be empty"
        self.app.push_screen(AskScreen(f"Note for step {step} ({what})", old or ""), chosen)

    def keep_bookmark(self, step: int, text: str) -> None:
        """Where somebody records, the recording has it too."""

    def action_go_to(self) -> None:
        history = self.history

        def chosen(text: str | None) -> None:
            if text is None:
                return
            digits = text.strip()
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", digits):
                self.say(f"{clean(text)!r} is not a step number", bad=True)
                return
            step, first, last = int(digits), history.first_step, history.last_step
            self.look_at(step)
            if not first <= step <= last:
                self.say(f"step {step} is not here: showing {history.clamp(step)}, the nearest of {first}..{last}")

        self.app.push_screen(AskScreen(f"Go to step ({history.first_step}..{history.last_step})", ""), chosen)

    # ---- views ------------------------------------------------------------------------------------

    def action_kv_mode(self) -> None:
        self.say(f"KV map shows {self.query_one(KvMap).next_mode()}")
        self.dirty()

    def action_columns(self) -> None:
        at = STEPS_A_COLUMN.index(self.per_column)
        self.per_column = STEPS_A_COLUMN[(at + 1) % len(STEPS_A_COLUMN)]
        self.say("steps a column: " + ("by speed" if self.per_column is None else str(self.per_column)))
        self.dirty()

    def action_event_filter(self) -> None:
        self.say(f"events: {self.query_one(Events).next_filter()}")
        self.dirty()

    def focus_panel(self, name: str) -> None:
        if self.board.zoomed:
            self.board.zoomed = name
            self.board.sync()
        elif name in self.board.arrangement().tabs:
            self.board.show_tab(name)
        panel = self.query_one(f"#{name}", Panel)
        panel.showing = True
        self.hush()
        self.set_focus(panel, scroll_visible=False)
        self.dirty()

    def action_next_panel(self, direction: int) -> None:
        if self.board.form:
            (self.focus_next if direction > 0 else self.focus_previous)("Field")
            return
        names = self.board.reachable()
        if not names:
            return
        here = self.focused.id if self.focused is not None else ""
        at = names.index(here) + direction if here in names else 0
        self.focus_panel(names[at % len(names)])

    def action_zoom(self) -> None:
        focused = self.focused
        name = focused.id if isinstance(focused, Panel) and focused.id else "timeline"
        self.hush()
        self.board.zoomed = "" if self.board.zoomed else name
        self.board.sync()

    def action_leave(self) -> None:
        if self.board.zoomed:
            self.action_zoom()
        elif self.timeline.filter:
            self.hush()
            self.timeline.filter = ""
            self.dirty()
        elif self.cursor is not None:
            self.action_live()
        else:
            self.timeline.focus()

    def action_help(self) -> None:
        focused = self.focused
        title = getattr(focused, "TITLE", "") or "Workbench"
        self.app.push_screen(HelpScreen(title, getattr(focused, "HELP", None) or ""))
