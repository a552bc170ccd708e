"""The account of one client, and what it shares with that of a priority class. `clients.py` fills and defines them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from traces.stats import Pool, distribution, micro


def floats() -> array[float]:
    return array("d")


@dataclass(slots=True, eq=False)
class Group:
    """What is counted for a client and for a priority class alike."""

    arrived: int = 0
    completed: int = 0
    good: int = 0
    """Completed ones that kept the SLO."""
    met: int = 0
    missed: int = 0
    oldest: float = 0.0
    """Largest queue age of requests that have left the queue."""

    def deadlines(self, late: int) -> dict[str, Any]:
        """late: missed ones of requests that are alive. `attainment`: share of the deadlines that were met."""
        missed = self.missed + late
        total = self.met + missed
        return {"met": self.met, "missed": missed, "attainment": micro(self.met / total) if total else None}


@dataclass(slots=True, eq=False)
class Client(Group):
    """The account of one client. Ids of live requests point into `ClientAccounts.live`."""

    name: str = ""
    weight: float = 1.0
    rejected: int = 0
    failed: int = 0
    aborted: int = 0
    service: float = 0.0
    outstanding: float = 0.0
    prompt_tokens: int = 0
    """Processed, those of the prefix cache left out."""
    cached_tokens: int = 0
    """Prompt tokens taken from the prefix cache."""
    output_tokens: int = 0
    recomputed_tokens: int = 0
    suffered: int = 0
    """Preemptions of its requests."""
    caused: int = 0
    """Preemptions for the sake of its requests."""
    queue: dict[str, float] = field(default_factory=dict)
    """Requests in the queue: id -> since when."""
    ttft: array[float] = field(default_factory=floats)
    itl: Pool = field(default_factory=Pool)
    waits: array[float] = field(default_factory=floats)
    """Planned arrival to first iteration."""

    def queue_age(self, now: float) -> float | None:
        """Age of its request that has waited longest, None when it has none in the queue."""
        return max(0.0, now - min(self.queue.values())) if self.queue else None

    def summary(self, now: float, total: float, late: int, rated: bool = False) -> dict[str, Any]:
        """total: service of all clients. late: missed deadlines of requests that are alive. rated: there is an SLO."""
        age = self.queue_age(now)
        asked = self.arrived + self.rejected
        return {
            "requests": {
                "arrived": self.arrived,
                "completed": self.completed,
                "rejected": self.rejected,
                "failed": self.failed,
                "aborted": self.aborted,
            },
            "weight": self.weight,
            "service": self.service,
            "share": micro(self.service / total) if total else None,
            "demand": self.service + self.outstanding,
            "tokens": {
                "prompt": self.prompt_tokens,
                "cached": self.cached_tokens,
                "output": self.output_tokens,
                "recomputed": self.recomputed_tokens,
            },
            "queue_age_s": micro(age),
            "max_queue_age_s": micro(max(self.oldest, age or 0.0)),
            "queue_s": distribution(self.waits),
            "ttft_s": distribution(self.ttft),
            "itl_s": distribution(self.itl),
            "preemptions": {"suffered": self.suffered, "caused": self.caused},
            "deadlines": self.deadlines(late),
            "slo_attainment": micro(self.good / asked) if rated and asked else None,
        }
