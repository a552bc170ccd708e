"""Where the panels of the live screen go, from the size alone.

A pure function, because a panel changes neighbours between sizes (it may stand beside the timeline, or share one
tabbed place with four others), which style sheets cannot say. The breakpoints are also the screen's style classes.
"""

from __future__ import annotations

from typing import NamedTuple

LEAST = (80, 24)
WIDTHS = [(0, "-w0"), (80, "-w80"), (100, "-w100"), (118, "-w120")]
HEIGHTS = [(0, "-h0"), (24, "-h24"), (32, "-h32"), (38, "-h40")]

PANELS = ("timeline", "budget", "knobs", "queues", "latency", "kv", "events")
"""Those that can have the focus, in the order of the tab key."""


class Box(NamedTuple):
    x: int
    y: int
    width: int
    height: int


class Arrangement(NamedTuple):
    boxes: dict[str, Box]
    """Only what is shown."""
    tabs: tuple[str, ...] = ()
    """Panels that share one place."""
    tab: str = ""
    """The one of them that is shown."""


def arrange(width: int, height: int, tab: str = "kv", zoom: str = "", form: bool = False) -> Arrangement:
    """`tab`: the panel last chosen; `zoom`: one that gets all the room; `form`: the inject form is open."""
    if width < LEAST[0] or height < LEAST[1]:
        return Arrangement({"note": Box(0, 0, width, height)})
    wide = width >= 118 and height >= 38
    boxes = {
        "header": Box(0, 0, width, 1),
        "footer": Box(0, height - 1, width, 1),
    }
    status = 3 if form and wide else 1
    if wide:
        boxes["inject" if form else "status"] = Box(0, height - 1 - status, width, status)
        boxes["scrubber"] = Box(0, height - 2 - status, width, 1)
    else:
        boxes["scrubber"] = Box(0, height - 2, width, 1)
        boxes["status"] = Box(0, height - 3, width, 1)
    body = height - 3 - status
    if zoom:
        return Arrangement(boxes | {zoom: Box(0, 1, width, body)})
    if width < 100 or height < 32:
        return _small(boxes, width, body, tab)
    return _large(boxes, width, body, tab, wide)


def _small(boxes: dict[str, Box], width: int, body: int, tab: str) -> Arrangement:
    tabs = ("kv", "queues", "events", "latency", "knobs")
    tab = tab if tab in tabs else "kv"
    slot = 7 + max(0, body - 20) // 3
    top = body - slot - 2
    boxes["timeline"] = Box(0, 1, width, top)
    boxes["budget"] = Box(0, 1 + top, width, 1)
    boxes["tabs"] = Box(0, 2 + top, width, 1)
    boxes[tab] = Box(0, 3 + top, width, slot)
    return Arrangement(boxes, tabs, tab)


def _large(boxes: dict[str, Box], width: int, body: int, tab: str, wide: bool) -> Arrangement:
    side = 28 if width < 118 else 34 + min(16, (width - 118) // 6)
    left = width - side
    spare = max(0, body - 36)
    bottom = (9 if wide else 8) + spare // 4
    middle = 8 + spare // 8 if wide else 1
    top = body - bottom - middle
    half = width // 2
    boxes["timeline"] = Box(0, 1, left, top)
    boxes["budget"] = Box(0, 1 + top, left, middle)
    y = 1 + top + middle
    boxes["kv"] = Box(0, y, half, bottom)
    column = top if wide else top + middle
    knobs = min(11 + spare // 3, column - 8)
    boxes["knobs"] = Box(left, 1, side, knobs)
    boxes["queues"] = Box(left, 1 + knobs, side, column - knobs)
    if wide:
        boxes["latency"] = Box(left, 1 + top, side, middle)
        boxes["events"] = Box(half, y, width - half, bottom)
        return Arrangement(boxes)
    tabs = ("events", "latency")
    tab = tab if tab in tabs else "events"
    boxes["tabs"] = Box(half, y, width - half, 1)
    boxes[tab] = Box(half, y + 1, width - half, bottom - 1)
    return Arrangement(boxes, tabs, tab)
