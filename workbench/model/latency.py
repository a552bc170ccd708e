"""Latencies by client, kept up to date record by record.

Measured from the planned arrival. Percentiles are over the newest samples of a client (KEEP_*), so a long run
shows how it goes now. They are made as everywhere (traces/stats.py): between the two nearest values, and no p99 below
LEAST_FOR_P99 samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from engine.records import Iteration
from engine.view import EngineView
from traces.stats import LEAST_FOR_P99, percentile

KEEP_FIRST = 1000
KEEP_GAPS = 4000
MOST_CLIENTS = 200
OTHERS = "(others)"


class ClientLatency(NamedTuple):
    client: str
    n: int
    """Requests with a first token."""
    ttft50: float | None
    ttft99: float | None
    itl50: float | None
    preemptions: int


class _Client:
    __slots__ = ("first", "gaps", "n", "preemptions")

    def __init__(self) -> None:
        self.n = 0
        self.first: deque[float] = deque(maxlen=KEEP_FIRST)
        self.gaps: deque[float] = deque(maxlen=KEEP_GAPS)
        self.preemptions = 0


class Latency:
    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._last: dict[str, float] = {}
        self._all = _Client()
        self._header: tuple[int, ClientLatency] | None = None
        self._folded = 0

    def fold(self, it: Iteration, view: EngineView) -> None:
        """Fold in a record that `view` holds already."""
        now = it.t_end
        self._folded += 1
        requests, last, every = view.requests, self._last, self._all
        for id, _, _ in it.tokens:
            request = requests[id]
            client = self._client(request.client)
            before = last.get(id)
            last[id] = now
            if before is None:
                client.n += 1
                every.n += 1
                client.first.append(now - request.arrival)
                every.first.append(now - request.arrival)
            else:
                client.gaps.append(now - before)
                every.gaps.append(now - before)
        for victim in it.preempted:
            self._client(view.requests[victim.id].client).preemptions += 1
            self._all.preemptions += 1
        for done in it.finished:
            self._last.pop(done.id, None)

    def adopt(self, id: str, time: float) -> None:
        """A request that had its last token at `time`, before the first record."""
        self._last[id] = time

    def _client(self, name: str) -> _Client:
        client = self._clients.get(name)
        if client is None:
            if len(self._clients) >= MOST_CLIENTS:
                name = OTHERS
            client = self._clients.setdefault(name, _Client())
        return client

    def overall(self) -> ClientLatency:
        return _sum_up("all", self._all)

    def header(self) -> ClientLatency:
        """`overall`, a few records old when there are many samples to sort."""
        made = self._header
        if made is None or self._folded - made[0] > len(self._all.gaps) // 100:
            self._header = made = (self._folded, self.overall())
        return made[1]

    def table(self) -> list[ClientLatency]:
        """The clients, those with most requests first."""
        rows = [_sum_up(name, client) for name, client in self._clients.items()]
        return sorted(rows, key=lambda row: (-row.n, row.client))


def _sum_up(name: str, client: _Client) -> ClientLatency:
    first = sorted(client.first)
    p99 = percentile(first, 99) if len(first) >= LEAST_FOR_P99 else None
    return ClientLatency(
        name, client.n, percentile(first, 50), p99, percentile(sorted(client.gaps), 50), client.preemptions
    )


def median(values: Iterable[float]) -> float | None:
    return percentile(sorted(values), 50)
