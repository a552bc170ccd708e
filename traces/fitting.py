"""What to do with requests that are longer than the model or the person allows, and an account of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.sampling_params import SamplingParams
from traces.prompts import GivenPrompt, MadePrompt

if TYPE_CHECKING:
    from traces.workload import RequestSpec


@dataclass(slots=True)
class Fitting:
    """Looks at every request once. Counts are complete when all have been seen."""

    model_len: int
    """Most tokens of prompt and output together."""
    max_prompt: int | None = None
    """Longer prompts are cut to this many tokens; their beginnings stay."""
    over: str = "reject"
    """Requests over `model_len`: drop (they are not sent), clamp (the prompt is cut until the output fits, but not
    below half of `model_len`, then the output), reject (they are sent; the engine refuses prompts that do not fit and
    ends answers early)."""
    cut: int = 0
    """Prompts cut to `max_prompt`."""
    longest_cut: int = 0
    """Tokens of the longest of them, before."""
    too_long: int = 0
    """Requests over `model_len`."""
    largest: int = 0
    """Tokens of the largest of them, prompt and output."""
    prompts_too_long: int = 0
    """Those of which the prompt alone leaves no room for an output."""
    first: str = ""
    """Where the first of them stands."""

    def fit(
        self, spec: RequestSpec, prompt: GivenPrompt | MadePrompt, params: SamplingParams
    ) -> tuple[GivenPrompt | MadePrompt, SamplingParams] | None:
        """None: it is not sent."""
        if self.max_prompt is not None and len(prompt) > self.max_prompt:
            self.cut += 1
            self.longest_cut = max(self.longest_cut, len(prompt))
            prompt = prompt.cut(self.max_prompt)
        output = spec.output_len or 1
        length = len(prompt) + output
        if length <= self.model_len:
            return prompt, params
        self.too_long += 1
        self.largest = max(self.largest, length)
        self.prompts_too_long += len(prompt) >= self.model_len
        self.first = self.first or spec.where or spec.id
        if self.over == "drop":
            return None
        if self.over == "clamp":
            most = max(self.model_len - output, self.model_len // 2)
            if len(prompt) > most:
                prompt = prompt.cut(most)
            if spec.output_len is not None:
                params = dataclasses.replace(params, max_tokens=min(output, self.model_len - len(prompt)))
        return prompt, params

    def told(self) -> list[str]:
        """For people, a line for each thing that was done."""
        lines = []
        if self.cut:
            lines.append(
                f"--max-prompt: {self.cut:,} prompts cut to {self.max_prompt:,} tokens (the longest had "
                f"{self.longest_cut:,})"
            )
        if self.too_long:
            what = {
                "drop": "dropped",
                "clamp": "clamped to fit",
                "reject": f"sent as they are: {self.prompts_too_long:,} are refused, the others get shorter answers",
            }[self.over]
            hint = "; --over-limit clamp or drop would change that" if self.over == "reject" else ""
            lines.append(
                f"over max_model_len {self.model_len:,}: {self.too_long:,} requests (the largest has {self.largest:,} "
                f"tokens, the first is {self.first}), {what}{hint}"
            )
        return lines
