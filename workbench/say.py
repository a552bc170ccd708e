"""Lines for a person, on stderr: stdout belongs to results."""

from __future__ import annotations

import re
import sys

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Control codes (file names and rows may hold them) made visible, so that they cannot act on the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def say(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


def error(text: str) -> None:
    say(f"error: {text}")
