"""Presets without sessions: `code`, `reason`, `bursty`, `fair`."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from traces.synthetic.arrivals import TICKS, steady, streams, with_idle
from traces.synthetic.draw import apportion
from traces.synthetic.grids import DEEPSEEK_R1, Lengths, lengths
from traces.synthetic.plan import Draft, Plan


def _drafts(
    times: Sequence[int], grid: Lengths, clients: Sequence[str], plan: Plan, deadline: float | None = None
) -> list[Draft]:
    """Prompt and output drawn independently of each other, as they nearly are in the traces."""
    prompts, outputs = plan.draw("prompts").strata(len(times)), plan.draw("outputs").strata(len(times))
    return [
        Draft(time, grid.prompt.at(prompt), grid.output.at(output), client, deadline=deadline)
        for time, prompt, output, client in zip(times, prompts, outputs, clients, strict=True)
    ]


def _evenly(name: str, clients: int, plan: Plan) -> list[str]:
    names = [f"{name}-{number + 1}" for number in range(clients)]
    return plan.draw("clients").shared(names, [1.0] * clients, plan.n)


def code(plan: Plan) -> list[Draft]:
    times = with_idle(plan.n, plan.rate, 3.2, plan.draw("arrivals"), per_hour=20, idle=(10, 200))
    return _drafts(times, lengths("azure2023_code"), _evenly("code", 4, plan), plan, 0.45)


def reason(plan: Plan) -> list[Draft]:
    times = steady(plan.n, plan.rate, 1.0, plan.draw("arrivals"))
    return _drafts(times, DEEPSEEK_R1, _evenly("reason", 4, plan), plan)


_BURSTY = 10
_JAIN = 0.11


def bursty(plan: Plan) -> list[Draft]:
    """One client has so much of the volume that Jain's index of all ten is 0.11, and it is the bursty one.

    With share p of one and equal shares of the other n - 1: p² + (1 - p)² / (n - 1) = 1 / (n J).
    """
    n = _BURSTY
    share = (1 + math.sqrt(1 - n * (1 - (n - 1) / (n * _JAIN)))) / n
    weights = [share] + [(1 - share) / (n - 1)] * (n - 1)
    stream = streams(apportion(plan.n, weights), [5.7] + [1.2] * (n - 1), plan.span, plan.draw("arrivals"))
    names = ["bursty", *(f"calm-{number}" for number in range(1, n))]
    return _drafts(
        [time for time, _ in stream], lengths("azure2023_conv"), [names[client] for _, client in stream], plan
    )


class _Row(NamedTuple):
    time: int
    client: str
    prompt: int
    output: int


def fair(plan: Plan) -> list[Draft]:
    """The sample's own times. `arena`: its clients, each with lengths of its own requests in an order of the seed.

    `hog`: two clients, one asks three times as often; lengths of the whole sample.
    """
    sample = _sample()
    whole, rest = divmod(plan.n, len(sample))
    rounds = [sample] * whole + ([_thinned(rest)] if rest else [])
    mean = sample[-1].time / (len(sample) - 1)
    stretch = TICKS / plan.rate / mean
    times: list[int] = []
    rows: list[_Row] = []
    for number, part in enumerate(rounds):
        times += [round((number * len(sample) * mean + row.time) * stretch) for row in part]
        rows += part
    if plan.variant == "hog":
        names = plan.draw("clients").shared(("hog", "tame"), (3.0, 1.0), plan.n)
        return _drafts(times, lengths("vtc_arena27"), names, plan)
    prompts = _own("prompt", rows, plan)
    outputs = _own("output", rows, plan)
    return [
        Draft(time, next(prompts[row.client]), next(outputs[row.client]), row.client)
        for time, row in zip(times, rows, strict=True)
    ]


def _thinned(n: int) -> list[_Row]:
    """The sample with n of its rows, in as much less time: every so-manieth row of each client."""
    sample = sorted(_sample(), key=lambda row: (row.client, row.time))
    kept = sorted(sample[(2 * place + 1) * len(sample) // (2 * n)] for place in range(n))
    first = kept[0].time
    return [row._replace(time=(row.time - first) * n // len(sample)) for row in kept]


def _own(name: str, rows: Sequence[_Row], plan: Plan) -> dict[str, Iterator[int]]:
    """For each client as many of its own lengths as it has rows: all of them once a round, in random order."""
    lens: dict[str, list[int]] = {}
    for row in _sample():
        lens.setdefault(row.client, []).append(getattr(row, name))
    result = {}
    for client, count in sorted(Counter(row.client for row in rows).items()):
        own = sorted(lens[client])
        strata = plan.draw(f"{name}/{client}").strata(count)
        result[client] = iter([own[min(int(share * len(own)), len(own) - 1)] for share in strata])
    return result


@cache
def _sample() -> tuple[_Row, ...]:
    text = resources.files("traces").joinpath("data", "vtc_arena27.csv").read_text(encoding="utf-8")
    return tuple(
        _Row(round(float(row["req_time_s"]) * TICKS), row["client"], int(row["prompt_len"]), int(row["output_len"]))
        for row in csv.DictReader(io.StringIO(text))
    )
