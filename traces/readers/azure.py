"""Azure's public LLM traces: arrivals and lengths, no text. 2023 (naive dates of 7 digits), 2024 (zones; some dates
without a fraction), 2025 (multimodal: a column with the number of images stands before the lengths)."""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_NEEDED = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class Azure(Reader):
    name = "azure"
    title = "Azure LLM inference trace (CSV, dates)"
    unit = "date"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return SURE if len(head.spelled(_NEEDED)) == len(_NEEDED) else NO

    def table(self, head: Head, context: Context) -> Table:
        images = head.spelled(("NumImages",))
        if images:
            context.note("NumImages is not used: the tokens of images are part of ContextTokens")
        time, prompt, output = (head.column(name) or name for name in _NEEDED)
        return Table(prompt, output, time, "date", known=images)
