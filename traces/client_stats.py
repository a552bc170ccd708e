"""Who asks, and how unevenly: rows and tokens of each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traces.fairness import jain
from traces.rows import Ints

MOST_CLIENTS = 1 << 18
"""Beyond these many, further clients are counted together."""
OTHERS = "(others)"
DEFAULT = "default"
TOP = 10


class ClientTally:
    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._codes: dict[str, int] = {}
        self._rows: Ints = np.zeros(0, np.int64)
        self._tokens: Ints = np.zeros(0, np.int64)
        self.given = 0
        """Rows that name their client."""
        self.overflow = False

    def add(self, more: Sequence[dict[str, Any]] | None, tokens: Ints) -> None:
        """tokens: prompt and output together, of each row."""
        if more is None:
            codes = np.full(len(tokens), self._code(DEFAULT), np.int64)
        else:
            self.given += sum("client" in row for row in more)
            known = self._codes
            names = [row.get("client", DEFAULT) for row in more]
            codes = np.array([known[name] if name in known else self._code(name) for name in names], np.int64)
        size = len(self._codes)
        for column, weights in (("_rows", np.ones(len(codes), np.int64)), ("_tokens", tokens)):
            sums = np.zeros(size, np.int64)
            sums[: len(getattr(self, column))] = getattr(self, column)
            np.add.at(sums, codes, weights)
            setattr(self, column, sums)

    def _code(self, name: str) -> int:
        if name not in self._codes and len(self._codes) >= self._most:
            self.overflow, name = True, OTHERS
        return self._codes.setdefault(name, len(self._codes))

    def summary(self) -> dict[str, Any]:
        """count, given, jain (of rows; None below two clients), top: the TOP by rows with rows, tokens and shares."""
        names = list(self._codes)
        rows, tokens = self._rows.tolist(), self._tokens.tolist()
        order = sorted(range(len(names)), key=lambda place: (-rows[place], names[place]))
        all_rows, all_tokens = sum(rows) or 1, sum(tokens) or 1
        top = [
            {
                "client": names[place],
                "rows": rows[place],
                "share": rows[place] / all_rows,
                "tokens": tokens[place],
                "token_share": tokens[place] / all_tokens,
            }
            for place in order[:TOP]
        ]
        return {"count": len(names), "given": self.given, "jain": jain(rows), "top": top}
