"""Several commands in one record are repeated in the order in which they were applied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.clock import ManualClock
from engine.engine import Engine
from engine.errors import ConfigError, ForkError
from engine.records import Arrived, Finished, Iteration, KnobChange
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.whatif import Journal, fork, replay
from engine.whatif.journal import Aborted, Life
from tests.engine.whatif.recordings import record, timed_engine
from tests.engine.whatif.test_replay import check_same


def made(id: str, length: int, output: int, arrival: float | None = None) -> Request:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return Request(id, [len(id) + length] * length, params, priority=length % 3, arrival=arrival)


@pytest.mark.parametrize("policy", ["lpm", "priority", "fair", "mlfq", "sjf"])
@pytest.mark.parametrize("back", [True, False])
def test_arrivals_before_a_knob(policy: str, back: bool) -> None:
    """A queue that was sorted anew is not the queue of requests that came to the new policy."""
    engine, clock = timed_engine(num_blocks=60, block_size=4, max_num_seqs=2, max_num_batched_tokens=32)
    engine.submit(made("z", 1, 6))

    def before(step: int) -> None:
        if step == 2:
            for index, length in enumerate((60, 8, 30, 4, 4, 9)):
                engine.submit(made(f"r{index}", length, 3, clock.now()))
            engine.set_knob("policy", policy)
            if back:
                engine.set_knob("policy", "fcfs")

    journal, records = record(engine, clock, before)
    assert any(it.order == "aaaaaak" + "k" * back for it in records)
    check_same(records, list(replay(journal)))
    assert fork(journal, 5, {"max_num_seqs": 3}).complete


def test_a_quantum_that_changed_after_arrivals() -> None:
    engine, clock = timed_engine(
        num_blocks=200, block_size=4, max_num_seqs=2, max_num_batched_tokens=32, policy="mlfq", mlfq_quantum=64
    )
    engine.submit(made("z", 1, 6))

    def before(step: int) -> None:
        if step == 2:
            for index, length in enumerate((60, 8, 30, 4)):
                engine.submit(made(f"r{index}", length, 12, clock.now()))
            engine.set_knob("mlfq_quantum", 1)

    journal, records = record(engine, clock, before)
    check_same(records, list(replay(journal)))


def test_aborts_between_knobs_and_of_planned_requests() -> None:
    engine, clock = timed_engine(num_blocks=40, block_size=4, max_num_seqs=2, max_num_batched_tokens=32)
    for index in range(8):
        engine.submit(made(f"r{index}", 5 + index, 12, 0.0 if index < 5 else 9.0 + index))

    def before(step: int) -> None:
        if step == 4:
            engine.abort("r1")
            engine.set_knob("num_blocks", 20)
            engine.submit(made("late", 7, 5, clock.now()))
            engine.abort("r6", "never wanted")
            engine.set_knob("num_blocks", 40)
            engine.abort("late")

    journal, records = record(engine, clock, before)
    at = next(it.seq for it in records if "x" in it.order)
    assert journal.commands[at].order == "xkaaxkx"
    kinds = [type(command) for command in journal.commands[at].in_order()]
    assert kinds == [Aborted, KnobChange, Life, Life, Aborted, KnobChange, Aborted]
    check_same(records, list(replay(journal)))


def test_refusals_are_left_out_and_records_without_order_go_on_as_before() -> None:
    def journal_of(order: str) -> list[object]:
        journal, params = Journal(timed_engine()[0].config), SamplingParams()
        arrived = tuple(Arrived(id, "", 0, 0.0, (1,), None, 5, "", params=params) for id in "pq")
        gone = Finished("p", "", FinishReason.ABORT, "", "", 1, 0, 0.0, 0, 0, 0)
        knob = KnobChange("watermark", 0.0, 0.1, 1)
        journal.add(Iteration(0, 0, 0.0, 0.0, knobs=(knob,), arrived=arrived, finished=(gone,), order=order))
        told = journal.commands[0].in_order()
        return [one.arrived.id if isinstance(one, Life) else one[0] for one in told]

    assert journal_of("rararkxr") == ["p", "q", "watermark", "p"]
    assert journal_of("") == ["watermark", "p", "p", "q"]
    assert journal_of("ka") == journal_of(""), "an order that does not fit is none"


def test_a_recording_from_before_there_was_an_order() -> None:
    engine, clock = timed_engine(num_blocks=60, block_size=4, max_num_seqs=2, max_num_batched_tokens=32)
    for index in range(6):
        engine.submit(made(f"r{index}", 5 + index, 12, 0.0))

    def before(step: int) -> None:
        if step == 4:
            engine.set_knob("max_num_seqs", 3)
            engine.abort("r1")
            engine.submit(made("late", 7, 5, clock.now()))

    _, records = record(engine, clock, before)
    old = Journal(timed_engine(num_blocks=60, block_size=4, max_num_seqs=2, max_num_batched_tokens=32)[0].config)
    for it in records:
        old.add(replace(it, order=""))
    check_same(records, list(replay(old)))


def anew(engine: Engine, clock: ManualClock, model: str = "fake", **asked: object) -> None:
    """What a rebuild of the same kind of engine does."""
    new = timed_engine(**asked)[0]
    new.clock = clock
    again = (lambda request: [7] * (request.num_prompt + 1)) if model != "fake" else None
    executor = engine.executor
    engine.rebuild(new, model, "none", again)
    execute = new.executor.execute

    def timed(plan):  # type: ignore[no-untyped-def]
        clock.advance(2e-3 + 1e-5 * plan.num_tokens)
        return execute(plan)._replace(forward=1e-3)

    assert executor is not new.executor
    new.executor.execute = timed  # type: ignore[method-assign]


@pytest.mark.parametrize("model", ["fake", "other"])
@pytest.mark.parametrize("among", [True, False])
def test_a_rebuild_is_repeated(model: str, among: bool) -> None:
    tight = {"num_blocks": 24, "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 48}
    engine, clock = timed_engine(**tight)
    for index in range(12):
        engine.submit(made(f"r{index}", 4 + 3 * index, 20, 0.01 * index))

    def before(step: int) -> None:
        if step == 20:
            if among:
                engine.submit(made("early", 9, 5, clock.now()))
                engine.set_knob("max_num_seqs", 2)
                engine.abort(engine.scheduler.running[0].id)
            anew(engine, clock, model, **{**tight, "num_blocks": 30, "block_size": 8, "max_num_seqs": 3})
            if among:
                engine.set_knob("num_blocks", 28)
                engine.submit(made("late", 9, 5, clock.now()))

    journal, records = record(engine, clock, before)
    seq = next(it.seq for it in records if it.rebuilt)
    order = journal.commands[seq].order
    assert order.count("b") == 1 and journal.commands[seq].model_changed == (model == "other")
    assert not among or (order.startswith("akxb") and order[4:6] == "ka"), order
    # Prompts that were encoded anew are the same request with other ids; all else is as it was.
    check_same(records, list(replay(journal)))
    future = fork(journal, 40, {"max_num_seqs": 2})
    assert future.complete and future.config.block_size == 8 and future.config.max_num_seqs == 2
    assert {done.id for it in future.records for done in it.finished} == {
        done.id for it in records if it.seq >= journal.prefix(40) for done in it.finished
    }
    earlier = fork(journal, 10, {"max_num_seqs": 2})
    assert earlier.complete and earlier.config.block_size == 4
    assert any("stays as it is" in note for note in earlier.notes)
    refused = [note for note in earlier.notes if "refused" in note]
    assert len(refused) == among and all("num_blocks=28" in note for note in refused)
    with pytest.raises(ConfigError, match="iteration 0"):
        fork(journal, 40, {"block_size": 16})


def test_two_rebuilds_in_one_record_are_told() -> None:
    engine, clock = timed_engine(num_blocks=24, block_size=4)
    for index in range(6):
        engine.submit(made(f"r{index}", 5, 20, 0.0))

    def before(step: int) -> None:
        if step == 8:
            anew(engine, clock, num_blocks=24, block_size=8)
            anew(engine, clock, num_blocks=24, block_size=2)

    journal, _ = record(engine, clock, before)
    assert fork(journal, 8, {}).complete
    with pytest.raises(ForkError, match="more than once"):
        fork(journal, 9, {})
    with pytest.raises(ForkError, match="more than once"):
        list(replay(journal))


def test_times_are_of_the_engine_of_that_iteration() -> None:
    engine, clock = timed_engine(lambda plan: 0.1, num_blocks=64, block_size=4)
    for index in range(4):
        engine.submit(made(f"r{index}", 5, 60, 0.0))

    def before(step: int) -> None:
        if step == 30:
            anew(engine, clock, num_blocks=64, block_size=8)

    journal, _ = record(engine, clock, before)
    for at, seconds in ((20, 0.1), (40, 2.04e-3)):
        first = fork(journal, at, {}).records[0]
        assert first.duration == pytest.approx(seconds, rel=0.02)


def test_a_rebuild_has_its_place_where_records_tell_it() -> None:
    """Requests that came to a queue before it was carried over wait elsewhere than those that came after."""
    engine, clock = timed_engine(num_blocks=60, block_size=4, max_num_seqs=1, policy="priority")
    engine.submit(made("z", 4, 30, 0.0))

    def before(step: int) -> None:
        if step == 5:
            engine.set_knob("policy", "lpm")
            engine.submit(made("early", 9, 5, clock.now()))
            anew(engine, clock, num_blocks=60, block_size=4, max_num_seqs=2, policy="lpm")
            engine.submit(made("late", 9, 5, clock.now()))
            engine.set_knob("max_num_seqs", 1)

    _, records = record(engine, clock, before)
    told = Journal(timed_engine(num_blocks=60, block_size=4, max_num_seqs=1, policy="priority")[0].config)
    for it in records:
        assert it.rebuilt is None or it.order in ("kaak", "kabak")
        told.add(it if it.rebuilt is None else replace(it, order="kabak"))
    commands = next(commands for commands in told.commands.values() if commands.rebuilt)
    assert commands.order == "kabak" and not commands.rebuilt_again
    assert [change.name for change in commands.knobs] == ["policy", "max_num_seqs"]
    check_same(records, list(replay(told)))
