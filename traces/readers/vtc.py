"""Requests of several clients with lengths and, where it ran, latencies: the form of the VTC fairness experiments."""

from __future__ import annotations

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.table import Table

_TIMES = ("req_time_s", "req_time")
_CLIENTS = ("client", "adapter_dir")
_KNOWN = ("request_latency_s", "first_token_latency_s", "request_latency", "first_token_latency")


class Vtc(Reader):
    name = "vtc"
    title = "VTC clients (CSV, seconds)"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        columns = set(head.columns)
        ours = columns & set(_TIMES) and columns & set(_CLIENTS) and {"prompt_len", "output_len"} <= columns
        return SURE if ours else NO

    def table(self, head: Head, context: Context) -> Table:
        time = next((name for name in _TIMES if name in head.columns), _TIMES[0])
        client = next((name for name in _CLIENTS if name in head.columns), _CLIENTS[0])
        return Table("prompt_len", "output_len", time, "s", ((client, "client"),), _KNOWN)
