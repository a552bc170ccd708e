"""`compare`: two futures of the same moment, request by request, as totals and as curves.

Plain data for a screen or JSON. Times of requests count from their planned arrival; totals count what happens after
the fork, so iterations that both futures share are in neither.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ForkError
from engine.request import FinishReason
from engine.whatif.future import Future


@dataclass(slots=True)
class Outcome:
    """How one request goes in one future. None: it did not come to that."""

    ttft_s: float | None = None
    e2e_s: float | None = None
    """From arrival to its end, whatever the end."""
    finished_at: float | None = None
    """On the engine's clock."""
    output_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    reason: str | None = None
    """length | stop | abort | error | rejected."""
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    client: str
    a: Outcome
    b: Outcome


@dataclass(frozen=True, slots=True)
class Totals:
    makespan_s: float
    """From the fork to the end of the last iteration."""
    iterations: int
    output_tokens: int
    tokens_per_s: float | None
    ttft_p50_s: float | None
    """Over requests whose first token comes after the fork."""
    ttft_p99_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    finished: int
    """By length or a stop."""
    aborted: int
    failed: int
    """Ended by an error."""
    rejected: int
    preemptions: int
    recomputed_tokens: int
    slot_steps: int
    """Steps that the batch slots could have made."""
    slot_steps_used: int
    peak_blocks: int


@dataclass(frozen=True, slots=True)
class Curves:
    """One point for each iteration, at its end."""

    times: NDArray[np.float64]
    blocks: NDArray[np.int64]
    """In use while it ran."""
    running: NDArray[np.int64]
    waiting: NDArray[np.int64]
    """Swapped-out requests included."""

    def as_dict(self) -> dict[str, list[float]]:
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: tuple[Row, ...]
    """In order of arrival."""
    totals_a: Totals
    totals_b: Totals
    curves_a: Curves
    curves_b: Curves
    notes: tuple[str, ...]

    @property
    def deltas(self) -> dict[str, float | None]:
        """B minus A for every total."""
        return {field.name: _minus(getattr(self.totals_b, field.name), getattr(self.totals_a, field.name))
                for field in fields(Totals)}  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return {
            "requests": [
                {"id": row.id, "client": row.client, "a": _plain(row.a), "b": _plain(row.b)} for row in self.rows
            ],
            "totals": {"a": _plain(self.totals_a), "b": _plain(self.totals_b), "delta": self.deltas},
            "curves": {"a": self.curves_a.as_dict(), "b": self.curves_b.as_dict()},
            "notes": list(self.notes),
        }


def compare(a: Future, b: Future) -> Comparison:
    """ForkError when they do not begin at the same iteration."""
    if a.at_step != b.at_step:
        raise ForkError(f"futures from iterations {a.at_step} and {b.at_step} cannot be compared")
    one, two = _Reading(a), _Reading(b)
    rows = []
    for key in dict.fromkeys([*one.outcomes, *two.outcomes]):
        client = one.clients.get(key) or two.clients[key]
        rows.append(Row(key, client, one.outcomes.get(key, Outcome()), two.outcomes.get(key, Outcome())))
    arrivals = {**two.arrivals, **one.arrivals}
    rows.sort(key=lambda row: arrivals.get(row.id, 0.0))
    notes = tuple(dict.fromkeys([*(f"A: {note}" for note in a.notes), *(f"B: {note}" for note in b.notes)]))
    return Comparison(tuple(rows), one.totals(), two.totals(), one.curves(), two.curves(), notes)


