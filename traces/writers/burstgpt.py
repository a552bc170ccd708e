"""BurstGPT: seconds and lengths in the six columns of its first two files."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, seconds

MODEL = "GPT-4"
"""A workload knows no model. Some readers of this format keep these rows alone."""


class BurstGptWriter(Writer):
    name = "burstgpt"
    title = "BurstGPT, 6 columns: Timestamp (s), Model, Request, Response and Total tokens, Log Type"
    fields = LENGTHS

    def header(self) -> str:
        return "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"

    def row(self, spec: RequestSpec) -> str:
        prompt, output = self.prompt_len(spec), self.output_len(spec)
        stamp = seconds(self.at_ns(spec)).removesuffix(".0")
        return f"{stamp},{MODEL},{prompt},{output},{prompt + output},API log"
