"""splitwise-sim: seconds and two lengths, every request a batch of one."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, seconds

LLM = 2
"""The simulator's type of request that generates text."""


class SplitwiseWriter(Writer):
    name = "splitwise-sim"
    title = "splitwise-sim: arrival_timestamp (s), prompt_size, token_size and constants"
    fields = LENGTHS

    def header(self) -> str:
        return "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"

    def row(self, spec: RequestSpec) -> str:
        stamp = seconds(self.at_ns(spec))
        number = self.account.written
        return f"{number},{LLM},0,{stamp},1,{self.prompt_len(spec)},{self.output_len(spec)}"
