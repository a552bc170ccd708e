"""The real engine without a model, run by hand: for what the scripted host does not play (swapping, static batches,
policies, a pool that shrinks, rebuilds)."""

from __future__ import annotations

from collections import deque
from typing import Any

from engine.clock import ManualClock
from engine.commands import Abort, Command, Pause, Rebuild, Resume, RunSteps, SetKnob, SetPace, Submit
from engine.errors import ConfigError, WorkbenchError
from engine.host import EngineInfo, InFlight, Observer
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import FakeExecutor, fake_engine

KNOBS = {"num_blocks": 40, "block_size": 16, "max_num_batched_tokens": 64, "max_num_seqs": 6}
SWAP = {"preemption_mode": "swap", "scheduler_reserve_full_isl": False, "num_cpu_blocks": 64}
STEP_SECONDS = 0.05


class ModellessHost:
    in_flight: InFlight | None = None

    def __init__(self, **knobs: Any) -> None:
        self.clock = ManualClock()
        self.asked = KNOBS | knobs
        self.model, self.dtype = "fake-0.1b", "float32"
        self.engine, executor = fake_engine(self.clock, **self.asked)
        self._slow(executor)
        self.start_config = self.engine.config
        self.posted: list[Command] = []
        self.commands: deque[Command] = deque()
        self.records: deque[Iteration] = deque()
        self.started = self.stopped = False
        self.hold_rebuild = False
        """Tests set it to see the screen while an engine is built."""

    def _slow(self, executor: FakeExecutor) -> None:
        executor.reads = False
        executor.hook = lambda plan: self.clock.advance(STEP_SECONDS)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(self.model, "cpu", self.dtype, 1, self.start_config, 256, 1 << 20, 123_456)

    @property
    def alive(self) -> bool:
        return self.started and not self.stopped

    def start(self) -> None:
        self.started = True

    def post(self, command: Command) -> None:
        self.posted.append(command)
        self.commands.append(command)

    def now(self) -> float:
        return self.clock.now()

    def stop(self, timeout: float = 1.0) -> bool:
        self.stopped = True
        return True

    def drain(self, limit: int | None = None) -> list[Iteration]:
        self._apply()
        record = self.engine.step(run=False)
        if record is not None:
            self.records.append(record)
        count = len(self.records) if limit is None else min(limit, len(self.records))
        return [self.records.popleft() for _ in range(count)]

    def observe(self, observer: Observer | None) -> None:
        raise AssertionError("nobody records here")

    def advance(self, steps: int = 1) -> None:
        for _ in range(steps):
            self._apply()
            record = self.engine.step(run=not self.engine.paused)
            if record is None:
                self.clock.advance(STEP_SECONDS)
            else:
                self.records.append(record)

    def submit(self, id: str, prompt: int, max_tokens: int, client: str = "alice", **more: Any) -> None:
        ids = [(len(id) * 7 + i * 13 + ord(id[-1])) % 200 for i in range(prompt)]
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.commands.append(Submit((Request(id, ids, params, client=client, **more),)))

    def _apply(self) -> None:
        while self.commands:
            match command := self.commands[0]:
                case Submit(requests):
                    for request in requests:
                        self.engine.submit(request)
                case Abort(id):
                    self.engine.abort(id)
                case SetKnob(name, value):
                    self.engine.try_knob(name, value)
                case Rebuild(changes):
                    if self.hold_rebuild:
                        return
                    self._rebuild(changes)
                case Pause():
                    self.engine.paused = True
                case Resume():
                    self.engine.paused = False
                case RunSteps() | SetPace():
                    pass
                case _:
                    raise AssertionError(command)
            self.commands.popleft()

    def _rebuild(self, changes: dict[str, Any]) -> None:
        old, start = self.engine.config.values(), self.start_config.values()
        knobs = {name: value for name, value in changes.items() if name not in ("model", "dtype")}
        asked = self.asked | {name: value for name, value in old.items() if value != start[name]} | knobs
        try:
            if changes.get("model") == "missing":
                raise WorkbenchError("no model 'missing' here")
            new, executor = fake_engine(self.clock, **asked)
        except (ConfigError, WorkbenchError) as error:
            self.engine.notice(f"refused {error}")
            return
        self._slow(executor)
        self.asked, self.start_config = asked, new.config
        reencode = (lambda request: None) if "model" in changes else None
        self.model, self.dtype = changes.get("model", self.model), changes.get("dtype", self.dtype)
        self.engine.rebuild(new, self.model, self.dtype, reencode)


def swapping_host() -> ModellessHost:
    """Six requests that outgrow the pool one after the other, then come back."""
    host = ModellessHost(**SWAP)
    for n in range(6):
        host.submit(f"s{n}", 60 + 10 * n, 70, client=("alice", "bob", "load")[n % 3])
    return host


def static_host() -> ModellessHost:
    host = ModellessHost(batching="static", num_blocks=80, max_num_seqs=4)
    for n in range(7):
        host.submit(f"b{n}", 20 + 9 * n, 6 + 7 * ((n * 5) % 7), client=("alice", "bob")[n % 2])
    return host
