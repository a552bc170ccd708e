from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.commands import Abort, Pause, SetKnob
from engine.records import Kind
from engine.view import EngineView
from tests.traces.records import arrived, record, scheduled, token
from tests.workbench.scripted import ScriptedHost, busy_host
from traces.recording.marks import Mark
from workbench.model.cells import Cell, prefill_cell
from workbench.model.events import EventKind
from workbench.model.history import History
from workbench.model.latency import Latency
from workbench.model.letters import ALPHABET, Letters
from workbench.model.row import Row, squeeze


def run(host: ScriptedHost, steps: int, keep: int = 4096) -> History:
    config = host.config
    history = History(config.num_blocks, config.block_size, config.values(), keep)
    host.start()
    host.advance(steps)
    for it in host.drain():
        history.append(it)
    return history


def flat(view: EngineView) -> tuple[object, ...]:
    requests = {id: dataclasses.astuple(request) for id, request in view.requests.items()}
    return (view.seq, view.running, view.waiting_ids(), view.owners, view.refs, view.cached, view.knobs, requests)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_the_state_at_a_step_is_the_one_of_a_replay(steps):
    host = busy_host()
    config = host.config
    host.start()
    host.advance(100)
    host.post(SetKnob("max_num_seqs", 3))
    host.post(Abort("r9"))
    host.advance(100)
    records = host.drain()
    history = History(config.num_blocks, config.block_size, config.values())
    for it in records:
        history.append(it)
    for step in steps:
        replay = EngineView(config.num_blocks, config.block_size, config.values())
        for it in records:
            replay.apply(it)
            if it.executed and it.step == step:
                break
        assert flat(history.view_at(step)) == flat(replay)


def test_the_cells_tell_the_scheduled_work():
    host = busy_host()
    history = run(host, 200)
    seen = set()
    for id, row in history.rows.items():
        codes = row.cells(1, history.last_step + 1, history.last_step)
        seen.update(codes)
        for step, code in enumerate(codes, start=1):
            it = history.record_at(step)
            worked = any(item.id == id for item in it.scheduled)
            ended = any(done.id == id for done in it.finished)
            lost = any(victim.id == id for victim in it.preempted)
            assert (code == Cell.PREEMPTED) == lost
            assert (code in (Cell.FINISHED, Cell.ABORTED)) == ended
            assert worked == (code not in (Cell.BLANK, Cell.WAIT)) or lost or ended
    assert {Cell.WAIT, Cell.DECODE, Cell.PREFILL_4, Cell.RECOMPUTE, Cell.PREEMPTED, Cell.FINISHED} <= seen


def test_tokens_of_a_step_are_within_the_budget_and_add_up():
    history = run(busy_host(), 150)
    for step in range(1, history.last_step + 1):
        spent = history.decode[step] + history.prefill[step] + history.recompute[step]
        assert spent == history.record_at(step).total_tokens <= history.budget[step]


def test_marks_and_the_way_between_preemptions():
    host = busy_host()
    history = run(host, 80)
    host.post(SetKnob("max_num_seqs", 3))
    host.advance(120)
    for it in host.drain():
        history.append(it)
    steps = [step for step in range(1, history.last_step + 1) if history.marks[step] & Mark.PREEMPTION]
    assert steps == [it.step for it in map(history.record_at, range(1, history.last_step + 1)) if it.preempted]
    found, at = [], history.last_step + 1
    while (at := history.next_mark(at, -1, Mark.PREEMPTION)) is not None:
        found.append(at)
    assert found[::-1] == steps
    assert sum(1 for step in range(1, history.last_step + 1) if history.marks[step] & Mark.KNOB) == 1


def test_a_knob_changed_while_paused_is_marked_at_the_last_step():
    host = busy_host()
    history = run(host, 10)
    host.post(Pause())
    host.post(SetKnob("max_num_seqs", 4))
    for it in host.drain():
        history.append(it)
    assert history.marks[10] & Mark.KNOB
    assert history.knob_changes[-1][0] == 10


def test_memory_stays_bounded():
    host = ScriptedHost(step_seconds=0.01)
    config = host.config
    history = History(config.num_blocks, config.block_size, config.values(), keep=128)
    host.start()
    for n in range(1500):
        host.submit(f"r{n}", 20, 6)
        host.advance(2)
        for it in host.drain():
            history.append(it)
    assert history.last_step - history.first_step < 400
    assert len(history._chunks) < 10
    assert len(history.rows) < 1200 and len(history.letters._of) < 1200
    assert history.view_at(history.first_step).step == history.first_step


def test_events_tell_the_numbers():
    host = busy_host()
    history = run(host, 200)
    kinds = {event.kind for event in history.events}
    assert {EventKind.ARRIVED, EventKind.ADMITTED, EventKind.PREEMPTED, EventKind.RESUMED, EventKind.FINISHED} <= kinds
    lost = next(event for event in history.events if event.kind is EventKind.PREEMPTED)
    assert "need" in lost.text and "free 0" in lost.text and "tok lost" in lost.text


def test_a_flood_of_arrivals_makes_few_events_and_rows():
    host = ScriptedHost()
    for n in range(3000):
        host.submit(f"r{n}", 20, 6)
    history = run(host, 3)
    assert len(history.events) < 120
    assert len(history.order(history.live)) <= 256 + 6


