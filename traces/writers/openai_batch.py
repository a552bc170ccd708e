"""OpenAI batch input: one API request a line. Prompts are text or token ids; there are no arrivals."""

from __future__ import annotations

from typing import Any

from traces.workload import RequestSpec
from traces.writers.base import Unwritable, Writer, json_line

MODEL = "default"
"""A workload knows no model, and the format wants one."""
_SAMPLING = {
    "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": None, "stop": (), "stop_token_ids": (),
    "ignore_eos": False,
}  # fmt: skip
"""Left out at these values, except the temperature: the interface's own default is 1. From `top_k` on, the names are
those of vLLM's and SGLang's servers."""


class OpenAiBatchWriter(Writer):
    name = "openai-batch"
    title = "OpenAI batch: custom_id, method, url, body {model, messages or prompt, max_tokens ...}"
    fields = frozenset({"prompt", "messages", "prompt_ids", "output_len", "max_tokens", "client", *_SAMPLING})
    has_arrival = False
    has_id = True

    def row(self, spec: RequestSpec) -> str:
        if spec.failed:
            raise Unwritable("a request that failed at its source")
        body: dict[str, Any] = {"model": MODEL}
        url = "/v1/completions"
        if spec.messages is not None:
            url = "/v1/chat/completions"
            body["messages"] = [{"role": role, "content": content} for role, content in spec.messages]
        elif spec.prompt is not None:
            body["prompt"] = spec.prompt
        elif spec.prompt_ids is not None:
            body["prompt"] = list(spec.prompt_ids)
        else:
            raise Unwritable("a length without text")
        if spec.output_len is not None:
            self.change("output_len becomes a limit (max_tokens)")
            body["max_tokens"] = spec.output_len
        elif spec.max_tokens is not None:
            body["max_tokens"] = spec.max_tokens
        for name, default in _SAMPLING.items():
            value = getattr(spec, name)
            if value != default or name == "temperature":
                body[name] = list(value) if isinstance(value, tuple) else value
        if spec.client != "default":
            body["user"] = spec.client
        return json_line({"custom_id": spec.id, "method": "POST", "url": url, "body": body})
