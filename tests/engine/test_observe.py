"""An observer is shown every record in the engine's thread, from exactly where its caller's own state ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from engine.errors import WorkbenchError
from engine.host import EngineInfo
from engine.loop import EngineThread
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import FakeExecutor, fake_engine


class Seen:
    def __init__(self, fail_at: int | None = None) -> None:
        self.records: list[Iteration] = []
        self.closed = 0
        self.threads: set[str] = set()
        self.fail_at = fail_at

    def add(self, it: Iteration) -> None:
        if it.seq == self.fail_at:
            raise WorkbenchError("the disk is full")
        self.threads.add(threading.current_thread().name)
        self.records.append(it)

    def close(self) -> None:
        self.closed += 1


def host(requests: int = 40) -> tuple[EngineThread, FakeExecutor]:
    engine, executor = fake_engine(num_blocks=200, block_size=4, max_num_seqs=8)
    executor.reads = False
    for n in range(requests):
        engine.submit(Request(f"r{n}", [1, 2, 3], SamplingParams(max_tokens=20, ignore_eos=True)))
    return EngineThread(engine, EngineInfo("fake", "cpu", "float32", 1, engine.config, 259, 0, 0)), executor


def until(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not done():
        assert time.monotonic() < limit, "nothing happens"
        time.sleep(0.001)


def finished(seen: list[Iteration], count: int = 40) -> bool:
    return sum(len(it.finished) for it in seen) == count


def test_from_the_start() -> None:
    thread, _ = host()
    seen = Seen()
    thread.observe(seen)
    thread.start()
    drained: list[Iteration] = []
    until(lambda: drained.extend(thread.drain()) or finished(drained))
    assert thread.stop(5)
    assert seen.records == drained and seen.closed == 1 and seen.threads == {"engine"}


@pytest.mark.parametrize("wait", [0.0, 0.004, 0.01])
def test_from_the_middle_nothing_is_missed_or_repeated(wait: float) -> None:
    """Records drained between asking and beginning, and records not drained yet, all reach it."""
    thread, executor = host()
    executor.hook = lambda plan: time.sleep(0.0005)
    thread.start()
    time.sleep(wait)
    drained = thread.drain(5)
    at = drained[-1].seq if drained else -1
    first, second = Seen(), Seen()
    thread.observe(first)
    drained += thread.drain(3)
    between = drained[-1].seq if drained else -1
    thread.observe(second)
    until(lambda: drained.extend(thread.drain()) or finished(drained))
    assert thread.stop(5)
    assert first.closed == second.closed == 1
    assert [it.seq for it in second.records] == list(range(between + 1, len(drained)))
    assert [it.seq for it in first.records] == list(range(at + 1, at + 1 + len(first.records)))
    assert second.records == drained[between + 1 :]


def test_no_observer_any_more() -> None:
    thread, _ = host()
    seen = Seen()
    thread.observe(seen)
    thread.observe(None)
    thread.start()
    until(lambda: seen.closed == 1)
    assert thread.stop(5) and seen.closed == 1


def test_an_observer_that_fails_costs_a_notice_and_not_the_run() -> None:
    thread, _ = host()
    seen = Seen(fail_at=7)
    thread.observe(seen)
    thread.start()
    drained: list[Iteration] = []
    until(lambda: drained.extend(thread.drain()) or finished(drained))
    assert thread.stop(5)
    assert [it.seq for it in seen.records] == list(range(7)) and seen.closed == 1
    notices = [notice for it in drained for notice in it.notices]
    assert notices == ["records are no longer written: the disk is full"]


def test_a_fault_is_shown_and_the_observer_closed() -> None:
    thread, executor = host()
    seen = Seen()

    def fail(plan: object) -> None:
        if executor.calls == 5:
            raise RuntimeError("broken")

    executor.hook = fail
    thread.observe(seen)
    thread.start()
    until(lambda: seen.closed == 1)
    assert seen.records[-1].fault is not None and "broken" in seen.records[-1].fault
    assert thread.drain() == seen.records
