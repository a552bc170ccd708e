"""Vidur's processed traces: seconds from the start and lengths, lengths alone, or dates in `arrival_time`.

Lengths above a model's limit stay as they are: Vidur's own reader cuts the prompt there, silently.
"""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_LENGTHS = ("num_prefill_tokens", "num_decode_tokens")
_TIMES = ("arrived_at", "arrival_time")
_KNOWN = ("num_total_tokens", "pd_ratio", "arrived_at", "arrival_time")


class Vidur(Reader):
    name = "vidur"
    title = "Vidur trace (CSV, seconds or lengths alone)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return SURE if len(head.spelled(_LENGTHS)) == len(_LENGTHS) else NO

    def table(self, head: Head, context: Context) -> Table:
        prompt, output = (head.column(name) or name for name in _LENGTHS)
        return Table(prompt, output, next(iter(head.spelled(_TIMES)), ""), "s", known=head.spelled(_KNOWN))
