"""Which call of a session waited for which: worked out from when each began and ended.

A call waits for the call that ended last before it began; calls that overlap do not wait for each other. A call whose
end is not known is waited for by nobody: "not recorded" is not "took no time".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    start_ns: int
    end_ns: int | None
    """None: not recorded."""


class Link(NamedTuple):
    call: int
    """Index of the one that has to end first."""
    delay_ns: int
    """Between that end and this start."""


def links(spans: Sequence[Span]) -> list[Link | None]:
    """For each call what it waited for; None: nothing, it begins by itself."""
    ended = sorted(
        (span.end_ns, span.start_ns, index)
        for index, span in enumerate(spans)
        if span.end_ns is not None and span.end_ns >= span.start_ns
    )
    ends = [end for end, _, _ in ended]
    found: list[Link | None] = []
    for index, span in enumerate(spans):
        place = bisect_right(ends, span.start_ns) - 1
        # A call without duration may end when others begin, itself among them: only what began before counts then.
        while place >= 0 and (ended[place][1], ended[place][2]) >= (span.start_ns, index):
            place -= 1
        found.append(Link(ended[place][2], span.start_ns - ended[place][0]) if place >= 0 else None)
    return found
