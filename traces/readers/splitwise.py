"""splitwise-sim: requests of a cluster simulator. Only those of a language model (type 2) are requests here."""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table


class SplitwiseSim(Reader):
    name = "splitwise-sim"
    title = "splitwise-sim trace (CSV, seconds)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return SURE if {"arrival_timestamp", "prompt_size", "token_size"} <= set(head.columns) else NO

    def table(self, head: Head, context: Context) -> Table:
        return Table(
            "prompt_size",
            "token_size",
            "arrival_timestamp",
            "s",
            (("request_id", "id"),) if "request_id" in head.columns else (),
            ("application_id", "batch_size"),
            ("request_type", "2") if "request_type" in head.columns else None,
        )
