"""sjf and srpt: predicted lengths, aging, and when a running request gives way."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from engine.policies.predict import predicted_output
from engine.request import Request
from tests.engine.policies.helpers import add_all, at, configure, drain, ids, make, policy_of, preempt, run


def test_prediction_is_the_oracles_without_noise() -> None:
    config = policy_of("sjf").env.config
    assert predicted_output(make("a", expected_output=37), config) == 37
    assert predicted_output(make("a", output=9, expected_output=None), config) == 9
    assert predicted_output(Request("a", [1]), config) == config.model_len


def test_noise_is_log_normal_and_hangs_on_the_id() -> None:
    def errors(noise: float) -> list[float]:
        config = policy_of("sjf", prediction_noise=noise).env.config
        return [math.log(predicted_output(make(f"r{i}", expected_output=64), config) / 64) for i in range(2000)]

    little, more = errors(0.2), errors(0.4)
    assert abs(fmean(little)) < 0.02 and 0.19 < stdev(little) < 0.21
    assert more == pytest.approx([2 * error for error in little])


def test_prediction_stays_possible() -> None:
    config = policy_of("sjf", prediction_noise=5.0).env.config
    lengths = [predicted_output(make(f"r{i}\ud800", expected_output=64), config) for i in range(500)]
    assert min(lengths) == 1 and max(lengths) == config.model_len


@pytest.mark.parametrize("name", ["sjf", "srpt"])
def test_shortest_first_then_oldest(name: str) -> None:
    policy = policy_of(name, aging=0)
    add_all(policy, [make("a", output=30), make("b", output=10), make("c", output=301), make("d", output=300)])
    add_all(policy, [make("f", output=10, arrival=1.0), make("e", output=10, arrival=1.0)])
    assert drain(policy) == ["b", "e", "f", "a", "d", "c"]


def test_aging_halves_the_length_in_its_time() -> None:
    policy = policy_of("sjf", aging=10)
    policy.add(make("long", output=64, arrival=0.0))
    at(policy, 29.0)
    policy.add(make("short", output=16, arrival=29.0))
    assert ids(policy) == ["short", "long"]
    at(policy, 30.0)
    assert ids(policy) == ["short", "long"]
    policy.add(make("new", output=16, arrival=30.0))
    at(policy, 31.0)
    assert ids(policy) == ["short", "new", "long"]
    policy.add(make("newest", output=16, arrival=31.0))
    at(policy, 31.5)
    assert ids(policy) == ["short", "new", "newest", "long"]
    at(policy, 40.0)
    policy.add(make("fresh", output=16, arrival=40.0))
    assert ids(policy) == ["short", "new", "newest", "long", "fresh"], "64 / 5 is less than 16"


def test_aging_is_on_unless_told_otherwise() -> None:
    """A stream of short requests does not starve a long one."""
    policy = policy_of("sjf")
    policy.add(make("long", output=1000))
    for second in range(1, 4000):
        policy.add(make(f"s{second:05}", output=10, arrival=float(second)))
        at(policy, float(second))
        if policy.head().id == "long":
            break
        policy.take(policy.head())
    assert 2900 < second < 3100


def test_aged_order_is_that_of_sorting_by_rounded_size() -> None:
    rng = random.Random(5)
    policy = policy_of("sjf", aging=3)
    requests = [make(f"r{i}", output=rng.randrange(1, 900), arrival=rng.uniform(0, 40)) for i in range(300)]
    add_all(policy, requests)

    def aged(request: Request, now: float) -> float:
        size = 2.0 ** (round(math.log2(request.expected_output or 1) * 16) / 16)
        return size / (1 + max(0.0, now - (request.arrival or 0.0)) / 3)

    for now in (0.0, 12.5, 40.0, 41.0):
        at(policy, now)
        assert ids(policy) == [
            request.id for request in sorted(requests, key=lambda r: (aged(r, now), r.arrival, r.id))
        ]


def test_knobs_are_live() -> None:
    policy = policy_of("sjf", aging=0)
    add_all(policy, [make(f"r{i}", output=20 + i) for i in range(30)])
    exact = ids(policy)
    configure(policy, prediction_noise=1.0)
    noisy = ids(policy)
    assert noisy != exact
    configure(policy, prediction_noise=0.0)
    assert ids(policy) == exact
    configure(policy, aging=1.0)
    policy.add(make("new", output=19, arrival=9.0))
    at(policy, 10.0)
    assert ids(policy)[-1] == "new"
    configure(policy, aging=0.0)
    assert ids(policy) == ["new", *exact]


# ---- srpt ---------------------------------------------------------------------------------------------


def test_what_remains_counts() -> None:
    policy = policy_of("srpt", aging=0)
    add_all(policy, [make("a", output=10), make("b", output=14)])
    a = run(policy, policy.head())
    a.token_ids += [0] * 3
    preempt(policy, a)
    policy.add(make("c", output=7, arrival=1.0))
    assert ids(policy) == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("mode", "computed", "head", "displaces"),
    [
        ("recompute", 100, 18, True),  # 20 to go against 18: 2 gained for 1 iteration
        ("recompute", 100, 19, False),
        ("recompute", 257, 18, False),  # two iterations of 256
        ("recompute", 257, 17, True),
        ("swap", 257, 18, True),
        ("swap", 257, 19, False),
    ],
)
def test_gives_way_for_more_than_it_costs(mode: str, computed: int, head: int, displaces: bool) -> None:
    policy = policy_of("srpt", preemption_mode=mode)
    running = [make("short", output=5), make("long", output=20), make("other", output=12)]
    for request in running:
        request.num_computed = computed
    policy.add(make("head", output=head))
    assert policy.displaced(running) == (1 if displaces else None)


@pytest.mark.parametrize("aging", [0, 2, 30])
def test_never_back_and_forth(aging: float) -> None:
    """Two slots, arrivals of all lengths: who was displaced does not take the place back."""
    rng = random.Random(2)
    policy = policy_of("srpt", aging=aging)
    running: list[Request] = []
    displaced: dict[str, list[str]] = {}
    for step in range(600):
        at(policy, step * 0.1)
        if step % 12 == 0:
            policy.add(make(f"r{step}", 10, rng.choice([3, 10, 40, 90]), arrival=policy.env.now))
        while len(policy):
            if len(running) == 2:
                index = policy.displaced(running)
                if index is None:
                    break
                victim = running.pop(index)
                by = policy.head()
                assert victim.id not in displaced.get(by.id, []), "took back its place"
                displaced.setdefault(victim.id, []).append(by.id)
                preempt(policy, victim)
                assert policy.head() is by, "the victim is in front again"
            request = policy.head()
            policy.take(request)
            running.append(request)
        for request in list(running):
            request.num_computed = request.num_tokens
            request.token_ids.append(0)
            if request.num_output == request.params.max_tokens:
                running.remove(request)
    assert len(displaced) > 5
