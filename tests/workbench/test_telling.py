"""What is told about one request: cut short or not, why it waits while paused, and by which name."""

from __future__ import annotations

import pytest

from engine.commands import Pause, Rebuild, SetKnob
from tests.workbench.driving import SMALL, WIDE, driven
from tests.workbench.modelless import ModellessHost
from tests.workbench.test_swapping import history_of
from workbench.glyphs import Mode
from workbench.model.cells import Cell
from workbench.model.events import EventKind, brief, storm_text
from workbench.screens.inspect import InspectScreen
from workbench.text import short, width_of
from workbench.widgets.queues import why

sizes = pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])
MOST = 48
"""Cells of an event's text at 120x40."""


def ends(history) -> dict[str, str]:
    return {event.id: event.text for event in history.events if event.kind is EventKind.FINISHED}


def last_cell(history, id: str) -> int:
    return history.rows[id].codes[-1]


def test_an_end_by_the_pool_or_by_max_model_len_is_a_cut_and_one_by_max_tokens_is_not():
    host = ModellessHost(num_blocks=20, max_model_len=200)
    host.submit("done", 20, 30)
    host.submit("long", 20, 400)
    host.submit("pool", 20, 170)
    history = history_of(host, 20)
    host.post(SetKnob("num_blocks", 8))
    host.advance(400)
    for it in host.drain():
        history.append(it)
    texts = ends(history)
    assert texts["done"].startswith("finished  30 tok in ") and texts["done"].endswith(", length")
    assert texts["long"].startswith("cut short 93/400 tok: all 7 blocks full, ")
    assert texts["pool"].startswith("cut short 93/170 tok: all 7 blocks full, ")
    assert [last_cell(history, id) for id in ("done", "long", "pool")] == [Cell.FINISHED, Cell.CUT, Cell.CUT]
    assert [event.cut for event in history.events if event.id == "done"].count(True) == 0 and history.ever_cut


def test_a_cut_by_max_model_len_at_arrival_and_after_a_rebuild():
    host = ModellessHost(max_model_len=100)
    host.submit("asked", 20, 400)
    history = history_of(host, 120)
    assert ends(history)["asked"].startswith("cut short 80/400 tok: max_model_len 100, ")
    host = ModellessHost()
    host.submit("going", 60, 400)
    host.submit("queued", 150, 10)
    history = history_of(host, 30)
    host.submit("late", 150, 300)
    host.advance(2)
    host.post(Rebuild({"max_model_len": 80}))
    host.advance(5)
    for it in host.drain():
        history.append(it)
    texts = ends(history)
    assert texts["going"].startswith("cut short ") and "/400 tok: max_model_len is now 80, " in texts["going"]
    assert texts["queued"].startswith("finished  10 tok")
    assert last_cell(history, "going") == Cell.CUT


@sizes
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_cut_has_a_sign_of_its_own_everywhere(size, mode):
    host = ModellessHost(max_model_len=60)
    host.submit("cut", 20, 400)
    host.submit("whole", 20, 10)
    async with driven(size, host, steps=50, glyphs=mode) as here:
        sign, done = ("c", "$") if mode is Mode.ASCII else ("◐", "◆")
        row = next(line for line in here.lines() if "20/40" in line)
        assert sign in row[20:] and done not in row[20:]
        if size == WIDE:
            assert f"{sign} cut short" in here.text()
        here.live.focus_panel("events")
        await here.run(0)
        assert f"{sign} A cut short 40/400 tok: max_model_len 60" in here.text()
        here.live.selected = "cut"
        await here.press("enter")
        assert isinstance(here.app.screen, InspectScreen)
        assert "finished, cut short: max_model_len 60, at step" in here.text()


# ---- paused ---------------------------------------------------------------------------------------


@sizes
async def test_a_paused_engine_still_tells_why_requests_wait(size):
    host = ModellessHost(max_num_seqs=2)
    for n in range(5):
        host.submit(f"s{n}", 40, 90)
    async with driven(size, host, steps=10) as here:
        view, history = here.live.history.live, here.live.history
        before = [why(history, view, id) for id in view.waiting_ids()]
        assert "behind C" in before[1]
        here.live.focus_panel("queues")
        await here.press("space")
        await here.run(1)
        assert view.paused and not view.last.executed
        assert [why(history, view, id) for id in view.waiting_ids()] == before
        assert here.text().count("(paused)") == 1 and "behind C" in here.text()
        host.submit("new", 40, 90)
        await here.run(1)
        assert why(history, view, "new") == "next iteration decides"
        here.live.selected = "s4"
        await here.press("enter")
        assert "behind C (seqs) (paused)" in here.text()


