"""A report of a run as one HTML file that needs nothing else: figures (plotly's script is inside), tables, notes.

Opened from a folder it asks the network for nothing; its content policy forbids that, and every script but its own.
Whatever came from outside (ids, clients, reasons, model names) is escaped in the page and in the figures.

Long runs: a figure over time has at most BARS or POINTS buckets, of which it shows least and most (line) or the mean
(bars); the page says so. The requests' timeline shows at most `requests` of them, evenly picked by order of arrival.
Memory: what `Metrics` needs, a few floats per completed request, and the requests shown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import partial
from typing import IO, NamedTuple

import numpy as np

from engine.host import EngineInfo
from engine.knobs import KnobValue
from engine.records import Cause, Iteration, Phase
from traces.exports.downsample import Buckets
from traces.exports.lives import Life, Lives
from traces.exports.run import Job, run_exports
from traces.exports.target import Out
from traces.metrics import Metrics
from traces.slo import Slo
from traces.stats import COMPLETED, Pool, gaps

REQUESTS = 200
"""Requests the timeline shows."""
BARS, POINTS = 800, 1600
"""Most buckets of a figure over time."""
KEPT_LINES = 200
"""Notices and knob changes the page lists."""
MOST_PREEMPTED = 15
PHASES = (Phase.PREFILL, Phase.DECODE, Phase.RECOMPUTE)
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
"""Those with a distribution to look at."""


def write_report(
    info: EngineInfo,
    iterations: Iterable[Iteration],
    out: Out,
    *,
    title: str = "",
    requests: int = REQUESTS,
    slo: Slo | None = None,
    force: bool = False,
) -> None:
    """title: beside the model's name, such as the recording's. requests: most rows of the timeline.

    slo: what a good request has to keep; without it there is no goodput.
    """
    run_exports(info, iterations, [report_job(out, title=title, requests=requests, slo=slo)], force=force)


def report_job(
    out: Out, *, title: str = "", requests: int = REQUESTS, slo: Slo | None = None, clock: str = "real"
) -> Job:
    return Job(partial(Report, title=title, requests=requests, slo=slo, clock=clock), out)


class Changed(NamedTuple):
    """A knob change; `name` "" is an engine built anew, told in `new`."""

    at: float
    step: int
    name: str
    old: KnobValue
    new: KnobValue


class Report:
    """See `Export`. `file` takes text and gets all of it at the end."""

    def __init__(
        self,
        info: EngineInfo,
        file: IO[str],
        *,
        title: str = "",
        requests: int = REQUESTS,
        slo: Slo | None = None,
        clock: str = "real",
    ) -> None:
        self.info, self._file, self.title, self.clock = info, file, title, clock
        self.metrics = Metrics(info, slo=slo)
        self.knobs = info.config.values()
        """As they were at start."""
        self.tokens = Buckets(BARS)
        """Prefill, decode, recompute, all, budget of each iteration that ran the model."""
        self.queues = Buckets(POINTS)
        """Running, waiting, swapped after each record."""
        self.kv = Buckets(POINTS)
        """Blocks used, and usable."""
        self.changes: list[Changed] = []
        self.num_changes = 0
        self.notices: list[tuple[float, str]] = []
        self.num_notices = 0
        self.fault: str | None = None
        self.pools = {name: Pool() for name in LATENCIES}
        """Of all completed requests."""
        self.client_pools: dict[str, dict[str, Pool]] = {}
        """The same by client."""
        self.arrivals = 0
        self.stride = 1
        """The timeline shows each request whose number of arrival this divides."""
        self.shown: dict[int, Life] = {}
        """Requests of the timeline by number of arrival."""
        self.strangers = 0
        self.start: float | None = None
        self.end = 0.0
        self.preempted: list[tuple[int, int, Life]] = []
        """Those preempted most, a heap of (how often, -serial, life)."""
        self.preempted_by: dict[Cause, list[int]] = {cause: [0, 0, 0, 0] for cause in Cause}
        """How often, of them swapped out, tokens lost, blocks freed."""
        self._rows = max(1, requests)

    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        self.metrics.add(known)
        self.start, self.end, self.strangers = lives.start, it.t_end, lives.strangers
        if it.executed:
            self.tokens.add(
                it.t_start, it.t_end, (*(it.tokens_in(phase) for phase in PHASES), it.total_tokens, it.budget)
            )
            self.kv.add(it.t_start, it.t_start, (lives.used_blocks_mid(it), lives.usable_blocks(it)))
        self.kv.add(it.t_end, it.t_end, (lives.used_blocks(it), lives.usable_blocks(it)))
        self.queues.add(it.t_end, it.t_end, (len(it.running), it.num_waiting, len(it.swapped)))
        for victim in it.preempted:
            counts = self.preempted_by[victim.cause]
            for at, count in enumerate((1, victim.swapped_blocks > 0, victim.lost_tokens, victim.freed_blocks)):
                counts[at] += count
        self._tell(it)
        for life in lives.arrived:
            self._show(life)
        for life in lives.ended:
            self._end(life)
        self.fault = it.fault or self.fault

    def _tell(self, it: Iteration) -> None:
        changes = [Changed(it.t_start, it.step, *change[:3]) for change in it.knobs]
        if it.rebuilt is not None:
            new = it.rebuilt
            what = f"{new.model} in {new.dtype}, {new.num_blocks} blocks of {new.block_size}"
            changes.insert(0, Changed(it.t_start, it.step, "", None, what))
        for change in changes:
            self.num_changes += 1
            if len(self.changes) < KEPT_LINES:
                self.changes.append(change)
        for notice in it.notices:
            self.num_notices += 1
            if len(self.notices) < KEPT_LINES:
                self.notices.append((it.t_start, notice))

    def _show(self, life: Life) -> None:
        if self.arrivals % self.stride == 0:
            if len(self.shown) == self._rows:
                self.stride *= 2
                self.shown = {n: shown for n, shown in self.shown.items() if n % self.stride == 0}
            if self.arrivals % self.stride == 0:
                self.shown[self.arrivals] = life
        self.arrivals += 1

    def _end(self, life: Life) -> None:
        row = life.row
        if row.preemptions:
            heapq.heappush(self.preempted, (row.preemptions, -life.serial, life))
            if len(self.preempted) > MOST_PREEMPTED:
                heapq.heappop(self.preempted)
        if row.finish_reason not in COMPLETED:
            return
        mine = self.client_pools.get(row.client)
        if mine is None:
            mine = self.client_pools[row.client] = {name: Pool() for name in LATENCIES}
        for name in LATENCIES:
            if name == "itl_s":
                values = gaps(row.times)
            else:
                value = getattr(row, name)
                values = np.array([] if value is None else [value], np.float64)
            self.pools[name].extend(values)
            mine[name].extend(values)

    def finish(self, lives: Lives) -> None:
        from traces.exports.report_page import write_page

        write_page(self, self._file)
