"""Requests that come after others: exact times on a clock that moves only when told, and never a hang."""

from __future__ import annotations

from typing import Any

import pytest

from engine.clock import ManualClock
from engine.commands import Abort, Submit
from engine.config import EngineConfig
from engine.engine import Engine
from engine.host import EngineInfo
from engine.loop import EngineThread
from engine.plan import Plan
from engine.records import Iteration
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.whatif.fork import fork
from engine.whatif.journal import Journal
from engine.whatif.rerun import Rerun
from tests.engine.fakes import FakeExecutor, fake_engine

STEP = 0.5
"""Seconds an iteration takes here."""


def engine_of(**asked: Any) -> tuple[Engine, ManualClock]:
    clock = ManualClock(10.0)
    engine, executor = fake_engine(clock, **asked)
    executor.hook = lambda plan: clock.advance(STEP)
    return engine, clock


def turn(id: str, after: str | None = None, delay: float = 0.0, *, output: int = 2, prompt: int = 4) -> Request:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return Request(id, [7] * prompt, params, after=after, delay=delay)


def drain(engine: Engine, clock: ManualClock) -> list[Iteration]:
    """Run to the end as a headless run does."""
    records = []
    idle = 0
    while engine.has_work():
        it = engine.step()
        if it is not None:
            records.append(it)
            continue
        due = engine.next_event()
        assert due is not None, "requests are left, and nothing will ever happen"
        clock.advance(max(0.0, due - clock.now()))
        idle += 1
        assert idle < 10_000
    return records


def arrivals(records: list[Iteration]) -> dict[str, float]:
    return {new.id: new.arrival for it in records for new in it.arrived}


def test_a_turn_comes_after_the_end_of_the_one_before() -> None:
    engine, clock = engine_of()
    engine.submit(turn("b", "a", 3.0))  # its leader comes later in the same batch
    engine.submit(turn("a"))
    engine.submit(turn("c", "b", 0.25))
    assert engine.next_arrival() is None or engine.next_arrival() == 10.0
    records = drain(engine, clock)
    # a: two iterations from 10 s on. b: 3 s after 11 s, two iterations. c: a quarter of a second after 15 s.
    assert arrivals(records) == {"a": 10.0, "b": 14.0, "c": 15.25}
    b = next(new for it in records for new in it.arrived if new.id == "b")
    assert (b.after, b.delay) == ("a", 3.0)
    assert [it.planned for it in records] == [2, 2, 1, 1, 0, 0]
    assert clock.now() == 16.25


def test_without_a_delay_the_next_iteration_has_it() -> None:
    engine, clock = engine_of()
    for request in (turn("a"), turn("b", "a")):
        engine.submit(request)
    records = drain(engine, clock)
    assert arrivals(records) == {"a": 10.0, "b": 11.0}
    assert [[item.id for item in it.scheduled] for it in records] == [["a"], ["a"], ["b"], ["b"]]


def test_several_wait_for_one_and_come_in_the_order_of_their_delays() -> None:
    engine, clock = engine_of()
    for request in (turn("a"), turn("late", "a", 2.0), turn("soon", "a", 1.0), turn("soon too", "a", 1.0)):
        engine.submit(request)
    assert list(arrivals(drain(engine, clock)).items()) == [
        ("a", 10.0),
        ("soon", 12.0),
        ("soon too", 12.0),
        ("late", 13.0),
    ]


@pytest.mark.parametrize("ended_before", [False, True])
def test_somebody_unknown_is_taken_to_have_ended(ended_before: bool) -> None:
    engine, clock = engine_of()
    if ended_before:
        engine.submit(turn("gone"))
        drain(engine, clock)
    now = clock.now()
    engine.submit(turn("b", "gone", 2.0))
    clock.advance(0.5)
    records = drain(engine, clock)
    assert arrivals(records) == {"b": now + 2.0}  # counted from when it was submitted


def test_its_leader_may_be_refused_at_once_or_when_it_arrives() -> None:
    engine, clock = engine_of(max_model_len=32, num_blocks=40, block_size=4)
    for request in (turn("huge", prompt=40), turn("b", "huge", 1.0)):
        engine.submit(request)
    later = turn("planned", prompt=24)
    later.arrival = 12.0
    engine.submit(later)
    engine.submit(turn("c", "planned", 1.0))
    engine.set_knob("num_blocks", 5)  # 24 tokens do not fit any more
    records = drain(engine, clock)
    assert [refused.id for it in records for refused in it.rejected] == ["huge", "planned"]
    assert arrivals(records) == {"b": 11.0, "c": 13.0}


