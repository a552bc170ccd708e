"""The container of the live screen's panels: places them by `model.layout`, remembers tab, zoom and form."""

from __future__ import annotations

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.message import Message
from textual.widget import Widget

from workbench.model.layout import PANELS, Arrangement, arrange
from workbench.widgets.panel import Panel


class BoardLayout(Layout):
    name = "board"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        assert isinstance(parent, Board)
        parent.pre_layout(self)
        boxes = parent.arrangement(size).boxes
        return [
            WidgetPlacement(Region(*boxes[child.id]), NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if child.id in boxes
        ]


class Board(Widget, can_focus=False):
    class Changed(Message):
        """Other panels or other sizes."""

    def __init__(self, *children: Widget) -> None:
        super().__init__(*children, id="board")
        self._board_layout = BoardLayout()
        self.tab = "kv"
        self.zoomed = ""
        self.form = False

    @property
    def layout(self) -> Layout:
        return self._board_layout

    def arrangement(self, size: Size | None = None) -> Arrangement:
        width, height = size or self.size
        return arrange(width, height, self.tab, self.zoomed, self.form)

    @property
    def wide(self) -> bool:
        """Room for the docked form."""
        return self.size.width >= 118 and self.size.height >= 38

    def panels(self) -> list[Panel]:
        return [child for child in self.children if isinstance(child, Panel)]

    def reachable(self) -> list[str]:
        """Ids of the panels the tab key visits now: what is shown, then the tabs as they stand."""
        arrangement = arrange(*self.size, self.tab)
        tabs = arrangement.tabs
        return [name for name in PANELS if name in arrangement.boxes and name not in tabs] + list(tabs)

    def sync(self) -> None:
        """Tell the panels whether they are on the screen; lay out anew."""
        boxes = self.arrangement().boxes
        for panel in self.panels():
            panel.showing = panel.id in boxes
        # asked of a child: only that makes Textual forget how its parent was arranged
        self.children[0].refresh(layout=True)
        self.post_message(self.Changed())

    def on_resize(self) -> None:
        self.sync()

    def show_tab(self, tab: str) -> None:
        if tab != self.tab:
            self.tab = tab
            self.sync()
