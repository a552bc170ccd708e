"""Requests of several clients with lengths and, where it ran, latencies: the form of the VTC fairness experiments."""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_LENGTHS = ("prompt_len", "output_len")
_TIMES = ("req_time_s", "req_time")
_CLIENTS = ("client", "adapter_dir")
_KNOWN = ("request_latency_s", "first_token_latency_s", "request_latency", "first_token_latency")


class Vtc(Reader):
    name = "vtc"
    title = "VTC clients (CSV, seconds)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        ours = head.spelled(_TIMES) and head.spelled(_CLIENTS) and len(head.spelled(_LENGTHS)) == len(_LENGTHS)
        return SURE if ours else NO

    def table(self, head: Head, context: Context) -> Table:
        time = next(iter(head.spelled(_TIMES)), _TIMES[0])
        client = next(iter(head.spelled(_CLIENTS)), _CLIENTS[0])
        prompt, output = (head.column(name) or name for name in _LENGTHS)
        return Table(prompt, output, time, "s", ((client, "client"),), head.spelled(_KNOWN))
