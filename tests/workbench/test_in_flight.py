"""A long iteration is told while it runs: its record comes only when it has ended."""

from __future__ import annotations

from engine.host import InFlight
from tests.workbench.driving import driven
from tests.workbench.scripted import ScriptedHost
from workbench.widgets.header import Header
from workbench.widgets.queues import Queues
from workbench.widgets.timeline import Timeline


def text(live, panel) -> str:
    widget = live.query_one(panel)
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height))


async def test_the_first_iteration_is_shown_while_it_computes():
    host = ScriptedHost()
    async with driven(host=host, steps=0) as here:
        live = here.live
        assert "IDLE" in text(live, Header)
        host.in_flight = InFlight(live.history.live.step + 1, host.now() - 12.0, ("a", "b"), 8000, 3)
        live.dirty()
        assert "computing 8000 tok, 12" in text(live, Header)
        assert "2 requests: computing 8000 tok" in text(live, Timeline)
        assert "computing 8000 tok" in text(live, Queues)
        drain, host.drain = host.drain, lambda limit=None: []  # type: ignore[method-assign]
        await here.pilot.press("space")
        assert "PAUSING" in text(live, Header)
        host.in_flight, host.drain = None, drain  # type: ignore[method-assign]
        await here.run(0)
        assert "PAUSED" in text(live, Header)