class _Reading:
    """One future, read through once. A request whose id was used before gets `#2` after its id."""

    def __init__(self, future: Future) -> None:
        self.future = future
        self.outcomes: dict[str, Outcome] = {}
        self.clients: dict[str, str] = {}
        self.arrivals: dict[str, float] = {}
        self.ttfts: list[float] = []
        self.gaps: list[float] = []
        self._keys: dict[str, str] = {}
        self._last: dict[str, float] = {}
        self.rejected = 0
        for known in future.before:
            outcome = self._begin(known.id, known.client, known.arrival)
            outcome.output_tokens = known.output_len
            outcome.preemptions, outcome.recomputed_tokens = known.preemptions, known.recomputed_tokens
            if known.first_token is not None:
                outcome.ttft_s = known.first_token - known.arrival
            if known.last_token is not None:
                self._last[self._keys[known.id]] = known.last_token
        self._read()

    def _begin(self, id: str, client: str, arrival: float) -> Outcome:
        key, again = id, 1
        while key in self.outcomes:
            again += 1
            key = f"{id}#{again}"
        self._keys[id] = key
        self.clients[key], self.arrivals[key] = client, arrival
        outcome = self.outcomes[key] = Outcome(assumed=id in self.future.assumed)
        return outcome

    def _read(self) -> None:
        keys, outcomes = self._keys, self.outcomes
        for it in self.future.records:
            for new in it.arrived:
                self._begin(new.id, new.client, new.arrival)
            for refused in it.rejected:
                self.rejected += 1
                alive = self._keys.get(refused.id)
                self._begin(refused.id, refused.client, it.t_start).reason = "rejected"
                if alive is not None:  # its name was taken: what comes is about the one who has it
                    self._keys[refused.id] = alive
            for victim in it.preempted:
                outcomes[keys[victim.id]].preemptions += 1
            for item in it.scheduled:
                if item.recomputed:
                    outcomes[keys[item.id]].recomputed_tokens += item.recomputed
            for token in it.tokens:
                self._token(keys[token.id], it.t_end)
            for done in it.finished:
                key = keys[done.id]
                outcome = outcomes[key]
                outcome.reason = str(done.reason)
                # An abort comes before its record's iteration.
                outcome.finished_at = it.t_start if done.reason is FinishReason.ABORT else it.t_end
                outcome.e2e_s = outcome.finished_at - done.arrival

    def _token(self, key: str, time: float) -> None:
        outcome = self.outcomes[key]
        outcome.output_tokens += 1
        last = self._last.get(key)
        if last is not None:
            self.gaps.append(time - last)
        else:
            outcome.ttft_s = time - self.arrivals[key]
            self.ttfts.append(outcome.ttft_s)
        self._last[key] = time

    def totals(self) -> Totals:
        future, ran = self.future, [it for it in self.future.records if it.executed]
        makespan = ran[-1].t_end - future.start if ran else 0.0
        tokens = sum(len(it.tokens) for it in ran)
        records = future.records
        ends = Counter(done.reason for it in records for done in it.finished)
        return Totals(
            makespan_s=makespan,
            iterations=len(ran),
            output_tokens=tokens,
            tokens_per_s=tokens / makespan if makespan > 0 else None,
            ttft_p50_s=_percentile(self.ttfts, 50),
            ttft_p99_s=_percentile(self.ttfts, 99),
            itl_p50_s=_percentile(self.gaps, 50),
            itl_p99_s=_percentile(self.gaps, 99),
            finished=ends[FinishReason.LENGTH] + ends[FinishReason.STOP],
            aborted=ends[FinishReason.ABORT],
            failed=ends[FinishReason.ERROR],
            rejected=self.rejected,
            preemptions=sum(len(it.preempted) for it in records),
            recomputed_tokens=sum(item.recomputed for it in ran for item in it.scheduled),
            slot_steps=sum(it.slots.total for it in ran),
            slot_steps_used=sum(it.slots.used for it in ran),
            peak_blocks=int(self.curves().blocks.max(initial=0)),
        )

    def curves(self) -> Curves:
        ran = [it for it in self.future.records if it.executed]
        pool = self.future.config.allocated_blocks - 1
        return Curves(
            np.array([it.t_end for it in ran]),
            np.array([pool - it.off_blocks - it.free_blocks_mid for it in ran], dtype=np.int64),
            np.array([len(it.running) for it in ran], dtype=np.int64),
            np.array([it.num_waiting + len(it.swapped) for it in ran], dtype=np.int64),
        )


def _percentile(values: list[float], q: float) -> float | None:
    return float(np.percentile(values, q)) if values else None


def _minus(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _plain(item: Any) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(item)}
