"""splitwise-sim: requests of a cluster simulator. Only those of a language model (type 2) are requests here."""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_NEEDED = ("arrival_timestamp", "prompt_size", "token_size")


class SplitwiseSim(Reader):
    name = "splitwise-sim"
    title = "splitwise-sim trace (CSV, seconds)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return SURE if len(head.spelled(_NEEDED)) == len(_NEEDED) else NO

    def table(self, head: Head, context: Context) -> Table:
        time, prompt, output = (head.column(name) or name for name in _NEEDED)
        kind = head.column("request_type")
        return Table(
            prompt,
            output,
            time,
            "s",
            tuple((column, "id") for column in head.spelled(("request_id",))),
            head.spelled(("application_id", "batch_size")),
            (kind, "2") if kind else None,
        )
