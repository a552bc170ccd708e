"""Qwen-Bailian: numbered chats with a parent, seconds, lengths and ids of 16-token blocks."""

from __future__ import annotations

from traces.workload import RequestSpec
from traces.writers.base import FIRST_ID, LENGTHS, Writer, json_line

BLOCK = 16
ROOT = -1


class BailianWriter(Writer):
    """Ids that are whole numbers stay; other rows get numbers above FIRST_ID, remembered for their follow-ups."""

    name = "bailian"
    title = "Qwen-Bailian: chat_id, parent_chat_id, timestamp (s), lengths, turn, hash_ids of 16 tokens"
    fields = LENGTHS | {"prefix_ids", "after", "delay", "session", "turn"}
    has_id = True

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._numbers: dict[str, int] = {}

    def row(self, spec: RequestSpec) -> str:
        row = {
            "chat_id": self._number(spec.id),
            "parent_chat_id": ROOT if spec.after is None else self._number(spec.after),
            "timestamp": self.at_ns(spec) / 1e9,
            "input_length": self.prompt_len(spec),
            "output_length": self.output_len(spec),
            "type": "text",
            "turn": 1 if spec.turn is None else spec.turn,
        }
        if (ids := self.blocks(spec, BLOCK)) is not None:
            row["hash_ids"] = ids
        if spec.after is not None and spec.delay:
            self.change("delay left to the times of a turn and its parent")
        if spec.session is not None:
            self.change("session told by the chat's first turn")
        return json_line(row)

    def _number(self, id: str) -> int:
        if id.isascii() and id.isdigit() and len(id) < 13 and str(int(id)) == id:
            return int(id)
        if (number := self._numbers.get(id)) is None:
            number = self._numbers[id] = FIRST_ID + len(self._numbers)
        return number
