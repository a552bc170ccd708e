"""The KV blocks: who holds each one, how often it is shared, or what is cached.

One cell is one block while the pool fits; else one cell stands for several and shows the owner of most of them.
"""

from __future__ import annotations

from collections import Counter

from rich.style import Style
from textual import events
from textual.binding import Binding

from engine.view import EngineView
from workbench.text import fit
from workbench.widgets.panel import Line, Panel, Scene, Span

MODES = ("owner", "refcount", "cached")
LEGENDS = {
    "owner": (
        "letter = owner  · free  + cached  ■ null block",
        "letter = owner ·free +cached ■null",
        "A owner ·free +cached ■null",
    ),
    "refcount": (
        "digit = users  · free  + cached  ■ null block",
        "digit = users ·free +cached ■null",
        "1 users ·free +cached ■null",
    ),
    "cached": (
        "C held and cached  - only held  · free  + free and cached  ■ null block",
        "C cached -held ·free +cached ■null",
    ),
}
"""In words, and shorter."""
OFF = ("  / switched off", " /off", " /off")
"""What is added to each while num_blocks leaves blocks out."""
Cell = tuple[str, Style]


class KvMap(Panel):
    TITLE = "KV blocks"
    HELP = """One cell is one KV block of the pool (or several, when the title says so).

    letter  the request that holds it, in the colour of its row; underlined: shared with others;
            bold: written in this iteration
    ·  free      +  free, but cached: a later prompt with the same beginning can take it
    /  switched off: num_blocks was lowered, nobody gets it until num_blocks is raised
    ■  the null block, number 0: never given out, so it is not counted as free

    "swap" tells how many blocks of the swap pool hold the KV of requests that were swapped out.

    m changes the mode: owner; refcount (the digit: how many requests hold the block, 9 for more);
    cached (C: held and cached, -: held only).
    With the focus here, the arrow keys move a block cursor; the last line tells about the block."""
    BINDINGS = [
        Binding("left", "block(-1)", "Block", show=False, id="kv.left"),
        Binding("right", "block(1)", "Block", show=False, id="kv.right"),
        Binding("up", "block_row(-1)", "Block row", show=False, id="kv.up"),
        Binding("down", "block_row(1)", "Block row", show=False, id="kv.down"),
        Binding("escape", "drop_cursor", "Leave the block", show=False, id="kv.leave"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.mode = "owner"
        self.cursor: int | None = None
        """Block under the block cursor."""
        self._cells: list[Cell] = []
        self._key: tuple[object, ...] = ()
        self._stale = True
        self._written: frozenset[int] = frozenset()
        self._geometry = (1, 1, 1)

    def set_view(self, scene: Scene) -> None:
        if not self.showing or self.size.area == 0:
            self._stale = True
        super().set_view(scene)

    # ---- cells ------------------------------------------------------------------------------------

    def geometry(self, width: int, height: int, num_blocks: int) -> tuple[int, int, int]:
        """Cells in a row, rows, and blocks in a cell."""
        label = len(str(num_blocks)) + 1
        columns = max(1, width - label)
        rows = max(1, height)
        per_cell = max(1, -(-num_blocks // (columns * rows)))
        if columns >= 16:
            columns -= columns % 8
            per_cell = max(1, -(-num_blocks // (columns * rows)))
        return columns, rows, per_cell

    def _refill(self, scene: Scene, per_cell: int) -> None:
        view = scene.view
        key = (per_cell, self.mode, self.look, view.num_blocks, view.block_size)
        written = written_blocks(view)
        count = -(-view.num_blocks // per_cell)
        if key == self._key and not self._stale and scene.changed is not None:
            cells = {block // per_cell for block in scene.changed | written | self._written}
        else:
            cells = set(range(count))
            self._cells = [("", Style())] * count
        self._key, self._written, self._stale = key, written, False
        if per_cell == 1:
            for n in cells:
                self._cells[n] = self._cell(scene, n)
        else:
            for n in cells:
                self._cells[n] = self._group(scene, range(n * per_cell, min((n + 1) * per_cell, view.num_blocks)))

    def _cell(self, scene: Scene, block: int) -> Cell:
        view, look = scene.view, self.look
        ref = view.refs[block]
        if block == 0:
            return look.named("kv", "null")
        if ref < 0:
            return look.named("kv", "off")
        if ref == 0:
            return look.named("kv", "cached" if view.cached[block] else "free")
        owner = view.owners[block]
        letter = scene.history.letters.of(owner) if owner is not None else "#"
        style = look.owner(letter, ref > 1, block in self._written)
        if self.mode == "refcount":
            return (str(ref) if ref < 10 else "9", style)
        if self.mode == "cached":
            return ("C" if view.cached[block] else "-", style)
        return (letter, style)

    def _group(self, scene: Scene, blocks: range) -> Cell:
        """The commonest holder of several blocks; without one cached, then free, then switched off."""
        view = scene.view
        held = Counter(view.owners[block] for block in blocks if view.refs[block] > 0 and block)
        if held:
            owner = held.most_common(1)[0][0]
            block = next(block for block in blocks if block and view.refs[block] > 0 and view.owners[block] == owner)
            char, style = self._cell(scene, block)
            if self.mode == "refcount":
                char = str(min(9, max(view.refs[block] for block in blocks)))
            return (char, style)
        cached = next((block for block in blocks if view.cached[block] and view.refs[block] == 0), None)
        free = next((block for block in reversed(blocks) if view.refs[block] == 0), blocks[-1])
        return self._cell(scene, cached if cached is not None else free)

    # ---- lines ------------------------------------------------------------------------------------

    def note(self) -> str:
        scene = self.scene
        if scene is None:
            return ""
        view = scene.view
        cell = f"1 cell = {self._geometry[2]}" if self._geometry[2] > 1 else ""
        at = f"@{scene.cursor}" if scene.cursor is not None else ""
        pool = f"{view.usable_blocks}+null x {view.block_size} tok"
        mode = f"m: {self.mode}"
        room = self.size.width - len(self.TITLE) - 9
        for parts in ((at, pool, cell, mode), (pool, cell, mode), (f"x {view.block_size} tok", cell, mode)):
            text = "  ".join(part for part in parts if part)
            if len(text) <= room:
                return text
        return mode

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None or width < 6 or height < 1:
            return []
        view = scene.view
        label = len(str(view.num_blocks))
        self._geometry = columns, rows, per_cell = self.geometry(width, max(1, height - 1), view.num_blocks)
        self._refill(scene, per_cell)
        lines: list[Line] = []
        for row in range(rows):
            first = row * columns
            if first >= len(self._cells):
                break
            spans = merge(self._cells[first : first + columns])
            if self.cursor is not None:
                spans = self._with_cursor(spans, self.cursor // per_cell - first)
            lines.append(((fit(str(first * per_cell), label, ">") + " ", self.look.muted), *spans))
        if height > 1:
            lines += [()] * (height - 1 - len(lines))
            lines.append(self._about(scene, width))
        return lines

    def _with_cursor(self, spans: list[Span], at: int) -> list[Span]:
        out: list[Span] = []
        for text, style in spans:
            if 0 <= at < len(text):
                out += [(text[:at], style), (text[at], self.look.selected), (text[at + 1 :], style)]
            else:
                out.append((text, style))
            at -= len(text)
        return [span for span in out if span[0]]

    def _about(self, scene: Scene, width: int) -> Line:
        view, look = scene.view, self.look
        if self.cursor is not None and self.cursor < view.num_blocks:
            return ((fit(about_block(scene, self.cursor), width), look.strong),)
        used = f"free {view.free_blocks}/{view.usable_blocks}"
        swap = swap_text(view)
        peak = f"peak {view.peak_used}"  # of a larger pool, maybe
        if not view.off_blocks:
            peak = f"peak {view.peak_used / max(1, view.usable_blocks):.0%}"
        waste = f"waste {internal_waste(view):.0%}"
        off = OFF if view.off_blocks else ("",) * len(OFF)
        # the numbers that are nowhere else go last, the meaning of the cells never as long as it fits
        rights = [f"{used}  {peak}  {waste}", f"{used}  {peak}", used]
        if swap:
            rights = [f"{used}  {swap}  {peak}  {waste}", f"{used}  {swap}  {peak}", f"{used}  {swap}"]
            rights += [f"{used}  {swap.removesuffix(' blocks')}", used]
        for right in rights:
            for legend in (text + more for text, more in zip(LEGENDS[self.mode], off, strict=False)):
                gap = width - len(legend) - len(right)
                if gap >= 2:
                    return ((legend + " " * gap, look.muted), (right, look.text))
        return ((fit(used, width), look.muted),)

    # ---- block cursor -----------------------------------------------------------------------------

    def _move_cursor(self, blocks: int) -> None:
        if self.scene is None:
            return
        last = self.scene.view.num_blocks - 1  # the last one's number
        self.cursor = 0 if self.cursor is None else max(0, min(last, self.cursor + blocks))
        self.repaint()

    def action_block(self, cells: int) -> None:
        self._move_cursor(cells * self._geometry[2])

    def action_block_row(self, rows: int) -> None:
        self._move_cursor(rows * self._geometry[0] * self._geometry[2])

    def action_drop_cursor(self) -> None:
        self.cursor = None
        self.repaint()

    def next_mode(self) -> str:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.repaint()
        return self.mode

    def on_click(self, event: events.Click) -> None:
        if self.scene is None:
            return
        columns, rows, per_cell = self._geometry
        label = len(str(self.scene.view.num_blocks)) + 1
        x, y = event.x - self.framed - label, event.y - self.framed
        if 0 <= x < columns and 0 <= y < rows:
            block = (y * columns + x) * per_cell
            if block < self.scene.view.num_blocks:
                self.cursor = block
                self.repaint()


def merge(cells: list[Cell]) -> list[Span]:
    """Neighbours of the same style as one span."""
    spans: list[Span] = []
    text, style = "", None
    for char, cell_style in cells:
        if cell_style is style:
            text += char
        else:
            if style is not None:
                spans.append((text, style))
            text, style = char, cell_style
    if style is not None:
        spans.append((text, style))
    return spans


def written_blocks(view: EngineView) -> frozenset[int]:
    """Blocks into which the last iteration wrote keys and values."""
    if view.last is None:
        return frozenset()
    written: set[int] = set()
    size = view.block_size
    for item in view.last.scheduled:
        request = view.requests.get(item.id)
        if request is not None and item.num_tokens:
            first = item.computed_before // size
            written.update(request.blocks[first : (item.computed_before + item.num_tokens - 1) // size + 1])
    return frozenset(written)


def internal_waste(view: EngineView) -> float:
    """Share of the held slots that hold no token: the ends of last blocks."""
    slots = tokens = 0
    for id in view.running:
        request = view.requests[id]
        slots += len(request.blocks) * view.block_size
        tokens += min(request.computed, len(request.blocks) * view.block_size)
    return (slots - tokens) / slots if slots else 0.0


def about_block(scene: Scene, block: int) -> str:
    """One line on a block: holders, position, sharing."""
    view, letters = scene.view, scene.history.letters
    if block == 0:
        return "block 0: reserved, never given out"
    if view.refs[block] < 0:
        return f"block {block}: switched off, num_blocks is {view.num_blocks - view.off_blocks} of {view.num_blocks}"
    if view.refs[block] == 0:
        return f"block {block}: free" + (
            ", cached: a prompt with the same beginning can take it" if view.cached[block] else ""
        )
    holders = []
    for id in view.running:
        request = view.requests[id]
        if block in request.blocks:
            at = request.blocks.index(block)
            holders.append(f"{letters.name(id)} tokens {at * view.block_size}..{(at + 1) * view.block_size - 1}")
    cached = ", cached" if view.cached[block] else ""
    return f"block {block}: {', '.join(holders) or 'held'}; {view.refs[block]} holder(s){cached}"


def swap_text(view: EngineView) -> str:
    """Use of the swap pool, "" when nobody has blocks there."""
    used = sum(view.requests[id].swapped_blocks for id in view.swapped)
    return f"swap {used}/{used + (view.free_cpu_blocks or 0)} blocks" if used else ""
