"""Azure's public LLM traces: arrivals and lengths, no text. 2023 (naive dates of 7 digits), 2024 (zones; some dates
without a fraction), 2025 (multimodal: a column with the number of images stands before the lengths)."""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table


class Azure(Reader):
    name = "azure"
    title = "Azure LLM inference trace (CSV, dates)"
    unit = "date"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return SURE if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= set(head.columns) else NO

    def table(self, head: Head, context: Context) -> Table:
        if "NumImages" in head.columns:
            context.note("NumImages is not used: the tokens of images are part of ContextTokens")
        return Table("ContextTokens", "GeneratedTokens", "TIMESTAMP", "date", known=("NumImages",))
