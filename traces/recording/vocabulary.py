"""Texts of tokens, each written once: a `voc` line gives a token's text when it is first said.

An entry never changes; where a token came with another text the record says so. So a vocabulary of the whole file
serves every record in it. Another model (a rebuild) is another generation, with a vocabulary of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from traces.recording.lines import BadLine


class Vocabulary:
    def __init__(self, fetch: Callable[[], Iterable[dict[str, Any]]] | None = None) -> None:
        """fetch: reads all `voc` lines of a file; asked once, when an entry is missing."""
        self._texts: dict[int, dict[int, str]] = {}
        self._fetch = fetch

    def add(self, line: dict[str, Any]) -> None:
        table = self._texts.setdefault(line["g"], {})
        for token, text in line["v"]:
            table.setdefault(token, text)

    def pieces(self, generation: int, tokens: list[int]) -> list[str]:
        """Texts of these tokens. BadLine when one was never given."""
        table = self._texts.get(generation, {})
        try:
            return [table[token] for token in tokens]
        except KeyError:
            if self._fetch is not None:
                fetch, self._fetch = self._fetch, None
                for line in fetch():
                    self.add(line)
                return self.pieces(generation, tokens)
            missing = next(token for token in tokens if token not in table)
            raise BadLine(f"says token {missing}, whose text was never given") from None