def test_reasons_of_a_head_that_is_gone_are_not_told():
    host = ModellessHost(max_num_seqs=2)
    for n in range(4):
        host.submit(f"s{n}", 40, 90)
    history = history_of(host, 10)
    host.post(Pause())
    host.engine.abort("s2")
    for it in host.drain():
        history.append(it)
    assert why(history, history.live, "s3") == "next iteration decides"
    empty = ModellessHost()
    empty.engine.paused = True
    empty.submit("a", 10, 10)
    history = history_of(empty, 1)
    assert why(history, history.live, "a") == "next iteration decides"


# ---- names ----------------------------------------------------------------------------------------


def test_the_end_of_an_id_is_what_is_left_of_it():
    assert short("chat-7") == "chat-7" and short("workload-000123") == "…-000123"
    assert width_of(short("漢字漢字漢字漢字")) <= 8 and short("\x1b[2J") == "␛[2J"


@sizes
async def test_without_a_letter_a_line_has_the_id(size):
    host = ModellessHost(num_blocks=300, max_num_seqs=70, max_num_batched_tokens=512)
    for n in range(90):
        host.submit(f"request-{n:03}", 20, 90)
    async with driven(size, host, steps=12) as here:
        history = here.live.history
        head = history.live.waiting_ids()[0]
        assert head == "request-070" and history.letters.of(head) == "#"
        here.live.focus_panel("queues")
        await here.run(0)
        text = here.text()
        assert "…est-070 " in text and "behind …est-070" in text
        here.live.focus_panel("events")
        await here.run(0)
        assert any("+ …est-06" in line for line in here.lines())
        lost = [event for event in history.events if event.kind is EventKind.PREEMPTED]
        assert all("by #" not in event.text for event in lost)


# ---- few words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "the prompt has 1000 tokens, max_model_len 624 leaves room for 623 and one output",
            "prompt 1000 tok, max_model_len 624 leaves room for 623 and one output",
        ),
        ("the prompt needs 63 KV blocks, the pool has 39", "prompt needs 63 blocks, pool has 39"),
        ("700 tokens do not fit into the 39 KV blocks that are left", "700 tok exceed 39 blocks"),
        ("700 tokens do not fit into 39 KV blocks", "700 tok exceed 39 blocks"),
        ("it has 312 tokens, max_model_len is now 100", "max_model_len is now 100"),
        ("all 39 KV blocks are full", "all 39 blocks full"),
        ("something\nelse", "something↵else"),
    ],
)
def test_sentences_of_the_engine_in_few_words(text, words):
    assert brief(text) == words


def test_a_storm_begins_with_its_cause():
    told = (
        "preemption storm: 33 preemptions in 64 iterations, 45% of the work is done twice or copied; "
        "40 requests need up to 160 KV blocks, the pool has 31; max_num_seqs about 7 would prevent this"
    )
    assert storm_text(told).startswith("storm: 40 requests want 160 blocks, pool has 31; max_num_seqs about 7")


def test_the_numbers_of_events_are_before_the_cut():
    host = ModellessHost(max_num_seqs=8, num_blocks=30, max_model_len=400, scheduler_reserve_full_isl=False)
    for n in range(12):
        host.submit(f"request-{n:05}", 60 + 10 * n, 90, client="somebody-with-a-long-name")
    host.submit("much-too-long-a-prompt", 1000, 5)
    history = history_of(host, 400)
    seen = set()
    for event in history.events:
        seen.add(event.kind)
        if event.kind is EventKind.PREEMPTED:
            assert "lost" in event.text[:MOST], event.text
        if event.kind is EventKind.REJECTED:
            assert event.text[:MOST] == "rejected …-prompt: prompt 1000 tok, max_model_len 400 leaves"[:MOST]
        if event.kind in (EventKind.FINISHED, EventKind.RESUMED, EventKind.ADMITTED):
            assert width_of(event.text) <= MOST, event.text
    assert {EventKind.PREEMPTED, EventKind.REJECTED, EventKind.FINISHED, EventKind.RESUMED} <= seen
