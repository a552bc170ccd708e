"""Lines for a person, on stderr: stdout belongs to results."""

from __future__ import annotations

import os
import re
import sys
import time

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Control codes (file names and rows may hold them) made visible, so that they cannot act on the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def say(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


def error(text: str) -> None:
    say(f"error: {text}")


class StatusLine:
    """One line on stderr that rewrites itself at most twice a second; nothing at all when stderr is no terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._next = 0.0
        self._stage = ""

    @property
    def due(self) -> bool:
        return self._on and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        if self._on:
            self._next = time.monotonic() + 0.5
            sys.stderr.write(f"\r\x1b[K{plain(text)[:79]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def progress(self, stage: str, done: int, total: int) -> None:
        """For loaders: `loading weights 45 %`."""
        if stage != self._stage or self.due:
            self._stage = stage
            self.show(f"{stage} {100 * done // total} %" if total > 1 else stage)
