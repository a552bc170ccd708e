"""The batch timeline: a row for each request, a column for each iteration (or each few), newest at the right."""

from __future__ import annotations

import re
from functools import lru_cache

from textual import events
from textual.binding import Binding
from textual.message import Message

from engine.request import RequestStatus
from engine.view import RequestView
from workbench.glyphs import CELLS, Look
from workbench.model.cells import Cell
from workbench.model.history import MOST_WAITING, History
from workbench.model.row import squeeze
from workbench.text import clean, fit, fit_name
from workbench.widgets.panel import Line, Panel, Scene, Span

_RUNS = re.compile(rb"(.)\1*", re.DOTALL)


@lru_cache(maxsize=4096)
def _run(code: int, length: int) -> str:
    return CELLS[code].char * length


def spans_of(codes: bytes, look: Look) -> list[Span]:
    """Equal neighbours as one span."""
    cells = look.cells
    spans = []
    for match in _RUNS.finditer(codes):
        code = codes[match.start()]
        spans.append((_run(code, match.end() - match.start()), cells[code]))
    return spans


class Timeline(Panel):
    TITLE = "Batch timeline"
    HELP = """One row is one request, one column is one iteration (or several: the title tells), newest at the right.

    ░▒▓█  prefill: a quarter, half, three quarters, all of the token budget
    ─  one token decoded      ▚  computed again after a preemption
    ×  preempted              ·  waiting
    ▽  swapped out            △  swapped in         :  waiting with its KV in the swap pool
    ◆  finished               ◐  finished with fewer tokens than asked: pool or max_model_len cut it short
    ◇  aborted or failed
    □  finished, but its slot is held until the longest of its static batch ends

    Rows are ordered by admission, then the swapped out ones, then the waiting ones in order of service. A finished
    row goes after 20 columns when its place is needed, under static batching not before its batch has ended.
    Up and down select a request, enter shows its text, a aborts it.
    , and . look one step back and forth, < and > ten, ( and ) go to the preemptions, end returns to live."""
    BINDINGS = [
        Binding("pageup", "rows(-8)", "Rows up", show=False, id="timeline.page-up"),
        Binding("pagedown", "rows(8)", "Rows down", show=False, id="timeline.page-down"),
    ]

    class Selected(Message):
        def __init__(self, id: str, again: bool) -> None:
            self.id = id
            self.again = again
            """It was selected already."""
            super().__init__()

    class Moved(Message):
        """Select another row."""

        def __init__(self, rows: int) -> None:
            self.rows = rows
            super().__init__()

    class Seek(Message):
        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__()

    def __init__(self, *, id: str | None = None, look: Look | None = None) -> None:
        super().__init__(id=id, look=look)
        self.shown: list[str] = []
        """Ids of the rows on the screen."""
        self.filter = ""
        self._first_row = 0
        """Content line of the first row."""

    # ---- geometry ---------------------------------------------------------------------------------

    @property
    def label_width(self) -> int:
        return 20 if self.size.width >= 84 else 18

    @property
    def room(self) -> int:
        """Rows there are for requests."""
        height = self.inner[1]
        return height - (height >= 12) - (height >= 14) - (self.scene is not None and self.scene.cursor is not None)

    def columns(self) -> int:
        return max(1, self.inner[0] - self.label_width)

    def window(self, scene: Scene) -> tuple[int, int]:
        """First step and one past the last step of the columns."""
        k = scene.per_column
        last = scene.fixed_right if scene.fixed_right is not None else scene.history.last_step
        stop = (last // k + 1) * k
        return stop - self.columns() * k, stop

    # ---- lines ------------------------------------------------------------------------------------

    def note(self) -> str:
        scene = self.scene
        if scene is None:
            return ""
        first, stop = self.window(scene)
        steps = f"{max(first, scene.history.first_step)}..{min(stop - 1, scene.history.last_step)}"
        parts = [f"filter “{clean(self.filter)}”"] if self.filter else []
        done = sum(scene.view.finished.values())
        parts += [f"{done} finished"] if done else []
        parts += [f"1 col = {scene.per_column} steps" if scene.per_column > 1 else "1 col = 1 step"]
        parts += [f"cursor {scene.cursor}" if scene.cursor is not None else steps]
        return "  ".join(parts)

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None or height < 1 or width < 1:
            return []
        lines: list[Line] = []
        if height >= 12:
            lines.append(self._ruler(scene, width))
        pointer = scene.cursor is not None
        legend = height >= 14
        rows = height - len(lines) - legend - pointer
        self._first_row = len(lines)
        lines += self._rows(scene, width, rows)
        if pointer or legend:
            lines += [()] * (height - len(lines) - legend - pointer)
        if pointer:
            lines.append(self._pointer(scene))
        if legend:
            view = scene.view
            swap = scene.history.ever_swapped or view.knobs.get("preemption_mode") == "swap"
            static = view.knobs.get("batching") == "static"
            lines.append(legend_line(self.look, width, swap=swap, static=static, cut=scene.history.ever_cut))
        return lines

    def _rows(self, scene: Scene, width: int, height: int) -> list[Line]:
        ids = scene.ids
        if not ids:
            empty = "no requests; press i to send some"
            if self.filter:
                empty = "nothing matches the filter; esc clears it"
            elif scene.in_flight is not None:
                count = len(scene.in_flight.requests)
                empty = f"{count} request{'s' * (count > 1)}: computing {scene.computing}"
            return [((f"  {empty}", self.look.muted),)]
        rows = height - (len(ids) > height > 2)
        if scene.selected in ids:
            at = ids.index(scene.selected)
            self.top = min(max(self.top, at - rows + 1), at)
        self.top = max(0, min(self.top, len(ids) - rows))
        self.shown = ids[self.top : self.top + rows]
        first, stop = self.window(scene)
        lines = [self._row(scene, id, first, stop) for id in self.shown]
        if rows < height:
            below = len(ids) - self.top - rows + max(0, scene.view.num_waiting - MOST_WAITING)
            above = f"{self.top} above, " if self.top else ""
            lines.append(((f"  … {above}{below} below", self.look.muted),))
        return lines

    def _row(self, scene: Scene, id: str, first: int, stop: int) -> Line:
        request = scene.view.requests.get(id)
        row = scene.history.rows.get(id)
        if request is None or row is None:
            return ()
        codes = squeeze(row.cells(first, stop, scene.history.last_step), first, scene.per_column)
        return (*self._label(scene, request), *spans_of(codes, self.look))

    def _label(self, scene: Scene, request: RequestView) -> Line:
        look = self.look
        letter = scene.history.letters.of(request.id)
        selected = request.id == scene.selected
        counts = f"{request.prompt_len}/{request.output_len}"
        name = self.label_width - 13
        text = f"{fit_name(clean(request.client), name)}{fit(counts, 9, '>')}  "
        faded = request.status is RequestStatus.FINISHED
        style = look.selected if selected else look.muted if faded else look.text
        return ((letter, look.owner(letter)), ("▸" if selected else " ", look.key), (text, style))

    def _ruler(self, scene: Scene, width: int) -> Line:
        first, _ = self.window(scene)
        k = scene.per_column
        columns = self.columns()
        marks = [" "] * columns
        column = columns - 1
        while column >= 0:
            step = first + column * k
            text = str(step + k - 1 if k == 1 else step)
            if step >= 0 and column + 1 >= len(text):
                marks[column + 1 - len(text) : column + 1] = text
            column -= 10
        label = fit("  client", self.label_width - 11) + fit("in/out", 9, ">") + "  "
        return ((label, self.look.muted), ("".join(marks), self.look.muted))

    def _pointer(self, scene: Scene) -> Line:
        first, stop = self.window(scene)
        cursor = scene.cursor or 0
        column = (cursor - first) // scene.per_column
        if not first <= cursor < stop:
            return ()
        text = f"▲ {cursor}"
        if column + len(text) > self.columns():
            text = f"{cursor} ▲"
            column -= len(text) - 1
        return ((" " * (self.label_width + column), self.look.text), (text, self.look.key))

    # ---- mouse ------------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        x, y = event.x - self.framed, event.y - self.framed - self._first_row
        scene = self.scene
        if scene is None or not 0 <= y < len(self.shown):
            return
        id = self.shown[y]
        if x >= self.label_width and event.ctrl:
            first, _ = self.window(scene)
            self.post_message(self.Seek(first + (x - self.label_width) * scene.per_column))
        self.post_message(self.Selected(id, again=id == scene.selected))

    def scroll_lines(self, lines: int) -> None:
        self.post_message(self.Moved(lines))

    def action_rows(self, rows: int) -> None:
        self.post_message(self.Moved(rows))


def legend_line(look: Look, width: int, *, swap: bool = False, static: bool = False, cut: bool = False) -> Line:
    """The glyphs and what they mean, as many as fit; those of swapping and static batching only where they matter."""

    def one(cell: Cell) -> list[Span]:
        return [(CELLS[cell].char, look.cells[cell])]

    # the four glyphs are digits in ASCII
    by_quarter = "prefill by quarter of budget" if look.ascii else "prefill ¼ ½ ¾ 1 of budget"
    quarters = (Cell.PREFILL_1, Cell.PREFILL_2, Cell.PREFILL_3, Cell.PREFILL_4)
    parts: list[tuple[list[Span], str]] = [
        ([span for cell in quarters for span in one(cell)], "prefill" if swap or static or cut else by_quarter),
        (one(Cell.DECODE), "decode"),
        (one(Cell.RECOMPUTE), "recompute"),
        (one(Cell.PREEMPTED), "preempted"),
    ]
    if swap:
        parts.append(([*one(Cell.SWAP_OUT), *one(Cell.SWAP_IN)], "swap"))
        parts.append((one(Cell.SWAPPED), "swapped"))
    parts.append((one(Cell.FINISHED), "done"))
    if cut:
        parts.append((one(Cell.CUT), "cut short"))
    if static:
        parts.append((one(Cell.HELD), "slot held"))
    parts += [(one(Cell.WAIT), "waiting"), (one(Cell.ABORTED), "aborted")]
    line: list[Span] = []
    used = 0
    for spans, word in parts:
        size = len(spans) + len(word) + 3
        if used + size > width + 2:
            break
        line += [*spans, (f" {word}  ", look.muted)]
        used += size
    return tuple(line)


def matches(history: History, request: RequestView, needle: str) -> bool:
    """Whether a request passes the filter: its letter, part of the client or the id; of the texts from 3 letters on."""
    needle = needle.lower()
    if needle == history.letters.of(request.id).lower() or needle in request.client.lower():
        return True
    if needle in request.id.lower():
        return True
    if len(needle) < 3:
        return False
    return needle in (request.prompt_text or "").lower() or needle in request.text.lower()