def test_leaders_may_be_aborted_in_any_state() -> None:
    engine, clock = engine_of()
    requests = [turn("a", output=50), turn("b", "a", 1.0), turn("c", "b", 1.0), turn("d", "c", 1.0)]
    for request in requests:
        engine.submit(request)
    engine.step()
    engine.abort("c")  # waits for b, which waits for a
    it = engine.step()
    assert it is not None
    assert [(done.id, done.reason, done.arrival) for done in it.finished] == [("c", FinishReason.ABORT, 10.5)]
    engine.abort("a")  # runs; the record that tells it ends at 11.5 s: b runs in it no more
    records = drain(engine, clock)
    ended = {done.id: it.t_end for it in records for done in it.finished}
    assert ended["a"] == 11.0
    assert arrivals(records) == {"b": 12.0, "d": 12.0}
    assert not engine.has_work()


@pytest.mark.parametrize("order", ["abc", "bca", "cba", "acb"])
def test_a_circle_is_refused_and_the_others_still_come(order: str) -> None:
    after = {"a": "c", "b": "a", "c": "b"}
    engine, clock = engine_of()
    for id in order:
        engine.submit(turn(id, after[id], 1.0))
    records = drain(engine, clock)
    (refused,) = [refused for it in records for refused in it.rejected]
    assert refused.id == order[-1] and "circle" in refused.reason
    assert len(arrivals(records)) == 2
    assert min(arrivals(records).values()) == 11.0


def test_a_request_after_itself_is_refused() -> None:
    engine, clock = engine_of()
    engine.submit(turn("a", "a", 1.0))
    assert not engine.has_work() and not drain(engine, clock)
    it = engine.step()
    assert it is not None and [refused.id for refused in it.rejected] == ["a"]


def test_a_second_request_of_the_same_id_releases_nobody() -> None:
    engine, clock = engine_of()
    for request in (turn("a", output=4), turn("b", "a"), turn("a"), turn("b", "a")):
        engine.submit(request)
    records = drain(engine, clock)
    assert [refused.id for it in records for refused in it.rejected] == ["a", "b"]
    assert arrivals(records) == {"a": 10.0, "b": 12.0}


def test_a_chain_of_thousands_in_either_order() -> None:
    for forwards in (True, False):
        engine, clock = engine_of()
        chain = [turn(f"t{n}", f"t{n - 1}" if n else None, 1.0, output=1) for n in range(3000)]
        for request in chain if forwards else reversed(chain):
            engine.submit(request)
        records = drain(engine, clock)
        assert arrivals(records)["t2999"] == 10.0 + 2999 * (STEP + 1.0)


def test_while_paused_ends_are_told_and_nobody_runs() -> None:
    engine, clock = engine_of()
    for request in (turn("a"), turn("b", "a", 1.0)):
        engine.submit(request)
    engine.paused = True
    engine.step(run=False)
    engine.abort("a")
    engine.step(run=False)
    assert engine.next_arrival() == 11.0
    clock.advance(5.0)
    it = engine.step(run=False)
    assert it is not None and [new.arrival for new in it.arrived] == [11.0]


def test_a_rebuild_keeps_those_who_wait() -> None:
    engine, clock = engine_of(num_blocks=40, block_size=4)
    for request in (turn("a", output=6), turn("big", "a", 1.0, prompt=30), turn("c", "big", 1.0), turn("d", "a", 1.0)):
        engine.submit(request)
    engine.step()
    new, executor = fake_engine(clock, num_blocks=6, block_size=4)
    executor.hook = lambda plan: clock.advance(STEP)
    engine.rebuild(new, "fake", "none")
    records = drain(engine, clock)
    assert [refused.id for it in records for refused in it.rejected] == ["big"]  # 30 tokens need 8 blocks of 5
    came = arrivals(records)
    end = {done.id: it.t_end for it in records for done in it.finished}
    assert came["d"] == end["a"] + 1.0
    assert came["c"] == records[0].t_end + 1.0


def test_a_fault_ends_those_who_wait_too() -> None:
    engine, _ = engine_of()
    for request in (turn("a"), turn("b", "a", 1.0), turn("c", "b")):
        engine.submit(request)
    engine.step()
    record = engine.fault_record("trace")
    assert [done.id for done in record.finished] == ["a"]
    assert [refused.id for refused in record.rejected] == ["b", "c"]


class Late:
    """A prompt that counts how often it was made."""

    def __init__(self, length: int, token: int = 5) -> None:
        self.length, self.token, self.made = length, token, 0

    def __len__(self) -> int:
        return self.length

    def ids(self) -> list[int]:
        self.made += 1
        return [self.token] * self.length


