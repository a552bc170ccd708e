"""BurstGPT: calls of ChatGPT and GPT-4 over months, 6 columns (v1) or 8 (v2: session and elapsed time).

Times are whole seconds, so many calls share one; a failed call is a row whose response (and perhaps request) has no
tokens. API calls have no session. The client can be the model or the kind of log: `--client-from model|log_type`.
"""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_NEEDED = ("Timestamp", "Request tokens", "Response tokens")
_KNOWN = ("Model", "Total tokens", "Log Type", "Elapsed time")


class BurstGpt(Reader):
    name = "burstgpt"
    title = "BurstGPT (CSV of 6 or 8 columns, seconds)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        if len(head.spelled(_NEEDED)) < len(_NEEDED):
            return NO
        # In another spelling these are names that any file may have.
        return SURE if set(_NEEDED) <= set(head.columns) or head.column("Log Type") else NO

    def table(self, head: Head, context: Context) -> Table:
        texts = tuple((column, "session") for column in head.spelled(("Session ID",)))
        time, prompt, output = (head.column(name) or name for name in _NEEDED)
        return Table(prompt, output, time, "s", texts, head.spelled(_KNOWN))
