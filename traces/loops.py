"""Open loop: requests come at their times, whatever becomes of the others. Closed loop: turns wait for each other.

A closed loop slows down with the engine, so its latencies hide overload; a replay says which one it is.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise

from traces.workload import RequestSpec, Workload


def open_loop(workload: Workload) -> tuple[Workload, list[str]]:
    """Nobody waits for anybody. A line for people if that changes something.

    Rows that have no time of their own come their delay after the turn before them came.
    """
    arrival: dict[str, float] = {}
    by_id = {spec.id: spec for spec in workload.specs}
    timeless = 0

    def when(spec: RequestSpec) -> float:
        """Its own time, unless that is before its leader's (rows without a time have 0)."""
        chain = [spec]
        while (after := chain[-1].after) in by_id and after not in arrival and len(chain) <= len(by_id):
            chain.append(by_id[after])  # type: ignore[index]
        for link in reversed(chain):
            before = arrival.get(link.after) if link.after is not None else None
            own = link.arrival
            arrival[link.id] = own if before is None or own >= before else before + link.delay
        return arrival[spec.id]

    specs = []
    waiting = 0
    for spec in workload.specs:
        if spec.after is None:
            specs.append(spec)
            continue
        waiting += 1
        time = when(spec)
        timeless += time != spec.arrival
        specs.append(dataclasses.replace(spec, after=None, delay=0.0, arrival=time))
    if not waiting:
        return workload, []
    told = [f"--open-loop: {waiting:,} rows that wait for others come at their own times"]
    if timeless:
        told.append(f"--open-loop: {timeless:,} rows have no time: they come their delay after the turn before came")
    return dataclasses.replace(workload, specs=tuple(specs)), told


def closed_loop(workload: Workload) -> tuple[Workload, list[str]]:
    """The turns of each session wait for one another; rows that wait for somebody already stay as they are.

    The delay is the time between the two arrivals in the file: how long the answer took there is not known.
    """
    sessions: dict[str, list[int]] = {}
    for at, spec in enumerate(workload.specs):
        if spec.session is not None:
            sessions.setdefault(spec.session, []).append(at)
    specs, tied = list(workload.specs), 0
    for places in sessions.values():
        order = sorted(places, key=lambda at: (specs[at].arrival, specs[at].turn or 0))
        for before, at in pairwise(order):
            if specs[at].after is None and specs[before].after != specs[at].id:
                tied += 1
                gap = specs[at].arrival - specs[before].arrival
                specs[at] = dataclasses.replace(specs[at], after=specs[before].id, delay=max(0.0, gap))
    if not tied:
        if any(spec.after is not None for spec in specs):
            return workload, []
        return workload, ["--closed-loop: no row has a session or a request to wait for; nothing is closed"]
    return dataclasses.replace(workload, specs=tuple(specs)), [
        f"--closed-loop: {tied:,} rows wait for the turn before them, with the time between the arrivals as the delay"
    ]


def loop_told(workload: Workload) -> list[str]:
    """What kind of load it is."""
    waiting = [spec for spec in workload.specs if spec.after is not None]
    if not waiting:
        at_once = len(workload.specs) > 1 and len({spec.arrival for spec in workload.specs}) == 1
        return [f"open loop: {'all requests come at once' if at_once else 'every request comes at its own time'}"]
    own = len(workload.specs) - len(waiting)
    leaders = {spec.id for spec in workload.specs if spec.after is None}
    after = {spec.id: spec.after for spec in waiting}
    roots = set()
    for spec in waiting:
        at: str | None = spec.id
        seen = 0
        while at is not None and at not in leaders and at not in roots and seen <= len(after):
            at, seen = after.get(at), seen + 1
        if at in leaders:
            roots.add(at)
    return [f"open loop: {own:,} rows; closed loop: {len(waiting):,} rows in {len(roots):,} sessions wait for others"]
