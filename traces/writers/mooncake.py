"""Mooncake: JSON lines of whole milliseconds, two lengths and ids of 512-token blocks; and the form with sessions."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, json_line

BLOCK = 512
MILLISECOND = 1_000_000


class MooncakeWriter(Writer):
    name = "mooncake"
    title = "Mooncake: timestamp (ms), input_length, output_length, hash_ids of 512 tokens"
    fields = LENGTHS | {"prefix_ids"}
    resolution_ns = MILLISECOND

    def row(self, spec: RequestSpec) -> str:
        row = {
            "timestamp": self.rounded_ns(spec) // MILLISECOND,
            "input_length": self.prompt_len(spec),
            "output_length": self.output_len(spec),
        }
        ids = self.blocks(spec, BLOCK)
        return json_line(row | ({} if ids is None else {"hash_ids": ids}))


class MooncakePlusWriter(Writer):
    """Turns of a session that follow the one before them get a `delay` in place of a `timestamp`."""

    name = "mooncake-plus"
    title = "AIPerf, GenAI-Perf, Dynamo: Mooncake with sessions, delays, priorities and text"
    fields = LENGTHS | {"prefix_ids", "prompt", "messages", "session", "turn", "after", "delay", "priority"}
    resolution_ns = 1_000  # fractions of a millisecond are written, and none beyond the third digit

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._last: dict[str, str] = {}
        """Id of the latest row of each session."""

    def row(self, spec: RequestSpec) -> str:
        row: dict[str, object] = {}
        follows = spec.after is not None and spec.session is not None and self._last.get(spec.session) == spec.after
        if spec.session is not None:
            row["session_id"] = spec.session
        if follows:
            row["delay"] = _milliseconds(round(spec.delay * 1e9))
        else:
            row["timestamp"] = _milliseconds(self.rounded_ns(spec))
        if spec.prompt is not None:
            row["text_input"] = spec.prompt
        elif spec.messages is not None:
            row["messages"] = [{"role": role, "content": content} for role, content in spec.messages]
        else:
            row["input_length"] = self.prompt_len(spec)
        if spec.output_len is not None or spec.max_tokens is not None or spec.failed:
            row["output_length"] = self.output_len(spec)
        if spec.priority:
            row["priority"] = spec.priority
        if (ids := self.blocks(spec, BLOCK)) is not None:
            row["hash_ids"] = ids
        if spec.session is not None:
            self._last[spec.session] = spec.id
        if follows:
            self.change("arrival left to the delay after the turn before")
        elif spec.after is not None:
            self.account.lost["after (it does not follow the row before it of its session)"] += 1
        return json_line(row)


def _milliseconds(ns: int) -> int | float:
    return ns // MILLISECOND if ns % MILLISECOND == 0 else round(ns / MILLISECOND, 3)
