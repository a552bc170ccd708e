"""LLMServingSim 2, flat form: nanoseconds, lengths and token ids where there are some."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, json_line


class LlmServingSimWriter(Writer):
    name = "llmservingsim"
    title = "LLMServingSim: input_toks, output_toks, arrival_time_ns, input_tok_ids"
    fields = LENGTHS | {"prompt_ids"}

    def row(self, spec: RequestSpec) -> str:
        row: dict[str, object] = {
            "input_toks": self.prompt_len(spec),
            "output_toks": self.output_len(spec),
            "arrival_time_ns": self.at_ns(spec),
        }
        if spec.prompt_ids is not None:
            row["input_tok_ids"] = list(spec.prompt_ids)
        return json_line(row)
