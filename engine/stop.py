"""Stop strings over a stream of text pieces.

What: `StopStrings(stops)`; `push` returns the text that may be shown, and whether generation is over.
Invariant: however the text is cut into pieces, what comes out is the text before the match that starts
first. Text is held only while it may still become such a match, and released as soon as it cannot.
Omission: no regular expressions, no case folding; end-of-sequence ids are the engine's business.

Where a shorter stop is complete but a longer one that started earlier is still possible ("bc" and
"abcd" after "abc"), the answer waits for the longer one to be decided.
"""

from __future__ import annotations

from engine.errors import WorkbenchError


class StopStrings:
    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        if "" in stops:
            raise WorkbenchError("a stop string must not be empty: it would stop before the first character")
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text, once one did."""

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def push(self, piece: str) -> tuple[str, bool]:
        """(text safe to show, stopped). After a stop, further pieces are ignored."""
        if self.stopped or not self._stops:
            return ("" if self.stopped else piece), self.stopped
        self._held += piece
        possible = self._first_possible()
        start, stop = self._first_match()
        if stop is not None and start <= possible:
            return self._stop(start, stop), True
        safe, self._held = self._held[:possible], self._held[possible:]
        return safe, False

    def finish(self) -> str:
        """The held text, at the end of generation; cut (and `stopped`) if it holds a complete match."""
        start, stop = self._first_match()
        if stop is not None:
            return self._stop(start, stop)
        text, self._held = self._held, ""
        return text

    def _stop(self, start: int, stop: str) -> str:
        text, self._held, self.matched = self._held[:start], "", stop
        return text

    def _first_match(self) -> tuple[int, str | None]:
        """Where the first complete match starts, and the longest stop there."""
        matches = [(self._held.find(stop), -len(stop), stop) for stop in self._stops if stop in self._held]
        if not matches:
            return -1, None
        start, _, stop = min(matches)
        return start, stop

    def _first_possible(self) -> int:
        """Where the first unfinished match starts; the length of the held text if there is none."""
        size = len(self._held)
        for start in range(max(0, size - self._longest + 1), size):
            tail = self._held[start:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                return start
        return size
