"""Whatever is asked of an engine in whatever order, its invariants hold (FAULTS R-03, R-05, R-07).

A state machine drives Engine, Scheduler, BlockPool and EngineView together; only the model is made up.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from engine.clock import ManualClock
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.knobs import POLICY_NAMES, VICTIM_NAMES
from engine.records import Cause, Iteration, Kind, Reason
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView
from tests.engine.fakes import UNSAMPLED, FakeExecutor, fake_engine, made_up
from tests.engine.harness import check_view

FAMILIES = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 4, 9, 9, 9, 9], [200] * 16]
KNOB_VALUES: dict[str, list[Any]] = {
    "max_num_seqs": [1, 2, 3, 5, 16, 0, -1, 99999, "x", 2.5],
    "max_num_batched_tokens": [1, 3, 7, 16, 64, 0, None],
    "enable_chunked_prefill": [True, False, "off", "perhaps"],
    "policy": [*POLICY_NAMES, "lifo", "no.such:Policy"],
    "victim": [*VICTIM_NAMES, "nobody"],
    "preemption_mode": ["recompute", "swap"],
    "batching": ["continuous", "static"],
    "aging": [None, 0, 0.5, 30, -1],
    "client_weights": ["", "a=2,b=0.5", "a=0"],
    "client_token_budget": [0, 1, 3, 20],
    "requests_per_minute": [1, 3, 1000],
    "count_cached_tokens": [True, False],
    "prediction_noise": [0.0, 1.0],
    "drr_quantum": [None, 1, 50],
    "mlfq_quantum": [1, 8, 64],
    "reserve_output": [True, False],
    "long_prefill_token_threshold": [0, 1, 4, 9, 100000],
    "long_prefill_token_threshold_adaptive": [True, False],
    "scheduler_reserve_full_isl": [True, False],
    "watermark": [0.0, 0.3, 0.9, 0.95],
    "max_num_active_seqs": [None, 1, 2, 50],
    "max_num_scheduled_tokens": [None, 1, 5, 5000],
    "prefill_schedule_interval": [1, 2, 5, 0],
    "num_blocks": [2, 3, 4, 6, 8, 12, 20, 100],
    "block_size": [4],
    "no_such_knob": [1],
}


def made_up_but_sometimes_bad(id: str, position: int) -> int:
    token = made_up(id, position)
    return UNSAMPLED if id.endswith("3") and token == 40 else token


class _Prompt(list[int]):
    """Made late."""

    def ids(self) -> list[int]:
        return list(self)


class EngineMachine(RuleBasedStateMachine):
    """Every record is folded into a view, which must stay equal to the engine's own state."""

    ids = Bundle("ids")

    @initialize(
        blocks=st.integers(6, 20), size=st.sampled_from([1, 2, 3, 4]), caching=st.booleans(), chunked=st.booleans(),
        policy=st.sampled_from(POLICY_NAMES), mode=st.sampled_from(["recompute", "swap"]),
        batching=st.sampled_from(["continuous", "continuous", "static"]), swap=st.integers(0, 12),
        seqs=st.sampled_from([1, 2, 4, 8]), reserve=st.booleans(),
    )  # fmt: skip
    def begin(
        self, blocks: int, size: int, caching: bool, chunked: bool, policy: str, mode: str, batching: str, swap: int,
        seqs: int, reserve: bool,
    ) -> None:  # fmt: skip
        self.clock = ManualClock()
        self.engine, self.executor = fake_engine(
            self.clock, made_up_but_sometimes_bad, num_blocks=blocks, block_size=size, enable_prefix_caching=caching,
            enable_chunked_prefill=chunked, policy=policy, max_num_seqs=seqs, scheduler_reserve_full_isl=reserve,
            preemption_mode=mode, batching=batching, num_cpu_blocks=swap,
            **({"max_num_batched_tokens": max(8, seqs)} if chunked else {}),
        )  # fmt: skip
        config = self.engine.config
        self.view = EngineView(config.num_blocks, config.block_size, config.values())
        self.submitted: list[str] = []
        self.ends: dict[str, int] = {}
        self.arrived: list[str] = []
        self.admitted: list[str] = []
        self.tokens: dict[str, list[int]] = {}
        self.always_fcfs = policy == "fcfs" and batching == "continuous"
        self.idle_steps = 0
        self.serial = 0

    # ---- what can be asked ------------------------------------------------------------------------

    @rule(
        target=ids, family=st.integers(0, 2), length=st.integers(0, 30), tail=st.lists(st.integers(0, 3), max_size=3),
        output=st.one_of(st.none(), st.integers(1, 12)), priority=st.integers(-1, 1),
        client=st.sampled_from("abc"), deadline=st.sampled_from([None, 1.0]),
        delay=st.sampled_from([None, None, -1.0, 0.0, 0.5, 3.0]), bad=st.sampled_from([None] * 9 + [259, -1]),
        copies=st.integers(1, 3),
    )  # fmt: skip
    def submit(
        self, family: int, length: int, tail: list[int], output: int | None, priority: int, client: str,
        deadline: float | None, delay: float | None, bad: int | None, copies: int,
    ) -> Any:  # fmt: skip
        prompt = (FAMILIES[family] * 3)[:length] + tail + ([] if bad is None else [bad])
        new = []
        for _ in range(copies):
            self.serial += 1
            id = f"r{self.serial}"
            arrival = None if delay is None else self.clock.now() + delay
            params = SamplingParams(max_tokens=output, stop_token_ids=(50,), stop=("AB", "q"))
            self.submitted.append(id)
            self.engine.submit(
                Request(id, list(prompt), params, priority=priority, client=client, deadline=deadline, arrival=arrival)
            )
            new.append(id)
        return multiple(*new)

    @rule(
        target=ids, leader=ids, ahead=st.integers(0, 3), delay=st.sampled_from([0.0, 0.5, 2.0]), late=st.booleans(),
        length=st.integers(1, 20), output=st.integers(1, 6),
    )  # fmt: skip
    def submit_a_turn(self, leader: str, ahead: int, delay: float, late: bool, length: int, output: int) -> Any:
        """After one that was, is or will be here: `ahead` above 0 names itself or one that is submitted later."""
        self.serial += 1
        id = f"r{self.serial}"
        after = f"r{self.serial + ahead - 1}" if ahead else leader
        prompt = (FAMILIES[0] * 3)[:length]
        self.submitted.append(id)
        self.engine.submit(
            Request(
                id, [] if late else prompt, SamplingParams(max_tokens=output), after=after, delay=delay,
                late=_Prompt(prompt) if late else None,
            )
        )  # fmt: skip
        return id

    @rule(id=ids)
    def submit_an_id_again(self, id: str) -> None:
        """Refused while it lives and until its end is told; afterwards it is a new request."""
        self.submitted.append(id)
        self.engine.submit(Request(id, [1, 2, 3], SamplingParams(max_tokens=2)))

    @rule(id=ids, twice=st.booleans())
    def abort(self, id: str, twice: bool) -> None:
        self.engine.abort(id)
        if twice:
            self.engine.abort(id)

    @rule()
    def abort_unknown(self) -> None:
        self.engine.abort("nobody")

    @rule(data=st.data(), name=st.sampled_from(sorted(KNOB_VALUES)))
    def set_knob(self, data: st.DataObject, name: str) -> None:
        value = data.draw(st.sampled_from(KNOB_VALUES[name]))
        before = self.engine.config
        try:
            self.engine.set_knob(name, value)
        except ConfigError as error:
            assert self.engine.config == before and str(error)
        else:
            changed = {k for k, v in self.engine.config.values().items() if v != before.values()[k]}
            assert changed <= {name}
            config = self.engine.config
            self.always_fcfs &= config.policy == "fcfs" and config.batching == "continuous"
            self.always_fcfs &= config.client_token_budget == 0

    @rule(blocks=st.integers(6, 20), size=st.sampled_from([1, 2, 3, 4]), caching=st.booleans())
    def rebuild(self, blocks: int, size: int, caching: bool) -> None:
        """Block size and prefix caching change with the queue kept; the rest of the knobs stay."""
        kept = {
            name: value for name, value in self.engine.config.values().items()
            if name not in ("max_model_len", "num_blocks", "block_size", "enable_prefix_caching")
        }  # fmt: skip
        asked = {"num_blocks": blocks, "block_size": size, "enable_prefix_caching": caching}
        try:
            new, executor = fake_engine(self.clock, made_up_but_sometimes_bad, **kept, **asked)
        except ConfigError as error:
            assert str(error)
            return
        assert isinstance(executor, FakeExecutor)
        self.executor = executor
        self.engine.rebuild(new, "fake", "none")

    @rule(share=st.floats(0.1, 1.0), times=st.integers(0, 3))
    def resize(self, share: float, times: int) -> None:
        """The pool shrinks or grows while requests run."""
        allocated = self.engine.config.allocated_blocks
        self.engine.set_knob("num_blocks", max(2, int(share * allocated)))
        for _ in range(times):
            self.take(self.engine.step(), ran=True)

    @rule(policy=st.sampled_from(["srpt", "mlfq", "fair", "sjf", "drr", "priority"]), times=st.integers(0, 3))
    def switch_policy(self, policy: str, times: int) -> None:
        self.engine.set_knob("policy", policy)
        self.always_fcfs = False
        for _ in range(times):
            self.take(self.engine.step(), ran=True)

    @rule(value=st.sampled_from([0, "many", 4]))
    def try_knob(self, value: Any) -> None:
        self.engine.try_knob("max_num_seqs", value)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.engine.paused = paused

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.take(self.engine.step(), ran=True)

    @rule()
    def step_without_running(self) -> None:
        calls, before = self.executor.calls, [r.num_computed for r in self.engine.scheduler.requests.values()]
        self.take(self.engine.step(run=False), ran=False)
        assert self.executor.calls == calls
        assert [r.num_computed for r in self.engine.scheduler.requests.values()][: len(before)] == before

    # ---- what must hold ---------------------------------------------------------------------------

    def take(self, it: Iteration | None, *, ran: bool) -> None:
        if it is None:
            event = self.engine.next_event()
            held = event is not None and event > self.clock.now()
            assert held or not (ran and self.engine.scheduler.requests), "requests wait, nothing runs, nothing is said"
            return
        self.view.apply(it)
        check_view(self.view, self.engine)
        self.arrived += [a.id for a in it.arrived]
        self.admitted += [s.id for s in it.scheduled if s.kind is Kind.NEW]
        for r in it.rejected:
            assert r.reason
            self.ends[r.id] = self.ends.get(r.id, 0) + 1
        for f in it.finished:
            self.ends[f.id] = self.ends.get(f.id, 0) + 1
            assert f.output_len == len(self.view.requests[f.id].token_ids)
        self.check_budget(it)
        assert len({s.id for s in it.scheduled}) == len(it.scheduled)
        victims = {p.id for p in it.preempted if p.cause is not Cause.REBUILD}
        assert not {s.id for s in it.scheduled} & victims
        if ran and (it.running or it.waiting) and not it.executed:
            self.idle_steps += 1
            held = it.blocked is not None and it.blocked.reason is Reason.POLICY
            assert held or (it.preempted and self.idle_steps < 3), "work, but no progress"
        elif it.executed:
            self.idle_steps = 0
        if it.num_waiting and ran:
            assert it.blocked is not None and it.blocked.detail, "waiting without a reason"
            assert it.blocked.id in (*it.waiting, *it.swapped)
        live = {s.id for s in it.scheduled} | {u.id for u in it.unscheduled}
        assert not ran or set(it.running) <= live, "running, not scheduled, and no reason why"
        if self.always_fcfs:
            order = {id: at for at, id in enumerate(self.arrived)}  # the last arrival of an id that came again
            places = [order[id] for id in self.admitted if self.arrived.count(id) == 1]
            assert places == sorted(places), "admitted out of order"

    def check_budget(self, it: Iteration) -> None:
        if it.total_tokens > it.budget:
            # Only a whole prompt, alone among prompts, and only with chunked prefill off.
            assert not self.engine.config.enable_chunked_prefill
            whole = max(it.scheduled, key=lambda s: s.num_tokens)
            assert whole is it.scheduled[-1] and whole.kind in (Kind.NEW, Kind.RESUMED)
            assert it.total_tokens - whole.num_tokens <= it.budget < whole.num_tokens

    @invariant()
    def pool_is_whole(self) -> None:
        if not hasattr(self, "engine"):
            return
        scheduler = self.engine.scheduler
        scheduler.check()
        assert set(self.engine._outputs) == set(scheduler.requests)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        steps = 0
        while self.engine.has_work():
            event = self.engine.next_event()
            if event is not None and event > self.clock.now():
                self.clock.advance(event - self.clock.now())
            self.take(self.engine.step(), ran=True)
            steps += 1
            assert steps < 20000, "does not come to an end"
        self.take(self.engine.step(), ran=True)
        pool = self.engine.scheduler.pool
        assert pool.num_free == pool.num_usable and not any(ref > 0 for ref in pool.ref[1:])
        swap_pool = self.engine.scheduler.swap_pool
        assert swap_pool.num_free == swap_pool.num_blocks
        expected: dict[str, int] = {}
        for id in self.submitted:
            expected[id] = expected.get(id, 0) + 1
        assert self.ends == expected, "not exactly one end for every request"
        assert not self.engine._outputs and not self.executor._chains


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=int(os.environ.get("WORKBENCH_EXAMPLES", "200")),
    stateful_step_count=40,
    deadline=None,
    derandomize="WORKBENCH_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_two_thousand_requests_aborted_anywhere(policy: str) -> None:
    """R-05: every request aborted at a random moment or not at all, sometimes twice, under pressure for blocks."""
    rng = random.Random(5)
    engine, _ = fake_engine(
        num_blocks=40, block_size=4, max_model_len=60, max_num_batched_tokens=32, policy=policy,
        scheduler_reserve_full_isl=False,
    )  # fmt: skip
    config: EngineConfig = engine.config
    view = EngineView(config.num_blocks, config.block_size, config.values())
    ends: dict[str, list[FinishReason]] = {}
    serial = preemptions = 0
    states = set()
    while serial < 2000 or engine.has_work():
        for _ in range(rng.randrange(4) if serial < 2000 else 0):
            prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 40))]
            params = SamplingParams(max_tokens=rng.randrange(1, 20), ignore_eos=True)
            engine.submit(Request(f"r{serial}", prompt, params, priority=rng.randrange(3)))
            serial += 1
        alive = list(engine.scheduler.requests)
        for id in rng.sample(alive, min(len(alive), rng.randrange(3))):
            request = engine.scheduler.requests.get(id)
            if request is not None:
                states.add((str(request.status), request.num_output > 0, request.mid_prompt))
            for _ in range(rng.choice([1, 1, 2])):
                engine.abort(id)
        engine.abort(f"r{rng.randrange(2100)}")
        it = engine.step()
        if it is None:
            continue
        view.apply(it)
        preemptions += len(it.preempted)
        for done in it.finished:
            ends.setdefault(done.id, []).append(done.reason)
    assert set(ends) == {f"r{n}" for n in range(serial)} and all(len(reasons) == 1 for reasons in ends.values())
    assert preemptions > 20 and len(states) >= 5, states
    pool = engine.scheduler.pool
    assert pool.num_free == pool.num_usable and sorted(pool.free_queue()) == list(range(1, 40))
    check_view(view, engine)
