"""Vidur's processed traces: seconds and two lengths."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, seconds


class VidurWriter(Writer):
    name = "vidur"
    title = "Vidur: arrived_at (s), num_prefill_tokens, num_decode_tokens"
    fields = LENGTHS

    def header(self) -> str:
        return "arrived_at,num_prefill_tokens,num_decode_tokens\n"

    def row(self, spec: RequestSpec) -> str:
        return f"{seconds(self.at_ns(spec))},{self.prompt_len(spec)},{self.output_len(spec)}"
