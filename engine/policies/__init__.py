"""Scheduling policies by name."""

from engine.policies.base import Policy, WaitingQueue
from engine.policies.fcfs import Fcfs
from engine.policies.priority import Priority

POLICIES: dict[str, type[Fcfs] | type[Priority]] = {policy.name: policy for policy in (Fcfs, Priority)}

__all__ = ["POLICIES", "Fcfs", "Policy", "Priority", "WaitingQueue"]
