"""Whom to preempt when blocks are short: one rule a name, chosen by knob `victim`.

A rule gets the candidates in order of admission (at least one) and gives an index. Ties go to the earliest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.policies.base import Policy
from engine.request import Request

VictimRule = Callable[[Sequence[Request], Policy], int]


def last(running: Sequence[Request], policy: Policy) -> int:
    """The one admitted last (vLLM's rule under fcfs)."""
    return len(running) - 1


def priority(running: Sequence[Request], policy: Policy) -> int:
    """The least urgent, among equals the one that arrived last (vLLM's rule under priority)."""
    return max(range(len(running)), key=lambda i: (running[i].priority, running[i].arrival or 0.0))


def latest(running: Sequence[Request], policy: Policy) -> int:
    """The one that arrived last (vLLM's V0)."""
    return max(range(len(running)), key=lambda i: running[i].arrival or 0.0)


def cheapest(running: Sequence[Request], policy: Policy) -> int:
    """The one with the fewest computed tokens: least to compute again."""
    return min(range(len(running)), key=lambda i: running[i].num_computed)


def largest(running: Sequence[Request], policy: Policy) -> int:
    """The one with the most blocks: fewest preemptions."""
    return max(range(len(running)), key=lambda i: len(running[i].block_table))


def greediest(running: Sequence[Request], policy: Policy) -> int:
    """The last admitted one of the client that has had the most service, or holds the most blocks."""
    held: dict[str, int] = {}
    for request in running:
        held[request.client] = held.get(request.client, 0) + len(request.block_table)
    return max(range(len(running)), key=lambda i: (policy.service(running[i].client), held[running[i].client], i))


def lowest(running: Sequence[Request], policy: Policy) -> int:
    """The one the policy itself would serve last, where it says so; among equals the one that arrived last."""
    return max(range(len(running)), key=lambda i: (policy.level(running[i]), running[i].arrival or 0.0, running[i].id))


VICTIMS: dict[str, VictimRule] = {
    rule.__name__: rule for rule in (last, priority, latest, cheapest, largest, greediest, lowest)
}
