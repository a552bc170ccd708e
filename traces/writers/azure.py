"""Azure LLM inference traces: a date and two lengths."""

from __future__ import annotations

import time

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, SECOND, Writer


class AzureWriter(Writer):
    """Dates begin where the source's did, or in 1970 when it had none. They say no zone, as in the 2023 files."""

    name = "azure"
    title = "Azure LLM 2023: TIMESTAMP (a date with 100 ns), ContextTokens, GeneratedTokens"
    fields = LENGTHS
    resolution_ns = 100

    def header(self) -> str:
        return "TIMESTAMP,ContextTokens,GeneratedTokens\n"

    def row(self, spec: RequestSpec) -> str:
        step = self.resolution_ns
        whole, part = divmod((self.start_ns + self.at_ns(spec) + step // 2) // step * step, SECOND)
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(whole))
        return f"{date}.{part // step:07d},{self.prompt_len(spec)},{self.output_len(spec)}"
