"""Whole runs of a toy server, driving the real policies, whose integers were computed elsewhere.

One iteration is one unit of time: arrivals first (A before B), then the head is admitted while the pool can reserve its
prompt and its whole output, then every running request gets a token, then those that are complete leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from engine.policies import Policy, PolicyEnv
from engine.policies.ranked import Ranked
from engine.request import Request
from tests.engine.policies.helpers import make, policy_of

Arrivals = Callable[[int], Sequence[tuple[str, int, int]]]
"""Client, prompt and output of each request that arrives in an iteration."""


class Served(NamedTuple):
    a: list[float]
    """Service of client A up to and with each iteration, over its weight."""
    b: list[float]
    done: int

    def between(self, start: int, end: int) -> tuple[float, float]:
        def gained(service: list[float]) -> float:
            return service[end - 1] - (service[start - 1] if start else 0.0)

        return gained(self.a), gained(self.b)

    def difference(self, start: int = 0, end: int | None = None) -> float:
        """Largest difference of service counted from an iteration on."""
        last = len(self.a) if end is None else end
        return max(abs(a - b) for a, b in (self.between(start, upto) for upto in range(start + 1, last + 1)))


def simulate(policy: Policy, arrivals: Arrivals, pool: int, iterations: int) -> Served:
    weights = policy.env.config.weights
    running: list[Request] = []
    service = {"A": 0.0, "B": 0.0}
    served = Served([], [], 0)
    free, count, done = pool, 0, 0
    for now in range(iterations):
        policy.env.now = float(now)
        for client, prompt, output in arrivals(now):
            count += 1
            policy.add(make(f"{count:06}", prompt, output, client=client, arrival=float(now)))
        policy.begin()
        while len(policy):
            head = policy.head()
            need = head.num_prompt + (head.params.max_tokens or 0)
            if need > free:
                break
            free -= need
            policy.take(head)
            running.append(head)
            service[head.client] += head.num_prompt / weights.get(head.client, 1.0)
        for request in list(running):
            if policy.counts:
                start = request.num_computed
                policy.served(request, start, request.num_tokens - start, True)
            request.num_computed = request.num_tokens
            request.token_ids.append(0)
            service[request.client] += 2 / weights.get(request.client, 1.0)
            if request.num_output == request.params.max_tokens:
                running.remove(request)
                policy.ended(request)
                free += request.num_tokens
                done += 1
        served.a.append(service["A"])
        served.b.append(service["B"])
    return served._replace(done=done)


def two_of_b(now: int) -> list[tuple[str, int, int]]:
    return [("A", 16, 16), ("B", 16, 16), ("B", 16, 16)]


@pytest.mark.parametrize(("name", "service", "difference"), [("fcfs", (3210, 6376), 3166), ("fair", (4744, 4842), 98)])
def test_a_who_asks_twice_as_often(name: str, service: tuple[int, int], difference: int) -> None:
    """A full pool's worth of output tokens makes the bound 2 * 2 * 256 = 1024."""
    served = simulate(policy_of(name), two_of_b, 256, 400)
    assert served.between(0, 400) == service
    assert served.difference() == difference


@pytest.mark.parametrize(("name", "service"), [("fcfs", (4788, 4788)), ("fair", (2492, 7084))])
def test_a2_weights_one_to_three(name: str, service: tuple[int, int]) -> None:
    policy = policy_of(name, client_weights="A=1,B=3")
    served = simulate(policy, lambda now: [("A", 16, 16), ("B", 16, 16)], 256, 400)
    assert served.a[-1] == service[0]
    assert served.b[-1] * 3 == pytest.approx(service[1])
    if name == "fair":
        assert served.difference() == pytest.approx(130 + 2 / 3)


@pytest.mark.parametrize(
    ("name", "service", "done", "difference"),
    [("fcfs", (1920, 3526), 96, 1606), ("fair", (3336, 3448), 155, 484)],
)
def test_b_short_against_long_requests(name: str, service: tuple[int, int], done: int, difference: int) -> None:
    served = simulate(policy_of(name), lambda now: [("A", 16, 4)] * 4 + [("B", 64, 64)], 512, 300)
    assert (served.between(0, 300), served.done, served.difference()) == (service, done, difference)


@pytest.mark.parametrize(
    ("name", "service", "difference"),
    [("fcfs", (1184, 0), None), ("fair", (608, 576), 80), ("lcf", (88, 1096), 2192)],
)
def test_c_who_comes_late(name: str, service: tuple[int, int], difference: int | None) -> None:
    """A alone for 200 iterations, then both: what was not asked for before gives no claim, except under lcf."""

    def arrivals(now: int) -> list[tuple[str, int, int]]:
        return [] if now % 2 else [("A", 16, 16)] if now < 200 else [("A", 16, 16), ("B", 16, 16)]

    served = simulate(policy_of(name), arrivals, 128, 400)
    assert served.between(200, 300) == service
    if difference is not None:
        assert served.difference(200, 400) == difference


# ---- eight requests in a few slots, prompts free ------------------------------------------------------

OUTPUTS = [20, 45, 210, 33, 8, 67, 400, 12]


class LongestFirst(Ranked):
    def key(self, request: Request) -> tuple[float, float, str]:
        return -float(request.expected_output or 0), 0.0, request.id


def finishes(policy: Policy, slots: int) -> list[int]:
    waiting = [make(str(index), 1, output) for index, output in enumerate(OUTPUTS)]
    for request in waiting:
        policy.add(request)
    running: list[Request] = []
    finish = [0] * len(OUTPUTS)
    now = 0
    while len(policy) or running:
        policy.env.now = float(now)
        policy.begin()
        while len(policy) and len(running) < slots:
            running.append(policy.head())
            policy.take(running[-1])
        now += 1
        for request in list(running):
            request.token_ids.append(0)
            if request.num_output == request.expected_output:
                finish[int(request.id)] = now
                running.remove(request)
    return finish


@pytest.mark.parametrize(
    ("slots", "finish"),
    [
        (8, OUTPUTS),
        (4, [20, 45, 210, 33, 28, 95, 433, 57]),
        (2, [20, 45, 230, 78, 86, 153, 553, 242]),
    ],
)
def test_first_come(slots: int, finish: list[int]) -> None:
    assert finishes(policy_of("fcfs"), slots) == finish


@pytest.mark.parametrize(("slots", "mean", "makespan"), [(4, 108.5, None), (2, 134.125, 512), (1, 204.25, 795)])
@pytest.mark.parametrize("name", ["sjf", "srpt"])
def test_shortest_first(name: str, slots: int, mean: float, makespan: int | None) -> None:
    finish = finishes(policy_of(name, aging=0), slots)
    assert sum(finish) / len(finish) == mean
    assert makespan is None or max(finish) == makespan


@pytest.mark.parametrize(("slots", "mean", "makespan"), [(4, None, 400), (2, 340.125, 400), (1, 690.125, 795)])
def test_longest_first(slots: int, mean: float | None, makespan: int) -> None:
    policy = LongestFirst(PolicyEnv(policy_of("fcfs").env.config))
    finish = finishes(policy, slots)
    assert max(finish) == makespan
    assert mean is None or sum(finish) / len(finish) == mean
