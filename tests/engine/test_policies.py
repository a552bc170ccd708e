"""Order of the waiting queue and choice of the victim, as SCHEDULER sections 1, 2.2 and 4 say."""

from __future__ import annotations

import random

import pytest

from engine.policies import POLICIES
from engine.request import Request


def make(id: str, arrival: float = 0.0, priority: int = 0) -> Request:
    return Request(id, [1], arrival=arrival, priority=priority)


def ids(queue: object) -> list[str]:
    return [request.id for request in queue]  # type: ignore[attr-defined]


def test_fcfs_order() -> None:
    queue = POLICIES["fcfs"]().queue()
    a, b, c, d = (make(x, priority=-i) for i, x in enumerate("abcd"))
    for request in (a, b, c):
        queue.add(request)
    assert queue.pop() is a
    queue.remove(c)
    queue.add(d)
    queue.readd(a)
    assert ids(queue) == ["a", "b", "d"] and len(queue) == 3
    assert queue.head() is a


def test_fcfs_several_victims_keep_their_old_order() -> None:
    policy = POLICIES["fcfs"]()
    queue = policy.queue()
    running = [make(x) for x in "abcd"]
    queue.add(make("z"))
    for _ in range(3):
        queue.readd(running.pop(policy.victim(running)))
    assert ids(queue) == ["b", "c", "d", "z"]


def test_priority_order() -> None:
    """Smallest (priority, arrival, id as a string) first; a preempted request gets no bonus."""
    rng = random.Random(1)
    names = ["10_x", "2_x", "a", "", "ab", "a\x00", "a b", "é", "\U0001f600", "Z"]
    requests = [
        make(f"{name}{i}" if i % 3 else name * (i + 1), rng.choice([0.0, 1.0, 2.5]), rng.choice([-2, 0, 7]))
        for i, name in enumerate(names * 4)
    ]
    queue = POLICIES["priority"]().queue()
    expected: list[Request] = []
    for step, request in enumerate(requests):
        (queue.readd if step % 2 else queue.add)(request)
        expected.append(request)
        expected.sort(key=lambda r: (r.priority, r.arrival, r.id))
        if step % 5 == 4:
            gone = rng.choice(expected)
            expected.remove(gone)
            queue.remove(gone)
        if step % 7 == 6:
            assert queue.pop() is expected.pop(0)
        assert list(queue) == expected
        assert queue.head() is expected[0]


def test_priority_victim() -> None:
    """The largest (priority, arrival); on a tie of both the earliest in the running list, whatever its id."""
    victim = POLICIES["priority"]().victim
    assert victim([make("a", 0.0, 1), make("b", 5.0, 0), make("c", 1.0, 1)]) == 2
    assert victim([make("a", 0.0, 0), make("z", 1.0, 3), make("b", 1.0, 3)]) == 1
    assert victim([make("a")]) == 0


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_queue_made_from_another(name: str) -> None:
    waiting = [make("c", 3.0, 0), make("a", 1.0, 5), make("b", 2.0, 5)]
    queue = POLICIES[name]().queue(waiting)
    assert ids(queue) == (["a", "b", "c"] if name == "fcfs" else ["c", "a", "b"])


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_looking_at_the_front_is_lazy(name: str) -> None:
    """A record lists the first few of a queue that may hold ten thousand."""
    queue = POLICIES[name]().queue([make(str(i), float(i)) for i in range(10)])
    iterator = iter(queue)
    assert next(iterator).id == "0"
    assert not isinstance(iterator, list | tuple)
