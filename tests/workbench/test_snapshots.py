"""Pictures of the screen, the same to the last cell.

Update them with: pytest tests/workbench/test_snapshots.py --snapshot-update
"""

from __future__ import annotations

import sys

import pytest

from tests.workbench.driving import SMALL, WIDE, encode, live_screen
from tests.workbench.modelless import static_host, swapping_host
from tests.workbench.scripted import busy_host
from workbench.app import Options, WorkbenchApp
from workbench.glyphs import Mode
from workbench.model.session import Session

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="pictures are made on Python 3.11")
SHOTS = {  # size, glyphs, keys
    "wide": (WIDE, Mode.COLOUR, ()),
    "small": (SMALL, Mode.COLOUR, ()),
    "small-ascii-knobs": (SMALL, Mode.ASCII, ("k",)),
    "wide-mono-past": (WIDE, Mode.MONO, ("left_parenthesis",)),
    "small-inspect": (SMALL, Mode.COLOUR, ("down", "enter")),
    "small-inject": (SMALL, Mode.COLOUR, ("i",)),
    "wide-swapping": (WIDE, Mode.COLOUR, ()),
    "small-mono-static": (SMALL, Mode.MONO, ("tab", "tab", "tab")),
    "small-ascii-rebuild": (SMALL, Mode.ASCII, ("k", *("pagedown",) * 4, "up", "left_square_bracket", "enter")),
}
HOSTS = {"wide-swapping": (swapping_host, 80), "small-mono-static": (static_host, 40)}


@pytest.mark.parametrize("name", SHOTS)
def test_picture(name, snap_compare, monkeypatch):
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    size, mode, keys = SHOTS[name]
    make, steps = HOSTS.get(name, (busy_host, 70))
    host = make()
    app = WorkbenchApp(lambda progress: Session(host, encode), Options(fps=0, glyphs=mode))

    async def before(pilot):
        live = await live_screen(app, pilot)
        host.advance(steps)
        live.tick()
        await pilot.pause()
        await pilot.press(*keys)
        live.status.say("")
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)
