"""What happened, newest first."""

from __future__ import annotations

from itertools import islice

from workbench.glyphs import CELLS, Look
from workbench.model.cells import Cell
from workbench.model.events import FILTERS, MARKS, Event, EventKind
from workbench.model.history import History
from workbench.widgets.panel import Line, Panel


class Events(Panel):
    TITLE = "Events"
    HELP = """What happened, newest first: step, mark, request, and the numbers.

    >  arrived    +  admitted      ×  preempted, by whom and for how many blocks    ▚  resumed
    ◆  finished   ◐  cut short by the pool or max_model_len    ◇  aborted or rejected
    !  knob changed       ?  notice from the engine
    ▽  swapped out    △  swapped in    =  KV copied to the swap pool and back
    #  static batch formed, with the tokens that padding would add    %  preemption storm: begin and end

    A request is called by its letter; when there is none left, by the end of its id.
    f changes the filter: all, preemptions, ends, arrivals, knobs. Up and down scroll."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.filter = 0

    def note(self) -> str:
        return f"f: {FILTERS[self.filter][0]}"

    def next_filter(self) -> str:
        self.filter = (self.filter + 1) % len(FILTERS)
        self.top = 0
        self.repaint()
        return FILTERS[self.filter][0]

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None:
            return []
        kinds = FILTERS[self.filter][1]
        step = scene.step
        wanted = (
            event
            for event in reversed(scene.history.events)
            if event.kind in kinds and (scene.cursor is None or event.step <= step)
        )
        shown = list(islice(wanted, self.top, self.top + height))
        if not shown and self.top:
            self.top = 0
            return self.content(width, height)
        if not shown:
            return [(("nothing yet", self.look.muted),)]
        return [event_line(event, scene.history, self.look, scene.cursor) for event in shown]


def event_line(event: Event, history: History, look: Look, cursor: int | None = None) -> Line:
    mark, cell = MARKS[event.kind]
    if event.aborted:
        mark, cell = "◇", Cell.ABORTED
    if event.cut:
        mark, cell = CELLS[Cell.CUT].char, Cell.CUT
    style = look.cells[cell] if cell is not None else look.strong
    if event.kind is EventKind.STORM:
        style = look.warn
    if event.kind in (EventKind.KNOB, EventKind.FAULT):
        style = look.named("marks", "knob")[1]
    step = f"{event.step:>5} "
    line: Line = ((step, look.key if event.step == cursor else look.muted), (mark, style), (" ", look.text))
    if event.id is not None:
        name = history.letters.name(event.id)
        line += ((name, look.owner(history.letters.of(event.id))), (" ", look.text))
    else:
        line += (("  ", look.text),)
    return (*line, (event.text, look.text))
