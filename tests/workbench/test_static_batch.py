"""Static batching on the screen: slots that stay taken, the batch as it works, and its end."""

from __future__ import annotations

import pytest

from engine.commands import Abort, SetKnob
from tests.workbench.driving import SMALL, WIDE, driven
from tests.workbench.modelless import ModellessHost, static_host
from tests.workbench.test_swapping import history_of
from workbench.glyphs import Mode
from workbench.model.batch import held, slots_line, slots_text
from workbench.model.cells import Cell


def test_ended_members_hold_their_slots_until_the_last_one_ends():
    history = history_of(static_host(), 60)
    first = history.view_at(10).batch
    assert len(first) == 4
    ends = {id: max(step for step, done in history._finished if done == id) for id in first}
    last = max(ends.values())
    for id in first:
        cells = history.rows[id].cells(0, history.last_step + 1, history.last_step)
        assert cells[ends[id]] == Cell.FINISHED
        assert set(cells[ends[id] + 1 : last + 1]) <= {Cell.HELD} and set(cells[last + 1 :]) == {Cell.BLANK}
    assert slots_text(history.view_at(last)) == "" and held(history.view_at(last)) == []
    before = history.view_at(last - 1)
    assert slots_text(before) == "1/4" and len(held(before)) == 3
    assert set(first) <= set(history.order(before))


def test_the_rows_stay_however_long_the_batch_runs():
    host = static_host()
    host.submit("long", 10, 200)
    history = history_of(host, 190)
    view = history.live
    assert slots_text(view) == "1/4" and set(view.batch) <= set(history.order(view))
    letters = [history.letters.of(id) for id in history.order(view)]
    assert len(set(letters)) == len(letters)
    formed = [event.text for event in history.events if event.text.startswith("batch of")]
    assert formed == ["batch of 4 formed, 54 padding tokens", "batch of 4 formed, 91 padding tokens"]


@pytest.mark.parametrize("way", ["abort", "continuous"])
def test_a_batch_that_ends_early_lets_go_of_its_slots(way):
    host = static_host()
    history = history_of(host, 20)
    assert len(held(history.live)) == 2
    host.post(SetKnob("batching", "continuous")) if way == "continuous" else None
    for id in history.live.running if way == "abort" else ():
        host.post(Abort(id))
    host.advance(5)
    for it in host.drain():
        history.append(it)
    assert held(history.live) == [] or history.live.batch[0] == "b4"
    row = history.rows["b0"].cells(15, 26, history.last_step)
    assert row[:6] == bytes([Cell.HELD]) * 6 and set(row[6:]) == {Cell.BLANK}


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_members_that_are_swapped_out_or_preempted_do_not_work(mode):
    host = ModellessHost(
        batching="static", num_blocks=24, max_num_seqs=4, preemption_mode=mode, num_cpu_blocks=64,
        scheduler_reserve_full_isl=False,
    )  # fmt: skip
    for n in range(4):
        host.submit(f"s{n}", 60 + 10 * n, 90)
    history, seen = history_of(host, 0), set()
    for _ in range(120):
        host.advance(1)
        for it in host.drain():
            history.append(it)
        view = history.live
        if slots_text(view):
            assert slots_text(view) == f"{len(view.running)}/{len(view.batch)}"
            seen.add(slots_line(view))
    word = "swapped out" if mode == "swap" else "preempted"
    assert f"batch 3/4 slots work: 1 {word}" in seen and "batch 4/4 slots work" in seen


@pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])
@pytest.mark.parametrize("mode", list(Mode))
async def test_the_batch_is_told(size, mode):
    async with driven(size, static_host(), steps=40, glyphs=mode) as here:
        done, slot = ("$", "o") if mode is Mode.ASCII else ("◆", "□")
        assert "batch 1/4" in here.lines()[0] and f"{done}{slot * 25}" in here.text()
        here.live.focus_panel("queues")
        await here.run(0)
        assert (
            "batch 1/4 slots work: 3 ended" in here.text()
            and f"B{'-' if mode is Mode.ASCII else '─'} A{slot} C{slot}" in here.text()
        )
        await here.resize(*(SMALL if size == WIDE else WIDE))
        assert f"{done}{slot * 25}" in here.text()