def test_rows_are_running_by_admission_then_waiting():
    history = run(busy_host(), 60)
    view = history.live
    order = history.order(view)
    waiting = view.waiting_ids()
    assert order[-len(waiting) :] == waiting
    assert [id for id in order if id in view.running] == list(view.running)
    faded = [id for id in order if id not in view.running and id not in waiting]
    assert all(view.step - view.requests[id].finished_step < history.fade for id in faded)


def test_waiting_costs_no_cells_until_something_happens():
    row = Row("a", 5, keep=100)
    assert row.cells(1, 11, now=8) == bytes([0] * 4 + [1] * 4 + [0] * 2)
    row.put(12, Cell.DECODE)
    row.put(12, Cell.FINISHED)
    row.idle = Cell.BLANK
    assert row.cells(10, 15, now=20) == bytes([1, 1, Cell.FINISHED, 0, 0])
    row = Row("b", 5, keep=100)
    row.put(4, Cell.ABORTED)  # ended before the step it would have waited in
    row.idle = Cell.BLANK
    assert row.cells(3, 7, now=9) == bytes([0, Cell.ABORTED, 0, 0])
    row = Row("c", 1, keep=100)
    row.put(100_000, Cell.DECODE)
    assert len(row.codes) <= 101 and row.cells(99_999, 100_001, 100_000) == bytes([Cell.WAIT, Cell.DECODE])


def test_several_steps_in_a_column_show_the_worst():
    codes = bytes([Cell.DECODE, Cell.PREEMPTED, Cell.WAIT, Cell.DECODE, Cell.FINISHED, 0])
    assert squeeze(codes, 0, 2) == bytes([Cell.PREEMPTED, Cell.DECODE, Cell.FINISHED])
    assert squeeze(codes, 1, 4) == bytes([Cell.PREEMPTED, Cell.FINISHED])


def test_prefill_by_quarter_of_the_budget():
    assert [prefill_cell(n, 64) for n in (1, 16, 17, 32, 48, 49, 64, 999)] == [5, 5, 6, 6, 7, 8, 8, 8]


def test_letters_go_round_and_run_out():
    letters = Letters()
    given_letters = [letters.give(f"r{n}") for n in range(64)]
    assert given_letters[:62] == list(ALPHABET) and given_letters[62:] == ["#", "#"]
    letters.give_back("r5")
    letters.promote("r63")
    assert letters.of("r63") == "F" and letters.of("r62") == "#"
    assert letters.of("r5") == "F"  # still shown so until forgotten


def test_latency_of_a_run_by_client():
    host = busy_host()
    history = run(host, 200)
    rows = {row.client: row for row in history.latency.table()}
    assert sum(row.n for row in rows.values()) == history.latency.overall().n == 32
    assert sum(row.preemptions for row in rows.values()) == history.live.preemptions > 0
    assert all(row.ttft50 is not None and row.ttft99 is None for row in rows.values())


@pytest.mark.parametrize(("requests", "p99"), [(99, None), (100, 99.01)])
def test_no_p99_of_few_requests(requests, p99):
    """Times to the first token of 1, 2, 3 ... seconds. numpy: percentile(range(1, 101), 99) == 99.01."""
    latency, view = Latency(), EngineView(8, 4, {})
    for n in range(requests):
        it = record(n, n, n + 1, arrived=(arrived(f"r{n}", 0.0),), scheduled=(scheduled(f"r{n}", 4, kind=Kind.NEW),),
                    tokens=(token(f"r{n}"),))  # fmt: skip
        latency.fold(it, view.apply(it))
    assert latency.overall().ttft99 == p99 and latency.overall().ttft50 == (requests + 1) / 2


def test_too_many_clients_share_a_row():
    latency = Latency()
    for n in range(500):
        latency._client(f"client {n}")
    assert len(latency.table()) == 201


def test_limit_shares_add_up_live_and_looking_back():
    history = run(busy_host(), 120)
    n, shares = history.limit_shares()
    assert n == 64 and abs(sum(share for _, share in shares) - 1) < 1e-9
    assert history.limit_shares(history.last_step) == (n, shares)
    assert history.limit_shares(10)[0] == 10


def test_speed_falls_when_nothing_comes():
    history = run(busy_host(), 120)
    speed, tokens = history.speed()
    assert 10 < speed < 21 and tokens > 0
    assert history.speed(history.live.last.t_end + 10) == (0.0, 0.0)


def test_finished_rows_stay_while_there_is_room():
    host = ScriptedHost()
    for n in range(4):
        host.submit(f"r{n}", 20, 6)
    history = run(host, 30)
    host.submit("late", 20, 200)
    host.advance(history.fade + 30)
    for it in host.drain():
        history.append(it)
    view = history.live
    assert not set(history.order(view)) & {"r0", "r1", "r2", "r3"}
    assert history.order(view, room=10) == ["r0", "r1", "r2", "r3", "late"]
    assert len(history.order(view, room=3)) == 3
    letters = [history.letters.of(id) for id in history.order(view, room=10)]
    assert len(set(letters)) == len(letters)


def test_what_finished_long_ago_is_found_again():
    host = ScriptedHost()
    host.submit("early", 20, 6)
    host.submit("long", 20, 300)
    history = run(host, 120)
    assert history.found(history.live, lambda request: request.id == "early") == ["early"]
    assert history.found(history.live, lambda request: True) == ["early", "long"]
