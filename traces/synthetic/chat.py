"""Presets `chat`, `longdoc` and `batch`: conversations, long documents among them, a pile of summaries beside them.

A conversation resends what was said before. Its turns have the lengths of the trace, in rising order: each prompt is
the one before and something new, so the whole set of lengths is exactly the trace's. What the model answered is part
of the new piece; only repeated prompts are found in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from traces.synthetic.arrivals import TICKS, steady, swinging
from traces.synthetic.draw import Draw, zipf
from traces.synthetic.grids import Lengths, lengths
from traces.synthetic.plan import Draft, Plan

SYSTEM = 0
"""Content id of the system prompt: 0, as it leads every prompt of the Mooncake conversation trace."""
SYSTEM_LEN = 512
_ROOM = 32
"""Tokens at least that a prompt has beside the system prompt."""
_FOLLOW = 0.4
"""Of requests: continue a session."""
_TURNS = 4
_THINK = (5 * TICKS, 60 * TICKS)


class Style(NamedTuple):
    """What differs between kinds of conversation."""

    lengths: Lengths
    clients: Sequence[str]
    weights: Sequence[float]
    follow: float
    """Share of requests that continue a session."""
    system: float
    """Share of requests that begin with the system prompt."""
    ttft: float | None


def chat(plan: Plan) -> list[Draft]:
    times = swinging(plan.n, plan.rate, 1.0, 0.3, plan.draw("arrivals"))
    return conversations(times, _chat(8), plan, "chat")


def _chat(clients: int, ttft: float | None = 2.0) -> Style:
    names = [f"chat-{number + 1}" for number in range(clients)]
    return Style(lengths("azure2023_conv"), names, zipf(clients), _FOLLOW, 0.6, ttft)


def longdoc(plan: Plan) -> list[Draft]:
    """One client in three sends documents: every fifth request."""
    times = steady(plan.n, plan.rate, 1.0, plan.draw("arrivals"))
    kinds = plan.draw("kinds").shared(("chat", "docs"), (0.8, 0.2), plan.n)
    talk = [time for time, kind in zip(times, kinds, strict=True) if kind == "chat"]
    docs = [time for time, kind in zip(times, kinds, strict=True) if kind == "docs"]
    style = Style(lengths("mooncake_conversation"), ("docs",), (1.0,), _DOCS_FOLLOW, 1.0, None)
    drafts = conversations(talk, _chat(2, None), plan, "chat")
    return drafts + conversations(docs, style, plan, "docs", first_id=1 + 2 * plan.n)


_DOCS_FOLLOW = 0.66
"""Questions about a document that was sent before. With the chat around it, 37 % of prompt tokens are repeated."""


def batch(plan: Plan) -> list[Draft]:
    """Half of the rows are the pile (all at 0, or in waves), half the chat beside it."""
    pile = plan.n // 2
    talk = plan.n - pile
    span = talk / plan.rate * 2
    half = talk / span
    drafts = conversations(swinging(talk, half, 1.0, 0.3, plan.draw("arrivals")), _chat(8), plan, "chat")
    waves = plan.variant == "waves"
    times = steady(pile, pile / span, 3.0, plan.draw("waves")) if waves else [0] * pile
    grid = lengths("arxiv_summarization")
    prompts, outputs = plan.draw("batch/prompts").strata(pile), plan.draw("batch/outputs").strata(pile)
    deadline = float(max(60, math.ceil(span)))
    drafts += [
        Draft(time, grid.prompt.at(prompt), grid.output.at(output), "batch", priority=10, deadline=deadline)
        for time, prompt, output in zip(times, prompts, outputs, strict=True)
    ]
    return drafts


def conversations(times: Sequence[int], style: Style, plan: Plan, kind: str, first_id: int = 1) -> list[Draft]:
    """A draft for each time, tied into sessions. Content ids count from `first_id`, 2 a request at most."""
    n = len(times)
    outputs = plan.draw(f"{kind}/outputs").strata(n)
    drafts = [Draft(time, 0, style.lengths.output.at(share), "") for time, share in zip(times, outputs, strict=True)]
    sessions = _sessions(drafts, style.follow, plan.draw(f"{kind}/sessions"))
    names = plan.draw(f"{kind}/clients").shared(style.clients, style.weights, len(sessions))
    draw = plan.draw(f"{kind}/prompts")
    prompts = [style.lengths.prompt.at(share) for share in draw.strata(n)]
    deal = _deal(prompts, sessions, style.system, draw)
    ids = count(first_id)
    for number, (turns, client, (with_system, sizes)) in enumerate(zip(sessions, names, deal, strict=True), 1):
        chain: list[tuple[int, float]] = [(SYSTEM, SYSTEM_LEN)] if with_system else []
        for turn, (draft, size) in enumerate(zip(turns, sizes, strict=True), 1):
            draft.client, draft.prompt, draft.deadline = client, size, style.ttft
            if turn < len(turns):  # a later turn repeats it
                chain.append((next(ids), size))
            draft.pieces = list(chain)
            draft.session, draft.turn = f"{kind}-s{number}", turn
    return drafts


def _sessions(drafts: Sequence[Draft], follow: float, draw: Draw) -> list[list[Draft]]:
    """Ties each of a `follow` share of requests to one that came 5 to 60 s before and was not yet continued.

    The arrivals stay as they are: times count from one request to the next, as if answers took no time. Where
    requests are so far apart that none is in reach, the latest open one is continued with a think time of its own.
    """
    sessions: list[list[Draft]] = []
    open_: list[tuple[Draft, list[Draft]]] = []
    latest: tuple[Draft, list[Draft]] | None = None
    low, high = _THINK
    young = 0
    waiting: list[tuple[Draft, list[Draft]]] = []
    owed = 0
    for draft, wish in zip(drafts, draw.strata(len(drafts)), strict=True):
        while young < len(waiting) and draft.time - waiting[young][0].time >= low:
            open_.append(waiting[young])
            young += 1
        owed += wish < follow
        found = None
        while owed and open_ and found is None:
            place = draw.below(len(open_))
            open_[place], open_[-1] = open_[-1], open_[place]
            candidate = open_.pop()
            if candidate[1][-1] is candidate[0] and draft.time - candidate[0].time <= high:
                found = candidate
                draft.delay = draft.time - candidate[0].time
        if owed and found is None and latest is not None and draft.time - latest[0].time > high:
            found = latest
            draft.delay = round(draw.between(low, high))
        if found is not None:
            owed -= 1
            draft.previous, turns = found
            turns.append(draft)
        else:
            turns = [draft]
            sessions.append(turns)
        latest = (draft, turns) if len(turns) < _TURNS else None
        if latest:
            waiting.append(latest)
    return sessions


def _deal(
    prompts: list[float], sessions: Sequence[Sequence[Draft]], share: float, draw: Draw
) -> list[tuple[bool, list[float]]]:
    """(begins with the system prompt, lengths of its turns) of each session. With it, all its prompts are long."""
    wanted = share * len(prompts)
    order = list(range(len(sessions)))
    draw.shuffle(order)
    long = [size for size in prompts if size >= SYSTEM_LEN + _ROOM]
    chosen, taken = set(), 0
    for place in order:
        size = len(sessions[place])
        if taken + size <= min(wanted, len(long)):
            chosen.add(place)
            taken += size
    rest = long[taken:] + [size for size in prompts if size < SYSTEM_LEN + _ROOM]
    draw.shuffle(rest)
    piles = {True: long[:taken], False: rest}
    dealt = []
    for place, turns in enumerate(sessions):
        pile = piles[place in chosen]
        dealt.append((place in chosen, sorted(pile.pop() for _ in turns)))
    return dealt
