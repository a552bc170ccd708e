"""Knobs that are typed, that need the engine to be built anew, and what the screen does when it was."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.widgets import Input

from engine.commands import Rebuild, SetKnob, SetPace
from engine.knobs import KNOBS, POLICY_NAMES
from engine.request import RequestStatus
from engine.view import EngineView
from tests.workbench.driving import SMALL, WIDE, Driven, driven
from tests.workbench.modelless import SWAP, ModellessHost, swapping_host
from tests.workbench.test_swapping import history_of
from workbench.glyphs import Mode
from workbench.model.build import building_text
from workbench.model.events import show
from workbench.model.history import History
from workbench.model.knob_table import NAMES
from workbench.screens.asking import AskScreen
from workbench.screens.confirming import ConfirmScreen
from workbench.widgets.kvmap import KvMap

sizes = pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])


def busy() -> ModellessHost:
    host = ModellessHost()
    for n in range(5):
        host.submit(f"s{n}", 60, 60)
    return host


async def choose(here: Driven, name: str) -> None:
    here.live.focus_panel("knobs")
    here.live.knobs.chosen = NAMES.index(name)
    here.live.knobs.repaint()
    await here.pilot.pause()


async def type_value(here: Driven, text: str) -> None:
    here.app.screen.query_one("#ask-input", Input).value = text
    await here.press("enter")


@sizes
@pytest.mark.parametrize("mode", list(Mode))
async def test_every_row_can_be_chosen_turned_and_typed(size, mode):
    async with driven(size, busy(), steps=10, glyphs=mode) as here:
        for name in NAMES:
            await choose(here, name)
            shown = name if name in ("pace", "model", "dtype") else KNOBS[name].short
            mark = ">" if mode is Mode.ASCII else "▸"
            assert f"{mark}{name[:9]}" in here.text() or f"{mark}{shown[:9]}" in here.text(), name
            await here.press("right_square_bracket", "left_square_bracket", "e")
            assert isinstance(here.app.screen, AskScreen), name
            assert mode is not Mode.ASCII or here.text().isascii(), (name, [x for x in here.lines() if not x.isascii()])
            await here.press("escape", "escape")
        assert not [command for command in here.host.posted if isinstance(command, SetKnob | Rebuild)]


@sizes
async def test_a_policy_goes_through_its_choices_and_one_of_your_own_is_typed(size):
    async with driven(size, busy(), steps=10) as here:
        await choose(here, "policy")
        for name in (*POLICY_NAMES[1:], "fcfs", "priority"):
            await here.press("right_square_bracket")
            assert here.live.knobs.wanted.get("policy", "fcfs") == name
        await here.press("enter")
        await here.run(1)
        assert here.live.history.live.knobs["policy"] == "priority"
        await here.press("e")
        await type_value(here, "no such thing")
        assert isinstance(here.app.screen, AskScreen) and "is not one of fcfs" in " ".join(here.text().split())
        own = "tests.workbench.nothing:Here"
        await type_value(here, own)
        assert here.host.posted[-1] == SetKnob("policy", own)
        await here.run(1)
        assert "refused policy" in here.live.knobs.answer and not here.live.knobs.asked
        assert here.live.history.live.knobs["policy"] == "priority"


@sizes
async def test_client_weights_are_typed_checked_and_undone(size):
    async with driven(size, busy(), steps=10) as here:
        await here.press("u")
        assert "nothing to undo" in here.text()
        await choose(here, "client_weights")
        assert any("client_weights" in line and "-  text" in line for line in here.lines())
        await here.press("right_square_bracket")
        assert "is text" in here.live.knobs.answer
        await here.press("enter")
        await type_value(here, "alice=two")
        assert "'alice=two' is not NAME=WEIGHT" in " ".join(here.text().split())
        assert isinstance(here.app.screen, AskScreen)
        await type_value(here, "alice=2,bob=1")
        assert here.host.posted[-1] == SetKnob("client_weights", "alice=2,bob=1")
        await here.run(1)
        assert here.live.history.live.knobs["client_weights"] == "alice=2,bob=1"
        await here.press("u")
        await here.run(1)
        assert here.live.history.live.knobs["client_weights"] == ""
        await here.press("u")
        assert "nothing left to undo" in here.text()


def test_a_list_of_nothing_is_shown_as_empty():
    assert [show(text) for text in ("", ",", " , ", "a=1,")] == ["-", "-", "-", "a=1,"]


async def test_typing_replaces_the_old_value_and_an_arrow_keeps_it():
    async with driven(WIDE, busy(), steps=10) as here:
        await choose(here, "max_num_batched_tokens")
        await here.press("e", "7", "7", "enter")
        assert here.host.posted[-1] == SetKnob("max_num_batched_tokens", 77)
        await here.run(1)
        await here.press("e", "right", "8", "enter")
        assert here.host.posted[-1] == SetKnob("max_num_batched_tokens", 778)


async def test_the_selected_value_is_seen_without_colours():
    async with driven(WIDE, busy(), steps=10, glyphs=Mode.MONO) as here:
        await choose(here, "max_num_batched_tokens")
        await here.press("e")
        cells = [segment for strip in here.app.screen._compositor.render_strips() for segment in strip]
        assert any("64" in segment.text and segment.style is not None and segment.style.reverse for segment in cells)


@sizes
async def test_while_looking_back_the_focused_panel_shows_and_changes_the_live_values(size):
    async with driven(size, busy(), steps=20) as here:
        name = "max_num_seqs"
        here.host.post(SetKnob(name, 4))
        await here.run(5)
        here.live.look_at(10)
        await choose(here, name)
        row = next(line for line in here.lines() if f"▸{name}" in line)
        assert " 4 " in row and "live values" in here.text()
        await here.press("right_square_bracket")
        assert here.live.knobs.wanted == {name: 5} and here.live.cursor == 10
        await here.press("enter")
        assert here.host.posted[-1] == SetKnob(name, 5)
        await here.run(1)
        assert not here.live.knobs.asked and here.live.cursor == 10
        await here.press("e", "enter")
        assert here.host.posted[-1] == SetKnob(name, 5)
        if size == WIDE:
            here.live.timeline.focus()
            await here.press("escape") if isinstance(here.app.screen, AskScreen) else None
            await here.run(0)
            row = next(line for line in here.lines() if f"▸{name}" in line)
            assert " 6 " in row and "live values" not in here.text()


async def test_numbers_and_the_pace_are_typed():
    async with driven(WIDE, busy(), steps=10) as here:
        await choose(here, "max_num_batched_tokens")
        await here.press("e")
        await type_value(here, "0")
        assert "0 is out of range" in here.text()
        await type_value(here, "77")
        assert here.host.posted[-1] == SetKnob("max_num_batched_tokens", 77)
        await choose(here, "pace")
        await here.press("e")
        await type_value(here, "fast")
        assert "is not iterations a second" in here.text()
        await type_value(here, "7")
        assert here.host.posted[-1] == SetPace(7.0)


@sizes
async def test_a_rebuild_is_asked_for_done_and_undone(size):
    async with driven(size, busy(), steps=20) as here:
        await choose(here, "block_size")
        assert "rebuild" in here.text()
        await here.press("right_square_bracket", "right_square_bracket", "enter")
        assert isinstance(here.app.screen, ConfirmScreen)
        question = here.app.screen.question
        assert "block_size 16→32 builds the engine anew: 5 running requests are computed again" in question
        await here.press("escape")
        assert not here.host.posted and "left as it was" in here.live.knobs.answer
        await here.press("right_square_bracket", "right_square_bracket", "enter")
        here.host.hold_rebuild = True
        await here.press("enter")
        assert here.host.posted == [Rebuild({"block_size": 32})]
        assert "BUILDING" in here.lines()[0] and here.live.knobs.asked == {"block_size": 32}
        here.host.hold_rebuild = False
        await here.run(4)
        view = here.live.history.live
        assert view.block_size == 32 and not here.live.knobs.asked and "BUILDING" not in here.lines()[0]
        assert "built anew at step" in here.live.knobs.answer
        assert any("built anew: 39 blocks of 32, float32 fake-0.1b" in e.text for e in here.live.history.events)
        assert any("the engine was built anew" in e.text for e in here.live.history.events)
        await here.press("u")
        assert isinstance(here.app.screen, ConfirmScreen)
        await here.press("y")
        await here.run(4)
        assert here.live.history.live.block_size == 16
        await here.press("u")
        assert "nothing left to undo" in here.text()


async def test_model_and_dtype_are_rebuilt_and_a_refusal_is_told():
    async with driven(WIDE, busy(), steps=20) as here:
        await choose(here, "dtype")
        await here.press("left_square_bracket", "enter", "enter")
        await here.run(2)
        assert here.host.posted[-1] == Rebuild({"dtype": "bfloat16"})
        assert here.live.history.build_at(here.live.history.last_step).dtype == "bfloat16"
        assert here.live.history.build_at(5).dtype == "float32"
        await choose(here, "model")
        assert "fake-0.1b" in here.text()
        await here.press("enter")
        await type_value(here, " ")
        assert "needs a value" in here.text()
        await type_value(here, "missing")
        assert isinstance(here.app.screen, ConfirmScreen)
        assert "an answer cannot go on with another model" in here.app.screen.question
        await here.press("enter")
        await here.run(1)
        assert "refused no model 'missing' here" in here.live.knobs.answer
        assert not here.live.knobs.asked and "BUILDING" not in here.lines()[0]


async def test_more_blocks_than_allocated_are_a_rebuild_and_fewer_are_not():
    async with driven(WIDE, busy(), steps=20) as here:
        await choose(here, "num_blocks")
        assert "2..40" in here.text()
        await here.press("left_square_bracket", "enter")
        assert here.host.posted[-1] == SetKnob("num_blocks", 32)
        await here.run(1)
        await here.press("e")
        assert "num_blocks: 2..40 live, more builds anew" in here.text()
        await type_value(here, "100")
        assert isinstance(here.app.screen, ConfirmScreen)
        await here.press("enter")
        await here.run(2)
        assert here.live.history.live.num_blocks == 100
        assert "2..100" in here.text()
        assert "99+null" in here.text()


@sizes
async def test_looking_back_over_a_rebuild_is_right(size):
    host = swapping_host()
    async with driven(size, host, steps=50) as here:
        host.post(Rebuild({"block_size": 8, "num_blocks": 90}))
        await here.run(90)
        history, built = here.live.history, 50
        config = here.live.session.host.info.config
        assert history.live.num_blocks == 90 and config.num_blocks == 90
        replay = EngineView(40, 16, {})
        seen = {}
        for chunk in history._chunks:
            for it in chunk.records:
                replay.apply(it)
                if it.executed:
                    seen[it.step] = (replay.num_blocks, replay.block_size, list(replay.refs), list(replay.owners))
        for step in (built + 5, built - 3, built, built + 1, history.last_step, 3, built + 40):
            view = history.view_at(step)
            assert (view.num_blocks, view.block_size, view.refs, view.owners) == seen[step], step
        here.live.focus_panel("kv")
        for step in (built - 3, built + 3, built - 1, None):
            here.live.look_at(step)
            await here.run(0)
            kv = here.live.query_one(KvMap)
            again = KvMap()
            assert here.live.scene.view.num_blocks == (40 if step is not None and step <= built else 90)
            assert len(kv._cells) >= here.live.scene.view.num_blocks and again._cells == []
        here.live.look_at(built - 3)
        await here.press("down", "enter", "escape", "end")


def test_the_keyframes_after_a_rebuild_follow_the_size_of_the_pool():
    history = History(64, 16, {}, model="m", dtype="d")
    assert history._chunk_size == 64 and history.build_at(99)[1:] == ("m", "d")


def test_a_rebuild_of_an_idle_engine_in_words():
    view = EngineView(8, 16, {})
    assert building_text({"dtype": ("float32", "bfloat16")}, view) == (
        "dtype float32→bfloat16 builds the engine anew: nothing runs, the queue is kept."
    )
    assert "nothing runs; the queue is kept" in building_text({"model": ("a", "b")}, view)


def crowd() -> ModellessHost:
    """Running, swapped-out and waiting requests at step 55; two have been preempted without a copy of their KV."""
    host = ModellessHost(**SWAP)
    for n in range(9):
        host.submit(f"s{n}", 60 + 10 * n, 90)
    return host


def preempted_crowd() -> ModellessHost:
    host = ModellessHost(scheduler_reserve_full_isl=False)
    for n in range(9):
        host.submit(f"s{n}", 60 + 10 * n, 90)
    return host


@pytest.mark.parametrize("make", [crowd, preempted_crowd])
@pytest.mark.parametrize(
    "changes",
    [
        *({"block_size": size} for size in (32, 8, 4, 2)),
        *({"max_model_len": length} for length in (100, 120, 150)),
        {"model": "other"},
        {"dtype": "bfloat16"},
    ],
    ids=str,
)
def test_what_a_rebuild_means_is_what_then_happens(make, changes):
    host = make()
    history = history_of(host, 55)
    view = history.live
    live = {request.id: request for request in view.live()}
    states = Counter(request.status for request in live.values())
    assert states[RequestStatus.SWAPPED if make is crowd else RequestStatus.PREEMPTED] >= 1
    assert states[RequestStatus.RUNNING] and states[RequestStatus.WAITING]
    now = {"model": "fake-0.1b", "dtype": "float32", **view.knobs}
    text = building_text({name: (now[name], value) for name, value in changes.items()}, view)
    host.post(Rebuild(changes))
    records = []
    for _ in range(60):
        host.advance(20)
        records += host.drain()
    begin = next(n for n, it in enumerate(records) if it.rebuilt is not None)
    first = records[begin]
    ended = {done.id for done in first.finished}
    begun = sum(live[id].output_len > 0 for id in ended)
    if "model" in changes:
        assert begun == len(ended) == sum(request.output_len > 0 for request in live.values())
        assert f"{len(ended)} requests with output end (" in text
        assert f"{len(live) - len(ended)} requests without output are kept, their prompts are encoded anew" in text
        waiting = sum(request.output_len > 0 for request in live.values() if request.status is RequestStatus.PREEMPTED)
        assert (f"{waiting} waiting" in text) == (waiting > 0)
        return
    size = len(ended)
    assert (f"{size} request{'s' * (size > 1)} too long for " in text) == (size > 0) == ("at once" in text), text
    if size:
        told = [f"{begun} with output" if begun else "", f"{size - begun} without" if size > begun else ""]
        assert f"at once ({', '.join(filter(None, told))})" in text
    cut = {done.id for it in records[begin + 1 :] for done in it.finished if done.id in live and done.output_len < 90}
    assert (f"{len(cut)} other" in text or f"{len(cut)} request{'s' * (len(cut) > 1)} may be" in text) == bool(cut), (
        text
    )
    assert ("may be cut short" in text) == bool(cut), (text, cut)
    again = {victim.id for victim in first.preempted} - ended
    running = len(again)
    swapped = sum(one.status is RequestStatus.SWAPPED and id not in ended for id, one in live.items())
    names = [f"{running} running" if running else "", f"{swapped} swapped-out" if swapped else ""]
    assert f"{' and '.join(filter(None, names))} request" in text or not running + swapped, text


def test_a_pool_made_larger_or_a_longer_limit_cuts_nobody():
    view = history_of(crowd(), 55).live
    for changes in ({"num_blocks": (40, 80)}, {"max_model_len": (624, None)}, {"block_size": (16, 64)}):
        assert "cut short" not in building_text(changes, view) and "at once" not in building_text(changes, view)
