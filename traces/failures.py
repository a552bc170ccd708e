"""`Reasons`: how many requests did not complete, and why, in kinds rather than in single sentences.

A refusal names its numbers ("the prompt has 4,000 tokens ..."). Requests refused for the same reason are counted
together: numbers are told as N, quoted names as '...'.
"""

from __future__ import annotations

import re
from collections import Counter

MOST_KINDS = 32
"""Kinds that are told apart; what comes later is counted under OTHERS."""
LONGEST = 160
OTHERS = "(other reasons)"
UNTOLD = "no reason given"

_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)")
_NUMBER = re.compile(r"\b\d[\d,]*(?:\.\d+)?")


class Reasons:
    """Counts of requests by how and why they ended without completing."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {"failed": Counter(), "aborted": Counter(), "rejected": Counter()}

    def add(self, how: str, why: str) -> None:
        """how: failed, aborted or rejected."""
        counts = self._counts[how]
        kind = kind_of(why)
        counts[kind if kind in counts or len(counts) < MOST_KINDS else OTHERS] += 1

    def summary(self) -> dict[str, dict[str, int]]:
        """The most frequent ones first."""
        return {how: dict(counts.most_common()) for how, counts in self._counts.items()}


def kind_of(why: str) -> str:
    first = next(iter(why.strip().splitlines()), "")
    return _NUMBER.sub("N", _QUOTED.sub("'...'", first))[:LONGEST] or UNTOLD
