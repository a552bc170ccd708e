"""vLLM's `custom` data set: a prompt and a number of output tokens a line."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import Unwritable, Writer, json_line


class VllmCustomWriter(Writer):
    """vLLM takes `output_tokens` with --custom-output-len -1 alone, and files whose name ends in .jsonl."""

    name = "vllm-custom"
    title = "vLLM custom: prompt, output_tokens (use --custom-output-len -1 there)"
    fields = frozenset({"prompt", "messages", "output_len", "max_tokens"})
    has_arrival = False

    def row(self, spec: RequestSpec) -> str:
        text = spec.prompt
        if spec.messages is not None:
            if [role for role, _ in spec.messages] != ["user"]:
                raise Unwritable("a chat of more than one user message")
            text = spec.messages[0][1]
            self.change("messages become a prompt (vLLM puts its chat template around it)")
        if text is None:
            raise Unwritable("a length without text")
        row: dict[str, object] = {"prompt": text}
        if spec.output_len is not None or spec.max_tokens is not None:
            row["output_tokens"] = self.output_len(spec)
        return json_line(row)
