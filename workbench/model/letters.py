"""One letter for each request, the same on every panel.

A request keeps its letter until it is given back; letters go round, so a fresh one was last seen long ago.
Beyond 62 at once a request is `#` until `promote` finds it a free one.
"""

from __future__ import annotations

import string
from collections import deque

from workbench.text import short

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits
NONE_LEFT = "#"


class Letters:
    def __init__(self) -> None:
        self._free = deque(ALPHABET)
        self._of: dict[str, str] = {}

    @property
    def left(self) -> int:
        return len(self._free)

    def give(self, id: str) -> str:
        letter = self._free.popleft() if self._free else NONE_LEFT
        self._of[id] = letter
        return letter

    def promote(self, id: str) -> None:
        """A request without a letter starts to matter: give it one if there is one."""
        if self.of(id) == NONE_LEFT and self._free:
            self._of[id] = self._free.popleft()

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
