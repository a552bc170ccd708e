"""Files of requests, of any known format: `open_trace` for their rows, `read_workload` for requests to run."""

from traces.readers.loading import read_workload
from traces.readers.registry import READERS
from traces.readers.trace import Trace, open_trace

__all__ = ["READERS", "Trace", "open_trace", "read_workload"]