def test_late_prompts_are_made_when_their_time_comes() -> None:
    engine, clock = engine_of(max_model_len=32)
    prompts = {"now": Late(3), "then": Late(4), "after": Late(5), "alien": Late(4, 10**6), "long": Late(40)}
    for id, late in prompts.items():
        arrival = {"now": None, "alien": None}.get(id, 12.0)
        after = "then" if id == "after" else None
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        engine.submit(Request(id, [], params, arrival=arrival, after=after, late=late))
    assert [late.made for late in prompts.values()] == [1, 0, 0, 1, 0]
    records = drain(engine, clock)
    assert [late.made for late in prompts.values()] == [1, 1, 1, 1, 0]
    lengths = {new.id: len(new.prompt_ids) for it in records for new in it.arrived}
    assert lengths == {"now": 3, "then": 4, "after": 5}
    refused = {one.id: one.reason for it in records for one in it.rejected}
    assert "outside the vocabulary" in refused["alien"] and "40 tokens" in refused["long"]


def test_a_late_prompt_is_told_even_of_a_request_that_never_came() -> None:
    engine, _ = engine_of()
    engine.submit(Request("a", [], arrival=99.0, late=Late(6)))
    engine.abort("a")
    it = engine.step()
    assert it is not None and it.arrived[0].prompt_ids == (5,) * 6


def test_a_rerun_takes_the_arrivals_as_they_were() -> None:
    """What was closed is open the second time: `after` is told, and not applied again."""
    asked: dict[str, Any] = {"num_blocks": 40, "block_size": 4}
    engine, clock = engine_of(**asked)
    for request in (turn("a"), turn("b", "a", 3.0), turn("c", "b", 0.5)):
        engine.submit(request)
    journal = Journal(engine.config)
    records = drain(engine, clock)
    for it in records:
        journal.add(it)

    def factory(knobs: dict[str, Any], clock: Any) -> Engine:
        config = EngineConfig.resolve(asked)
        again, _ = fake_engine(clock, **asked)
        again.executor = FakeExecutor(config)
        return again

    again = list(Rerun(journal, factory, journal.steps, {}))
    assert arrivals(again) == arrivals(records)
    future = list(Rerun(journal, factory, 0, {"max_num_seqs": 1}))
    assert arrivals(future) == pytest.approx(arrivals(records))


def test_in_a_thread_a_conversation_runs_to_its_end() -> None:
    engine, executor = fake_engine()
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    executor.hook = lambda plan: clock.advance(0.01)
    info = EngineInfo("fake", "none", "none", 1, engine.config, 256, 0, 0)
    host = EngineThread(engine, info)
    host.post(Submit((turn("b", "a"), turn("a"), turn("c", "b"))))
    host.post(Abort("nobody"))
    host.start()
    records: list[Iteration] = []
    for _ in range(2000):
        records += host.drain()
        if {done.id for it in records for done in it.finished} == {"a", "b", "c"}:
            break
        host._thread.join(0.005)
    assert host.stop()
    assert list(arrivals(records)) == ["a", "b", "c"]


def test_the_plan_is_left_alone_by_waiting_requests() -> None:
    """A held request costs an iteration nothing and is in no queue."""
    engine, _ = engine_of()
    plans: list[Plan] = []
    executor = engine.executor
    assert isinstance(executor, FakeExecutor)
    hook = executor.hook
    executor.hook = lambda plan: (plans.append(plan), hook(plan))[1]  # type: ignore[func-returns-value]
    for request in (turn("a"), turn("b", "a", 1.0)):
        engine.submit(request)
    it = engine.step()
    assert it is not None and (it.num_waiting, it.planned, len(plans[0].items)) == (0, 1, 1)


def test_a_future_says_that_its_loop_is_open() -> None:
    asked: dict[str, Any] = {"num_blocks": 40, "block_size": 4}
    engine, clock = engine_of(**asked)
    for request in (turn("a"), turn("b", "a", 3.0), turn("c", "b", 0.5), turn("d")):
        engine.submit(request)
    journal = Journal(engine.config)
    for it in drain(engine, clock):
        journal.add(it)
    (note,) = [note for note in fork(journal, 1, {"max_num_seqs": 1}).notes if "closed loop" in note]
    assert note.startswith("closed loop: 2 requests")  # b waits for a, which runs, and c for b
    assert not any("closed loop" in note for note in fork(journal, journal.steps - 1, {}).notes)
