"""Requests that are swapped out and come back, on every panel that tells about them."""

from __future__ import annotations

import pytest

from engine.commands import Abort, SetKnob
from engine.request import RequestStatus
from tests.workbench.driving import SMALL, WIDE, driven
from tests.workbench.modelless import SWAP, ModellessHost, swapping_host
from workbench.glyphs import Mode
from workbench.model.cells import Cell
from workbench.model.history import History
from workbench.screens.inspect import InspectScreen
from workbench.widgets.kvmap import KvMap, about_block

sizes = pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])


def history_of(host: ModellessHost, steps: int) -> History:
    config = host.info.config
    history = History(config.num_blocks, config.block_size, config.values(), model="fake", dtype="float32")
    host.started = True
    host.advance(steps)
    for it in host.drain():
        history.append(it)
    return history


def test_the_cells_of_a_swapped_request():
    history = history_of(swapping_host(), 90)
    cells = history.rows["s5"].cells(0, history.last_step + 1, history.last_step)
    out, back = cells.index(Cell.SWAP_OUT), cells.index(Cell.SWAP_IN)
    assert history.record_at(out).preempted[0].swapped_blocks and set(cells[out + 1 : back]) == {Cell.SWAPPED}
    assert cells[back + 1] == Cell.DECODE and Cell.RECOMPUTE not in cells
    assert history.order(history.view_at(out + 1))[-1] == "s5"
    while_out = history.view_at(out + 1).requests["s5"]
    assert while_out.status is RequestStatus.SWAPPED and while_out.swapped_blocks


def test_a_row_that_waits_in_the_pool_shows_it_up_to_now_and_ends_with_an_abort():
    host = swapping_host()
    history = history_of(host, 55)
    assert history.rows["s5"].cells(50, 57, history.last_step)[:6] == bytes([Cell.SWAPPED]) * 6
    host.post(Abort("s5"))
    host.advance(3)
    for it in host.drain():
        history.append(it)
    assert history.rows["s5"].cells(55, 59, history.last_step) == bytes([Cell.SWAPPED, Cell.ABORTED, 0, 0])


@sizes
@pytest.mark.parametrize("mode", list(Mode))
async def test_swapping_is_told_everywhere(size, mode):
    async with driven(size, swapping_host(), steps=55, glyphs=mode) as here:
        out, back, pool = ("v", "^", ":") if mode is Mode.ASCII else ("▽", "△", ":")
        text = here.text()
        assert "swap 2" in here.lines()[0] and f"{out}{pool * 11}" in text
        assert "swap 17/64" in text
        here.live.focus_panel("queues")
        await here.run(0)
        assert f"swap {out}E9 {out}F8" in here.text() and "2 (17 bl)" in here.text()
        assert "F behind E, swapped out (blocks)" in here.text()
        here.live.focus_panel("events")
        await here.run(0)
        assert f"{out} E swap out  by D: need 1 free 0, 9 blocks kept" in here.text()
        assert "copied    9 blocks out, 0 in" in here.text()
        await here.run(30)
        here.live.action_live()
        await here.run(0)
        assert f"{pool}{back}" in here.text()
        assert any("swap in " in event.text and "blocks back" in event.text for event in here.live.history.events)


async def test_the_window_tells_state_causes_and_deadline():
    host = ModellessHost(**SWAP)
    for n in range(5):
        host.submit(f"s{n}", 60 + 10 * n, 90, deadline=0.12 if n == 4 else None, expected_output=50)
    async with driven(WIDE, host, steps=55) as here:
        (out,) = here.live.history.live.swapped
        here.live.selected = out
        await here.press("enter")
        assert isinstance(here.app.screen, InspectScreen)
        text = here.text()
        assert "swapped out: " in text and "blocks in the swap pool" in text and "expected 50" in text
        assert "first token within 120ms: missed by" in text
        assert "by " in text and "blocks kept" in text


@sizes
async def test_a_pool_that_shrinks_while_it_runs(size):
    host = ModellessHost(num_blocks=40)
    for n in range(4):
        host.submit(f"s{n}", 100, 60)
    async with driven(size, host, steps=20) as here:
        here.live.focus_panel("kv")
        host.post(SetKnob("num_blocks", 24))
        await here.run(2)
        view = here.live.history.live
        assert view.off_blocks == 16 and view.usable_blocks == 23
        kv = here.live.query_one(KvMap)
        rows = [kv.render_line(y).text for y in range(kv.size.height)]
        assert "".join(rows).count("/") >= 16 and "/off" in rows[-2] and f"/{view.usable_blocks}" in rows[-2]
        assert any("pool shrunk" in event.text for event in here.live.history.events)
        block = next(n for n, ref in enumerate(view.refs) if ref == -1)
        assert "switched off, num_blocks is 24 of 40" in about_block(here.live.scene, block)
        host.post(SetKnob("num_blocks", 40))
        await here.run(2)
        assert "/off" not in here.text()


@sizes
async def test_a_preemption_storm_is_told_while_it_rages(size):
    host = ModellessHost(
        num_blocks=32, block_size=4, max_model_len=100, max_num_seqs=12, enable_prefix_caching=False
    )  # fmt: skip
    for n in range(40):
        host.submit(f"s{n}", 10, 40)
    async with driven(size, host, steps=0) as here:
        for _ in range(40):
            await here.run(5)
            if here.live.history.live.storm:
                break
        assert here.live.history.live.storm and "STORM" in here.lines()[0]
        told = [event.text for event in here.live.history.events if event.text.startswith("storm: ")]
        assert len(told) == 1 and "would prevent this" in told[0]
        here.live.focus_panel("queues")
        await here.run(0)
        assert "storm: " in here.text() and "requests need up to" in here.text()
        for id in list(here.live.history.live.requests):
            host.post(Abort(id))
        host.submit("calm", 20, 75)
        for _ in range(16):
            await here.run(5)
        assert "STORM" not in here.lines()[0]
        assert any(event.text == "the storm is over" for event in here.live.history.events)


async def test_a_displaced_request_says_by_whom():
    host = ModellessHost(policy="srpt", num_blocks=40, max_num_seqs=2)
    for n in range(2):
        host.submit(f"s{n}", 60, 90)
    async with driven(WIDE, host, steps=10) as here:
        host.submit("short", 20, 3)
        await here.run(3)
        assert any("displaced by C" in event.text for event in here.live.history.events)
