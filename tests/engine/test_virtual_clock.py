"""Time made of work: whole nanoseconds, told costs, nothing of the machine's own speed."""

from __future__ import annotations

import time

import pytest

from engine.clock import VirtualClock, whole_ns
from engine.commands import Pause, Resume, SetPace, Submit
from engine.engine import Engine
from engine.executors.timed import Costs, TimedExecutor
from engine.host import EngineInfo
from engine.loop import EngineThread
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine

COSTS = Costs(step_ns=10_000_000, token_ns=50_000)


def virtual_engine(**asked: object) -> tuple[Engine, VirtualClock]:
    clock = VirtualClock()
    engine, executor = fake_engine(clock, **asked)
    executor.hook = lambda plan: time.sleep(0.002)  # the machine's time, which must not show
    engine.executor = TimedExecutor(executor, clock, COSTS)
    return engine, clock


def request(id: str, prompt: int, output: int, arrival: float | None = None, after: str | None = None) -> Request:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return Request(id, [7] * prompt, params, arrival=arrival, after=after)


def test_times_are_whole_nanoseconds_and_never_early() -> None:
    clock = VirtualClock()
    clock.advance_ns(1)
    assert clock.now() == 1e-9
    for seconds in (0.1, 1 / 3, 2.7182818284590452, 1e6 + 1e-7):
        clock.advance_to(seconds)
        assert seconds <= clock.now() <= seconds + 2e-9
        assert clock.now() == round(clock.now() * 1e9) / 1e9
    at = clock.now()
    clock.advance_to(1.0)
    assert clock.now() == at, "it does not go back"
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance_ns(-1)
    assert whole_ns(0.1 + 0.2) == 0.3


def test_an_iteration_takes_what_its_work_costs() -> None:
    engine, clock = virtual_engine()
    for one in (request("a", 20, 3), request("b", 7, 2)):
        engine.submit(one)
    records = []
    while engine.has_work():
        it = engine.step()
        assert it is not None
        records.append(it)
    # 27 prompt tokens; then one for each that decodes
    assert [it.t_end - it.t_start for it in records] == pytest.approx([0.01135, 0.0101, 0.01005], abs=1e-12)
    assert records[-1].t_end == clock.now() == 0.0315
    first = records[0].timings
    assert (first.schedule, first.build, first.forward, first.sample, first.commit) == (0.0, 0.0, 0.01135, 0.0, 0.0)


def test_copied_blocks_cost_as_much_as_tokens() -> None:
    engine, _ = virtual_engine(
        num_blocks=8, block_size=4, num_cpu_blocks=16, preemption_mode="swap", max_num_seqs=3,
        enable_prefix_caching=False, scheduler_reserve_full_isl=False,
    )  # fmt: skip
    for name in "abc":
        engine.submit(request(name, 6, 12))
    records: list[Iteration] = []
    while engine.has_work():
        it = engine.step()
        assert it is not None
        records.append(it)
    copied = [it for it in records if it.copied.num_bytes]
    assert copied, "nothing was swapped"
    for it in copied:
        blocks = it.copied.out_blocks + it.copied.in_blocks
        assert it.timings.swap == pytest.approx(50e-6 * blocks, abs=1e-12)


def until(host: EngineThread, records: list[Iteration], ends: int, patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    while sum(len(it.finished) for it in records) < ends:
        assert time.monotonic() < deadline, "it does not come to an end"
        records += host.drain()
        time.sleep(0.002)


def test_in_a_thread_gaps_take_no_time_and_a_pace_is_kept() -> None:
    engine, _ = virtual_engine()
    info = EngineInfo("fake", "none", "none", 1, engine.config, 256, 0, 0)
    host = EngineThread(engine, info)
    host.post(
        Submit((request("now", 4, 2), request("tomorrow", 4, 2, 86_400.0), request("then", 4, 2, after="tomorrow")))
    )
    host.start()
    records: list[Iteration] = []
    until(host, records, 3)
    assert [new.arrival for it in records for new in it.arrived] == [0.0, 86_400.0, pytest.approx(86_400.02025)]

    host.post(SetPace(20.0))
    host.post(Submit((request("slow", 4, 6),)))
    begun = time.monotonic()
    until(host, records, 4)
    assert time.monotonic() - begun > 5 / 20 - 0.03, "people watch by the wall's clock"

    host.post(SetPace(None))
    host.post(Pause())
    host.post(Submit((request("later", 4, 2, host.now() + 50.0),)))
    time.sleep(0.2)
    assert not any(new.id == "later" for it in host.drain() for new in it.arrived), "while paused no time passes"
    host.post(Resume())
    until(host, records, 5)
    assert host.stop()
