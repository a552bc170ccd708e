"""A recording behind the same panels: the window, the cursor, what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.commands import SetKnob
from engine.view import EngineView
from tests.workbench.driving import WIDE, Driven, encode, live_screen
from tests.workbench.recorded import InMemory
from tests.workbench.scripted import ScriptedHost, busy_host
from traces.recording.marks import Mark
from workbench.app import Options, WorkbenchApp
from workbench.model.history import History
from workbench.model.playback import Playback
from workbench.model.recorded_host import RecordedHost
from workbench.model.session import Session

STEPS = 257
"""After which the busy host has nothing left to do."""


def recorded(steps: int = STEPS) -> tuple[InMemory, History]:
    """A recording and the history of the same run, which remembers all of it."""
    host: ScriptedHost = busy_host()
    info, config = host.info, host.config
    host.start()
    host.advance(steps // 2)
    host.post(SetKnob("max_num_seqs", 3))
    host.advance(steps - steps // 2)
    records = host.drain()
    history = History(config.num_blocks, config.block_size, config.values(), 1 << 20)
    for it in records:
        history.append(it)
    marks = [int(history.marks[step]) for step in range(1, history.last_step + 1)]
    return InMemory(info, records, marks), history


def flat(view: EngineView) -> tuple[object, ...]:
    requests = {
        id: dataclasses.astuple(request) for id, request in view.requests.items() if request.status != "finished"
    }
    return (view.seq, view.running, view.waiting_ids(), view.owners, view.refs, view.cached, view.knobs, requests)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, STEPS), st.integers(0, 120)), min_size=1, max_size=8))
def test_every_step_shown_is_that_of_the_run(steps):
    recording, history = recorded()
    playback = Playback(recording)
    for step, before in steps:
        playback.show(step, step - before, step + 5)
        assert flat(playback.live) == flat(history.view_at(step))
        for at in range(max(1, step - before), min(STEPS, step + 5) + 1):
            assert playback.record_at(at) == history.record_at(at)
            assert playback.decode[at] == history.decode[at]
            assert playback.prefill[at] == history.prefill[at]
        for id in playback.live.running:
            first, stop = max(1, step - before), step + 1
            assert playback.rows[id].cells(first, stop, step) == history.rows[id].cells(first, stop, step)


def test_going_on_loads_nothing_anew():
    recording, _ = recorded()
    playback = Playback(recording)
    for step in range(1, STEPS):
        playback.show(step, step - 80, step)
    assert recording.loads == 1


def test_the_way_between_preemptions_leads_through_the_whole_recording():
    recording, history = recorded()
    playback = Playback(recording)
    playback.show(150, 100, 150)
    for direction in (-1, 1):
        at, wanted = 150, 150
        while (at := playback.next_mark(at, direction, Mark.PREEMPTION)) is not None:
            wanted = history.next_mark(wanted, direction, Mark.PREEMPTION)
            assert at == wanted
        assert history.next_mark(wanted, direction, Mark.PREEMPTION) is None


@asynccontextmanager
async def played(
    size: tuple[int, int] = WIDE, bookmarks: tuple[tuple[int, str], ...] = (), name: str = "/nowhere/run.wbrec.jsonl"
) -> AsyncIterator[Driven]:
    recording, _ = recorded()
    recording.name = name
    recording.bookmarks = bookmarks
    session = Session(RecordedHost(recording.info), encode, recording=recording)
    app = WorkbenchApp(lambda progress: session, Options(fps=0))
    async with app.run_test(size=size) as pilot:
        screen = await live_screen(app, pilot)
        screen.tick()
        await pilot.pause()
        yield Driven(app, pilot, session.host, screen)


async def test_a_recording_opens_at_its_start_and_steps_both_ways():
    async with played() as here:
        assert "RECORDING" in here.text() and "step 1 of 257" in here.text()
        await here.press("full_stop", "full_stop", "greater_than_sign")
        assert "step 13 of 257" in here.text()
        await here.press("comma")
        assert "step 12 of 257" in here.text()
        await here.press("end")
        assert "step 257 of 257" in here.text()
        await here.press("home")
        assert "step 1 of 257" in here.text()
        await here.press("t", *"121", "enter")
        assert "step 121 of 257" in here.text()


async def test_the_cursor_stays_in_the_picture():
    async with played((200, 50)) as here:
        await here.press("x", "x", "x")
        for keys, size in (("", (80, 24)), ("", (240, 60)), ("x" * 3, (120, 40)), ("x", (80, 24)), ("x", (200, 50))):
            await here.press("t", *"30", "enter", *keys)
            await here.pilot.resize_terminal(*size)
            here.live.tick()
            await here.pilot.pause()
            scene = here.live.scene
            span = here.live.timeline.columns() * scene.per_column
            assert scene.fixed_right - span < scene.cursor == 30 <= scene.fixed_right, (keys, size)


async def test_what_is_counted_is_told():
    async with played() as here:
        await here.press("end")
        first, last = here.live.history.counted
        assert f"{first}..{last}" in here.text() and last == STEPS
        await here.press("t", *"121", "enter")
        first, last = here.live.history.counted
        assert f"{first}..121" in here.text() and last == 121  # nothing of what comes after, though it is loaded
        await here.press("home", "space")
        assert "space Stop" in here.text()


async def test_what_would_change_an_engine_is_refused():
    async with played() as here:
        for key in ("i", "a", "I", "u"):
            await here.press(key)
            assert "nothing in it can be changed" in here.text(), key
            assert "step 1 of 257" in here.text()


async def test_playing_follows_the_recorded_times():
    async with played() as here:
        await here.press("space")
        assert here.live.playing
        ends, begun = here.live.recording.ends, here.live._played
        here.live._advance(1.0)
        expected = sum(end <= begun + 1.0 for end in ends)
        assert 10 < expected <= here.live.cursor <= expected + 3  # its own tick plays on meanwhile
        here.live._advance(1e9)
        assert here.live.cursor == STEPS
        here.live._advance(0.1)
        assert not here.live.playing


async def test_jumps_go_to_the_kind_that_j_chose():
    _, history = recorded()
    records = [history.record_at(step) for step in range(1, STEPS + 1)]
    first = {
        "preemption": next(it.step for it in records if it.preempted),
        "finish": next(it.step for it in records if it.finished),
        "knob change": next(it.step for it in records if it.knobs),
    }
    async with played() as here:
        for step in first.values():
            await here.press("home", "right_parenthesis")
            assert f"step {step} of" in here.text()
            await here.press("j")
        await here.press("j", "home", "right_parenthesis")
        assert "no bookmark after this step" in here.text()


async def test_bookmarks_are_found_again_and_can_be_taken_away(tmp_path):
    name = str(tmp_path / "run.wbrec.jsonl")
    async with played(bookmarks=((200, "look [here]"),), name=name) as here:
        await here.press("t", *"121", "enter", "b", *"odd", "enter")
        assert "bookmark at step 121" in here.text()
        await here.press("j", "j", "j", "j", "right_parenthesis")
        assert "step 200 of" in here.text() and "look [here]" in here.text()
        await here.press("left_parenthesis")
        assert "step 121 of" in here.text() and "bookmark: odd" in here.text()
        await here.press("b", "backspace", "backspace", "backspace", "enter")
        assert "taken away" in here.text()
        await here.press("home", "right_parenthesis")
        assert "step 200 of" in here.text()
    async with played(bookmarks=((30, "gone: the file beside it counts"),), name=name) as here:
        assert here.live.history.bookmarks == {200: "look [here]"}


async def test_bookmarks_that_cannot_be_kept_are_told(tmp_path):
    async with played() as here:
        await here.press("b", *"odd", "enter")
        assert "cannot be written" in here.text()
        assert here.live.history.bookmarks == {1: "odd"}
    (tmp_path / "run.wbrec.jsonl.marks").write_text("[1, 2")
    async with played(name=str(tmp_path / "run.wbrec.jsonl")) as here:
        assert "holds no bookmarks" in here.text()
