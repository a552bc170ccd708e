"""One letter for each request, the same on every panel.

A request keeps its letter until it is given back; letters go round, so a fresh one was last seen long ago. Where
requests have numbers, each has its own letter if that is free: the same one whenever it is looked at.
Beyond 62 at once a request is `#` until `promote` finds it a free one.
"""

from __future__ import annotations

import string
from collections import deque
from collections.abc import Callable

from workbench.text import short

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits
NONE_LEFT = "#"


class Letters:
    def __init__(self, number_of: Callable[[str], int | None] = lambda id: None) -> None:
        self._number_of = number_of
        self._free = deque(ALPHABET)
        self._of: dict[str, str] = {}

    @property
    def left(self) -> int:
        return len(self._free)

    def give(self, id: str) -> str:
        letter = self._of[id] = self._take(id) if self._free else NONE_LEFT
        return letter

    def promote(self, id: str) -> None:
        """A request without a letter starts to matter: give it one if there is one."""
        if self.of(id) == NONE_LEFT and self._free:
            self._of[id] = self._take(id)

    def _take(self, id: str) -> str:
        number = self._number_of(id)
        own = ALPHABET[number % len(ALPHABET)] if number is not None else None
        if own is None or own not in self._free:
            return self._free.popleft()
        self._free.remove(own)
        return own

    def give_back(self, id: str) -> None:
        """The letter may go to somebody else; the request is still shown with it while it is remembered."""
        letter = self._of.get(id, NONE_LEFT)
        if letter != NONE_LEFT:
            self._free.append(letter)

    def forget(self, id: str) -> None:
        self._of.pop(id, None)

    def name(self, id: str) -> str:
        """What a line about one request calls it: its letter, or its id where there was no letter left."""
        letter = self.of(id)
        return short(id) if letter == NONE_LEFT else letter

    def of(self, id: str) -> str:
        return self._of.get(id, NONE_LEFT)


def colour_of(letter: str) -> int:
    """Index of a letter's colour; `#` has none (-1)."""
    return ALPHABET.find(letter)
