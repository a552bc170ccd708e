"""edf and slack: whose first token is due soonest, and whose prompt must start soonest."""

from __future__ import annotations

import pytest

from engine.policies import VICTIMS
from engine.policies.slack import Slack
from tests.engine.policies.helpers import add_all, drain, ids, make, policy_of


@pytest.mark.parametrize("name", ["edf", "slack"])
def test_earliest_deadline_first_and_none_last(name: str) -> None:
    policy = policy_of(name)
    add_all(policy, [make("none"), make("a", deadline=5.0), make("b", arrival=1.0, deadline=3.0)])
    add_all(policy, [make("c", arrival=1.0), make("d", arrival=2.0, deadline=3.0)])
    assert drain(policy) == ["b", "a", "d", "none", "c"]


@pytest.mark.parametrize("name", ["edf", "slack"])
def test_the_one_with_most_time_is_preempted(name: str) -> None:
    policy = policy_of(name)
    running = [make("a", deadline=5.0), make("b", deadline=9.0), make("c", deadline=1.0)]
    assert VICTIMS[policy.victim](running, policy) == 1
    running += [make("d"), make("e", arrival=1.0)]
    assert VICTIMS[policy.victim](running, policy) == 4


def test_long_prompts_start_sooner() -> None:
    policy = policy_of("slack", cached=lambda request: 900 if request.id == "cached" else 0)
    add_all(policy, [make("short", 10, deadline=1.0), make("long", 1000, deadline=2.0)])
    add_all(policy, [make("cached", 1000, deadline=2.0)])
    assert ids(policy) == ["short", "cached", "long"]
    policy.env.token_seconds = 0.002
    policy.begin()
    assert ids(policy) == ["long", "short", "cached"]


def test_sorted_anew_only_when_the_measure_has_moved_by_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of("slack")
    add_all(policy, [make(f"r{i}", 10, deadline=1.0 + i) for i in range(5)])
    sorts = 0

    def resort(self: Slack) -> None:
        nonlocal sorts
        sorts += 1
        original(self)

    original = Slack.resort
    monkeypatch.setattr(Slack, "resort", resort)
    for seconds, expected in [(0.1, 1), (0.12, 1), (0.124, 1), (0.126, 2), (0.1, 2), (0.09, 3)]:
        policy.env.token_seconds = seconds
        policy.begin()
        assert sorts == expected, seconds
    policy.env.token_seconds = 0.1
    policy.begin()
    policy.add(make("new", 1, deadline=2.5))
    assert drain(policy) == ["r0", "r1", "r2", "new", "r3", "r4"]
