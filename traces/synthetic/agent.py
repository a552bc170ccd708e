"""Preset `agent`: five agents, each asking again and again with all that was said before.

A closed loop: a call comes a moment after the one before it has ended, so a slow server is asked less often. Of every
ten calls of the main line one starts two helpers with prompts of their own, and the line goes on when the longer of
them has answered. Helpers are calls of the session: 22 in the middle, at most 30.

Times are those of a server that answers at once; with one that does not, `after` and `delay` tell when a call comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from traces.synthetic.arrivals import TICKS
from traces.synthetic.draw import Supply
from traces.synthetic.grids import quantiles
from traces.synthetic.plan import Draft, Plan

AT_ONCE = 5
_TRACE = "agent_miniswe"
_FIRST = (1400, 2100)
"""Tokens of a first prompt: 1,750 in the middle."""
_SHORT_DELAYS = 0.9
"""Of the delays of the trace: those up to 2 s."""
_TOOLS = 0.05
_TOOL = (60, 120)
_FORKS = 0.1


def agent(plan: Plan) -> list[Draft]:
    agents = _Agents(plan)
    calls = iter(_whole_sessions(plan)) if plan.until is None else _endless_sessions(plan)
    drafts: list[Draft] = []
    # Whoever has come least far in time works next.
    clients: list[tuple[int, int, Draft | None]] = [(client * TICKS // 2, client, None) for client in range(AT_ONCE)]
    while clients:
        now, client, last = heapq.heappop(clients)
        if len(drafts) >= plan.n or (plan.until is not None and now >= plan.until):
            continue
        session = agents.session(now, client, last, next(calls))
        drafts += session
        heapq.heappush(clients, (session[-1].time, client, session[-1]))
    return [draft for draft in drafts if plan.until is None or draft.time < plan.until]


def _whole_sessions(plan: Plan) -> list[int]:
    """Calls of sessions that have n together, none of them cut short."""
    grid = quantiles(_TRACE, "turns_per_session")
    sessions = max(1, round(plan.n / grid.mean))
    draw = plan.draw("calls")
    calls = [round(grid.at(share)) for share in draw.strata(sessions)]
    most = max(int(grid.values[-1]), plan.n if sessions == 1 else 0)
    missing = plan.n - sum(calls)
    step = 1 if missing > 0 else -1
    while missing:
        place = draw.below(sessions)
        if 1 <= calls[place] + step <= most:
            calls[place] += step
            missing -= step
    return calls


def _endless_sessions(plan: Plan) -> Iterator[int]:
    supply = Supply(plan.draw("calls"))
    while True:
        yield round(quantiles(_TRACE, "turns_per_session").at(supply()))


class _Agents:
    def __init__(self, plan: Plan) -> None:
        def supply(stream: str) -> Supply:
            return Supply(plan.draw(stream))

        self._first, self._helper_first, self._growth = map(supply, ("first", "helpers", "growth"))
        self._outputs, self._delays, self._tools, self._forks = map(supply, ("outputs", "delays", "tools", "forks"))
        self._sessions, self._ids = count(1), count(1)

    def session(self, now: int, client: int, previous: Draft | None, left: int) -> list[Draft]:
        """`left` calls of one session; the last one is of its main line."""
        name = f"agent-s{next(self._sessions)}"
        size = _prompt(self._first)
        pieces = [(next(self._ids), size)]
        calls: list[Draft] = []
        turn = 0
        while left > 0:
            turn += 1
            delay = 0 if previous is None else self._delay()
            main = Draft(now + delay, size, self._output(), f"agent-{client + 1}", list(pieces), name, turn)
            main.previous, main.delay = previous, delay
            calls.append(main)
            previous, now, left = main, main.time, left - 1
            if left > 2 and self._forks() < _FORKS:
                helpers = [self._helper(main) for _ in range(2)]
                calls += helpers
                left -= 2
                previous = max(helpers, key=lambda helper: helper.output)
                now = previous.time
            if left:
                size += quantiles(_TRACE, "input_growth_per_turn").at(self._growth())
                pieces.append((next(self._ids), size))
        return calls

    def _helper(self, main: Draft) -> Draft:
        delay = self._delay()
        return Draft(
            main.time + delay,
            _prompt(self._helper_first),
            self._output(),
            main.client,
            session=main.session,
            turn=main.turn,
            previous=main,
            delay=delay,
        )

    def _output(self) -> float:
        return quantiles(_TRACE, "output").at(self._outputs())

    def _delay(self) -> int:
        """Microseconds: half a second to two, or a tool that takes one or two minutes."""
        if self._tools() < _TOOLS:
            low, high = _TOOL
            seconds = low + (high - low) * self._delays()
        else:
            seconds = min(quantiles(_TRACE, "delay_s").at(self._delays() * _SHORT_DELAYS), 2.0)
        return round(seconds * TICKS)


def _prompt(supply: Supply) -> float:
    low, high = _FIRST
    return low + (high - low) * supply()
