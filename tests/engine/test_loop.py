"""`EngineThread`: commands, waiting, pace, faults and the end, on an engine whose model is made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from engine.clock import RealClock
from engine.commands import Abort, Pause, Resume, RunSteps, SetKnob, SetPace, Submit
from engine.engine import Engine
from engine.host import EngineInfo
from engine.loop import EngineThread
from engine.plan import Plan
from engine.records import Iteration
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView
from tests.engine.fakes import FakeExecutor, fake_engine
from tests.engine.harness import check_view

LONG = SamplingParams(max_tokens=400, ignore_eos=True)
PATIENCE_S = 20.0
"""How long a test waits for what must come: generous, since the cores are shared."""


class Host:
    """An engine thread, all its records, and how often `step` was called."""

    def __init__(self, *, real_sleep: float = 0.0, **asked: Any) -> None:
        engine, executor = fake_engine(RealClock(), **asked)
        self.engine: Engine = engine
        self.executor: FakeExecutor = executor
        self.steps = 0
        step = engine.step

        def counted(*, run: bool = True) -> Iteration | None:
            self.steps += 1
            return step(run=run)

        engine.step = counted  # type: ignore[method-assign]
        if real_sleep:
            executor.hook = lambda plan: time.sleep(real_sleep)
        config = engine.config
        info = EngineInfo("fake", "cpu", "none", 1, config, 259, 0, 0)
        self.thread = EngineThread(engine, info)
        self.view = EngineView(config.num_blocks, config.block_size, config.values())
        self.records: list[Iteration] = []

    def post(self, *commands: Any) -> None:
        for command in commands:
            self.thread.post(command)

    def submit(self, *ids: str, after: float | None = None, params: SamplingParams = LONG) -> None:
        arrival = None if after is None else self.thread.now() + after
        self.post(Submit(tuple(Request(id, [1, 2, 3], params, arrival=arrival) for id in ids)))

    def drain(self) -> list[Iteration]:
        new = self.thread.drain()
        for it in new:
            self.view.apply(it)
        self.records += new
        return new

    def until(self, condition: Callable[[], Any], timeout: float = PATIENCE_S) -> None:
        """Drain until the condition holds."""
        limit = time.monotonic() + timeout
        while True:
            self.drain()
            if condition():
                return
            assert time.monotonic() < limit, "did not happen in time"
            time.sleep(0.002)

    def quiet(self, seconds: float = 0.15) -> list[Iteration]:
        """The records that come within some time, when none or few should."""
        self.drain()
        time.sleep(seconds)
        return self.drain()

    def finished(self, id: str) -> FinishReason | None:
        request = self.view.requests.get(id)
        return request.finish_reason if request else None


@pytest.fixture
def host() -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(**asked: Any) -> Host:
        hosts.append(Host(**asked))
        return hosts[-1]

    yield make
    for one in hosts:
        one.thread.stop(5)


def test_requests_run_to_their_end(host: Callable[..., Host]) -> None:
    h = host()
    assert not h.thread.alive
    h.submit("a", "b", params=SamplingParams(max_tokens=5, ignore_eos=True))
    h.thread.start()
    assert h.thread.alive
    h.until(lambda: h.finished("a") and h.finished("b"))
    assert [it.seq for it in h.records] == list(range(len(h.records)))
    assert h.thread.stop(2) and not h.thread.alive
    check_view(h.view, h.engine)


def test_drain_takes_part(host: Callable[..., Host]) -> None:
    h = host()
    h.submit("a", params=SamplingParams(max_tokens=9, ignore_eos=True))
    h.thread.start()
    h.until(lambda: h.finished("a"))
    h.submit("b", params=SamplingParams(max_tokens=9, ignore_eos=True))
    limit = time.monotonic() + PATIENCE_S
    first: list[Iteration] = []
    while len(first) < 4 and time.monotonic() < limit:
        part = h.thread.drain(2)
        assert len(part) <= 2
        first += part
    assert [it.seq for it in first] == list(range(first[0].seq, first[0].seq + len(first)))


def test_starts_paused_and_steps(host: Callable[..., Host]) -> None:
    h = host()
    h.post(Pause())
    h.submit("a", "b")
    h.thread.start()
    h.until(lambda: h.view.num_waiting == 2)
    assert h.executor.calls == 0 and h.view.paused and not h.quiet()
    for steps, total in ((1, 1), (3, 4)):
        h.post(RunSteps(steps))
        h.until(lambda total=total: h.view.step == total and h.view.paused)
        assert not h.quiet() and h.executor.calls == total
    h.post(RunSteps(0), RunSteps(-5))
    assert not h.quiet() and h.view.paused
    h.post(Resume())
    h.until(lambda: h.view.step > 20)
    h.post(Pause())
    h.until(lambda: h.view.paused)
    at = h.view.step
    assert not h.quiet() and h.view.step == at


def test_pause_takes_back_steps(host: Callable[..., Host]) -> None:
    h = host(real_sleep=0.01)
    h.submit("a")
    h.post(Pause())
    h.thread.start()
    h.post(RunSteps(1000))
    h.until(lambda: h.view.step >= 2)
    h.post(Pause())
    h.until(lambda: h.view.paused)
    h.post(Resume())
    at = h.view.step
    h.until(lambda: h.view.step > at + 2)
    assert not h.view.paused


def test_commands_while_paused_are_told_at_once(host: Callable[..., Host]) -> None:
    h = host()
    h.post(Pause())
    h.submit("a", "b")
    h.thread.start()
    h.until(lambda: h.view.num_waiting == 2)
    h.post(SetKnob("max_num_seqs", 1), SetKnob("max_num_seqs", "many"), Abort("a"), Abort("a"), Abort("nobody"))
    h.until(lambda: h.finished("a") and h.view.knobs["max_num_seqs"] == 1)
    assert h.finished("a") is FinishReason.ABORT
    assert sum(len(it.notices) for it in h.records) == 1
    assert h.executor.calls == 0
    h.post(SetPace(-1.0), SetPace(float("nan")))
    h.until(lambda: sum(len(it.notices) for it in h.records) == 3)
    assert h.view.pace is None


@pytest.mark.parametrize("paused", [True, False])
def test_planned_arrivals(host: Callable[..., Host], paused: bool) -> None:
    """While idle and while paused they arrive at their time, without anybody asking."""
    h = host()
    if paused:
        h.post(Pause())
    h.thread.start()
    h.submit("later", after=0.3)
    h.submit("sooner", after=0.1)
    h.submit("never", after=1e12)
    h.until(lambda: h.view.planned == 3)
    assert not h.view.requests
    h.until(lambda: "later" in h.view.requests)
    order = [a.id for it in h.records for a in it.arrived]
    assert order == ["sooner", "later"]
    for it in h.records:
        for a in it.arrived:
            assert it.t_end >= a.arrival
    assert (h.view.step == 0) == paused or not paused
    h.post(Abort("never"))
    h.until(lambda: h.finished("never"))


def test_pace(host: Callable[..., Host]) -> None:
    h = host()
    h.post(SetPace(50.0))
    h.submit("a")
    h.thread.start()
    h.until(lambda: h.view.step >= 12)
    starts = [it.t_start for it in h.records if it.executed]
    gaps = [b - a for a, b in pairwise(starts)]
    assert min(gaps) >= 0.0199
    h.post(SetPace(None))
    h.until(lambda: h.finished("a"))
    assert h.view.pace is None


@pytest.mark.parametrize("pace", [0.01, 1e-300, 5e-324])
def test_a_command_does_not_wait_for_the_pace(host: Callable[..., Host], pace: float) -> None:
    """Also at paces whose period no timer can hold."""
    h = host()
    h.post(SetPace(pace))
    h.submit("a", "b")
    h.thread.start()
    h.until(lambda: h.view.step == 1)
    for number in range(2, 6):
        posted = time.monotonic()
        h.post(SetKnob("max_num_seqs", number))
        h.until(lambda number=number: h.view.knobs["max_num_seqs"] == number)
        assert time.monotonic() - posted < 1
    h.post(Abort("a"))
    h.until(lambda: h.finished("a"))
    assert h.view.step == 1 and h.steps < 40, "a busy loop"
    h.post(SetPace(None))
    h.until(lambda: h.finished("b"))


def test_idle_does_nothing(host: Callable[..., Host]) -> None:
    """No polling: idle, idle with a far arrival, paused with requests, and waiting for a slow pace."""
    h = host()
    h.thread.start()
    h.submit("far", after=1000.0)
    h.until(lambda: h.view.planned == 1)
    for before in ((), (Pause(), Submit((Request("a", [1], LONG),))), (SetPace(0.01), Resume())):
        h.post(*before)
        h.quiet(0.1)
        steps, cpu = h.steps, time.process_time()
        assert not h.quiet(0.4)
        assert h.steps - steps <= 1, before
        assert time.process_time() - cpu < 0.1


def test_stalled_is_polled_slowly(host: Callable[..., Host]) -> None:
    """Should requests wait and nothing be schedulable, the loop must not spin."""
    h = host()
    h.engine.scheduler.schedule = lambda now=0.0: Plan()  # type: ignore[method-assign]
    h.submit("a")
    h.thread.start()
    h.until(lambda: h.view.num_waiting == 1)
    steps = h.steps
    h.quiet(0.5)
    assert h.steps - steps <= 15


# ---- the end ----------------------------------------------------------------------------------------


STATES: dict[str, list[Any]] = {
    "idle": [],
    "running": [Submit((Request("a", [1], LONG), Request("b", [2], LONG)))],
    "paused": [Pause(), Submit((Request("a", [1], LONG),))],
    "slow": [SetPace(0.001), Submit((Request("a", [1], LONG),))],
    "planned": [Submit((Request("a", [1], LONG, arrival=1e6),))],
}


@pytest.mark.parametrize("state", STATES)
def test_stop_in_any_state(host: Callable[..., Host], state: str) -> None:
    h = host()
    h.thread.start()
    h.post(*STATES[state])
    h.quiet(0.05)
    begun = time.monotonic()
    assert h.thread.stop(2.0)
    assert time.monotonic() - begun < 2 and not h.thread.alive
    assert h.thread.stop(2.0), "twice is fine"
    assert not any(it.fault for it in h.thread.drain())


def test_stop_before_start_and_right_after(host: Callable[..., Host]) -> None:
    h = host()
    assert h.thread.stop(1)
    other = host()
    other.submit("a")
    other.thread.start()
    assert other.thread.stop(2)


def test_stop_while_the_executor_is_stuck(host: Callable[..., Host]) -> None:
    """R-22, R-33: stop gives up in time, and the thread does not keep the process alive."""
    h = host()
    stuck = threading.Event()
    h.executor.hook = lambda plan: stuck.wait(30) and None
    h.submit("a")
    h.thread.start()
    h.until(lambda: h.executor.calls == 1)
    begun = time.monotonic()
    assert not h.thread.stop(0.3)
    assert 0.25 < time.monotonic() - begun < 2
    assert h.thread.alive
    assert all(t.daemon for t in threading.enumerate() if t.name == "engine")
    stuck.set()
    assert h.thread.stop(5)


def test_commands_posted_while_the_executor_runs(host: Callable[..., Host]) -> None:
    """They apply after the iteration, in the order posted; the request just aborted gets its token, then its end."""
    h = host()
    go = threading.Event()
    h.executor.hook = lambda plan: go.wait(20) and None
    h.submit("a", "b")
    h.thread.start()
    h.until(lambda: h.executor.calls == 1)
    h.post(Pause(), Abort("a"), Resume(), Pause(), SetKnob("max_num_seqs", 2))
    assert h.executor.calls == 1
    go.set()
    h.until(lambda: h.view.paused)
    assert h.view.step == 1 and h.finished("a") is FinishReason.ABORT
    assert h.view.requests["a"].output_len == 1 and h.view.knobs["max_num_seqs"] == 2
    check_view(h.view, h.engine)


# ---- faults -----------------------------------------------------------------------------------


def test_fault_in_the_executor(host: Callable[..., Host], capfd: pytest.CaptureFixture[str]) -> None:
    h = host(max_num_seqs=1)

    def fail(plan: Any) -> None:
        if h.executor.calls == 3:
            h.submit("too late")  # in the inbox when the fault comes
            raise RuntimeError("the card fell out")

    h.executor.hook = fail
    h.submit("runs", "waits")
    h.submit("planned", after=1000.0)
    h.thread.start()
    h.until(lambda: h.view.fault is not None)
    h.until(lambda: not h.thread.alive)
    assert not h.drain()
    last = h.records[-1]
    assert last.fault is not None and "the card fell out" in last.fault and "in fail" in last.fault
    assert h.finished("runs") is h.finished("waits") is FinishReason.ERROR
    assert {r.id for r in last.rejected} == {"planned", "too late"}
    assert h.view.requests["runs"].output_len == 2
    assert h.thread.stop(1)
    h.post(Submit((Request("after", [1], LONG),)))
    assert not h.quiet(0.05)
    assert capfd.readouterr() == ("", "")


def test_fault_between_iterations(host: Callable[..., Host]) -> None:
    """A command that breaks the engine ends it as visibly as a broken iteration does."""
    h = host()
    h.thread.start()
    h.submit("a")
    h.until(lambda: h.view.step > 0)
    h.post(Submit((None,)))  # type: ignore[arg-type]
    h.until(lambda: h.view.fault is not None)
    assert h.finished("a") in (FinishReason.ERROR, FinishReason.LENGTH)
    h.until(lambda: not h.thread.alive)


def test_many_threads_post_at_once(host: Callable[..., Host]) -> None:
    """Every request of 8 threads gets exactly one end, whatever the others do meanwhile."""
    h = host(num_blocks=60, block_size=4, max_num_seqs=8)
    h.thread.start()
    params = SamplingParams(max_tokens=3, ignore_eos=True)

    def client(number: int) -> None:
        for n in range(40):
            h.post(Submit((Request(f"{number}-{n}", [number, n], params),)))
            if n % 3 == 0:
                h.post(Abort(f"{number}-{n - 2}"), SetKnob("max_num_seqs", 1 + n % 8))
            if n % 10 == 0:
                h.post(Pause(), Resume())

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    h.until(lambda: sum(h.view.finished.values()) == 320)
    ends = [f.id for it in h.records for f in it.finished]
    assert len(ends) == len(set(ends)) == 320
