"""BurstGPT: calls of ChatGPT and GPT-4 over months, 6 columns (v1) or 8 (v2: session and elapsed time).

Times are whole seconds, so many calls share one; a failed call is a row whose response (and perhaps request) has no
tokens. API calls have no session. The client can be the model or the kind of log: `--client-from model|log_type`.
"""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_KNOWN = ("Model", "Total tokens", "Log Type", "Elapsed time")


class BurstGpt(Reader):
    name = "burstgpt"
    title = "BurstGPT (CSV of 6 or 8 columns, seconds)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return SURE if {"Timestamp", "Request tokens", "Response tokens"} <= set(head.columns) else NO

    def table(self, head: Head, context: Context) -> Table:
        texts = (("Session ID", "session"),) if "Session ID" in head.columns else ()
        return Table("Request tokens", "Response tokens", "Timestamp", "s", texts, _KNOWN)
