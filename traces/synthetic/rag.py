"""Preset `rag`: prompts put together of a system prompt, passages that were looked up, history and a question.

Every fifth prompt finds no passages and has the shorter system prompt, as in the trace. A passage has the same length
and content wherever it is used, but its place varies, so a prefix cache finds the system prompt and, seldom, a
passage that follows the same beginning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from traces.synthetic.arrivals import steady
from traces.synthetic.draw import Draw, Supply
from traces.synthetic.grids import RAG_HISTORY, RAG_PASSAGE, lengths
from traces.synthetic.plan import Draft, Plan

_SYSTEM, _SYSTEM_LEN = 0, 1461
_SHORT, _SHORT_LEN = 1, 1028
_WITHOUT = 0.2
_PASSAGES = 6
_QUESTION = 6
_USES = 7
"""Times a passage is used, on average: as many passages as fit to that, and the rarest is used once."""
_TRIES = 100
_POWER, _BEND = 1.1633, 0.012355
"""Passages by rank r of m are used like (r/m + bend)^-power: the first 1 % have 18 % of uses, the first 10 % 59 %."""


def rag(plan: Plan) -> list[Draft]:
    n = plan.n
    times = steady(n, plan.rate, 1.1, plan.draw("arrivals"))
    clients = [f"rag-{number + 1}" for number in range(6)]
    names = plan.draw("clients").shared(clients, [5.0] + [1.0] * 5, n)
    bare = plan.draw("kinds").shared((True, False), (_WITHOUT, 1 - _WITHOUT), n)
    found = iter(_lookups(bare.count(False), plan.draw("passages")))
    size = Supply(plan.draw("passage lengths"))  # by rank: those that are used most are as long as the others
    sizes = [RAG_PASSAGE.at(size()) for _ in range(_catalogue(bare.count(False)))]
    histories = [RAG_HISTORY.at(share) for share in plan.draw("histories").strata(n)]
    outputs = [lengths("ragpulse").output.at(share) for share in plan.draw("outputs").strata(n)]
    drafts = []
    for time, client, without, history, output in zip(times, names, bare, histories, outputs, strict=True):
        if without:
            pieces = [(_SHORT, float(_SHORT_LEN))]
        else:
            passages = next(found)
            ends = accumulate((sizes[passage] for passage in passages), initial=float(_SYSTEM_LEN))
            pieces = list(zip((_SYSTEM, *(passage + 2 for passage in passages)), ends, strict=True))
        prompt = pieces[-1][1] + history + _QUESTION
        drafts.append(Draft(time, prompt, output, client, pieces, deadline=2.0))
    return drafts


def _catalogue(prompts: int) -> int:
    return max(prompts * _PASSAGES // _USES, 2 * _PASSAGES)


def _lookups(prompts: int, draw: Draw) -> list[Sequence[int]]:
    """Different passages for each prompt, by rank."""
    number = _catalogue(prompts)
    ranks = [min(int(_rank(share) * number), number - 1) for share in draw.strata(prompts * _PASSAGES)]
    for place in range(len(ranks)):
        first = place // _PASSAGES * _PASSAGES
        for _ in range(_TRIES):
            if ranks[place] not in ranks[first:place]:
                break
            # Swapped with one of another prompt, so that every passage is used as often as before.
            other = draw.below(len(ranks))
            begin = other // _PASSAGES * _PASSAGES
            if begin != first and ranks[place] not in ranks[begin : begin + _PASSAGES]:
                ranks[place], ranks[other] = ranks[other], ranks[place]
        else:
            ranks[place] = next(rank for rank in range(number) if rank not in ranks[first : first + _PASSAGES])
    return [ranks[start : start + _PASSAGES] for start in range(0, len(ranks), _PASSAGES)]


def _rank(share: float) -> float:
    """0..1: where among the passages, by rank, this share of uses is reached."""
    power = 1 - _POWER
    low, high = _BEND**power, (1 + _BEND) ** power
    return math.pow(low + share * (high - low), 1 / power) - _BEND
