"""Every policy in a whole engine whose pool is far too small: all finish, with the tokens they would get alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.policies import POLICIES
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine import harness
from tests.engine.fakes import fake_engine, made_up

SMALL = {
    "num_blocks": 25, "block_size": 4, "max_num_seqs": 6, "max_num_batched_tokens": 24, "num_cpu_blocks": 30,
    "drr_quantum": 20, "mlfq_quantum": 8,
}  # fmt: skip


def crowd(count: int = 24, seed: int = 0) -> list[Request]:
    """Arrivals over a second, of three clients, some sharing their beginning."""
    rng = random.Random(seed)
    requests = []
    for number in range(count):
        prompt = [1] * rng.choice([0, 40]) + [rng.randrange(2, 90) for _ in range(rng.randrange(1, 20))]
        requests.append(
            Request(
                f"r{number:02}", prompt, SamplingParams(max_tokens=rng.randrange(1, 30)), client=rng.choice("abc"),
                arrival=rng.choice([0.0, rng.random()]), deadline=rng.choice([None, 0.2, 2.0]),
                priority=rng.randrange(3),
            )
        )  # fmt: skip
    return requests


def finish(name: str, requests: list[Request], **asked: Any) -> harness.Run:
    clock = ManualClock()
    engine, _ = fake_engine(clock, policy=name, **{**SMALL, **asked})

    def before_step(step: int) -> None:
        clock.advance(0.03)
        if (due := engine.next_arrival()) is not None and not engine.scheduler.requests:
            clock.advance(max(0.0, due - clock.now()))
        engine.scheduler.check()

    for request in requests:
        engine.submit(request)
    out = harness.run(engine, before_step)
    engine.scheduler.check()
    assert len(engine.scheduler.waiting) == 0 and list(engine.scheduler.waiting) == []
    return out


def assert_everybody_got_their_tokens(out: harness.Run, requests: list[Request]) -> None:
    assert len(out.token_ids) == len(requests)
    for request in requests:
        first, most = request.num_prompt, request.params.max_tokens or 0
        assert out.token_ids[request.id] == [made_up(request.id, first + n) for n in range(most)], request.id


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("name", list(POLICIES))
def test_all_finish(name: str, mode: str) -> None:
    requests = crowd()
    out = finish(name, requests, preemption_mode=mode)
    assert_everybody_got_their_tokens(out, requests)
    assert sum(out.preemptions.values()), "the pool was not too small"


@pytest.mark.parametrize("name", list(POLICIES))
def test_all_finish_in_static_batches(name: str) -> None:
    requests = crowd(12)
    out = finish(name, requests, batching="static")
    assert_everybody_got_their_tokens(out, requests)


def test_policies_change_while_everything_goes_on() -> None:
    requests = crowd(40)
    clock = ManualClock()
    engine, _ = fake_engine(clock, **SMALL)
    for request in requests:
        engine.submit(request)
    names = [*POLICIES, *reversed(POLICIES)]

    def before_step(step: int) -> None:
        clock.advance(0.03)
        engine.set_knob("policy", names[step % len(names)])

    out = harness.run(engine, before_step)
    assert_everybody_got_their_tokens(out, requests)


def test_rpm_leaves_the_server_idle_until_a_minute_has_passed() -> None:
    clock = ManualClock()
    engine, _ = fake_engine(clock, policy="rpm", requests_per_minute=2)
    for number in range(5):
        engine.submit(Request(f"r{number}", [1, 2], SamplingParams(max_tokens=2), client="a"))
    waits = 0
    while engine.has_work():
        if engine.step() is not None:
            clock.advance(0.5)
            continue
        due = engine.next_event()
        assert due is not None and due > clock.now(), "stuck"
        clock.advance(due - clock.now())
        waits += 1
    assert waits == 2
    assert 120 <= clock.now() < 123


@pytest.mark.parametrize("name", ["srpt", "mlfq"])
def test_a_short_request_displaces_a_long_one(name: str) -> None:
    engine, _ = fake_engine(ManualClock(), policy=name, max_num_seqs=2, mlfq_quantum=8)
    for number in range(2):
        engine.submit(Request(f"long{number}", [1] * 6, SamplingParams(max_tokens=100)))

    def before_step(step: int) -> None:
        if step == 20:
            engine.submit(Request("short", [1] * 6, SamplingParams(max_tokens=3)))

    out = harness.run(engine, before_step)
    assert out.preemptions == {"long0": 0, "long1": 1, "short": 0}
    ends = {done.id: iteration.step for iteration in out.iterations for done in iteration.finished}
    assert ends["short"] < 30 < ends["long0"]
