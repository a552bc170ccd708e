"""Mooncake with sessions, as AIPerf, GenAI-Perf and Dynamo write it: ms, blocks of 512 tokens.

Each row has exactly one of `input_length`, `text_input`, `messages` or `payload` (an API body), and of `output_length`,
`hash_ids`, `timestamp`, `delay`, `session_id`, `priority` what it likes. Rows of a session are its turns, in the order
of the file; one with a `delay`, or without a `timestamp`, arrives that long after the turn before it has ended.
A turn is sent as it stands: the texts of earlier turns are not put before it.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import MAYBE, NO, SURE, Container, Context, Head, Reader
from traces.readers.chat import body, messages
from traces.readers.fields import block_ids, checked, client, fields, fits, name, prefix
from traces.rows import Drop, Row

PROMPTS = ("input_length", "text_input", "messages", "payload")
MARKS = {"session_id", "delay", "priority", "text_input", "payload"}
IGNORED = ("tools", "extra")
ALIASES = {
    "input_tokens": "input_length", "output_tokens": "output_length", "created_time": "timestamp", "delay_ms": "delay",
}  # fmt: skip
"""Names that Dynamo takes, too."""


class MooncakePlus(Reader):
    name = "mooncake-plus"
    title = "AIPerf, GenAI-Perf, Dynamo: Mooncake with sessions, delays, text; ms, blocks of 512"
    unit = "ms"
    containers: tuple[Container, ...] = (Container.JSONL, Container.JSON)
    block = 512

    def sniff(self, head: Head) -> int:
        rows = [_named(record) for record in head.records if isinstance(record, dict)]
        names = {name for row in rows for name in row}
        if names & {"arrival", "prompt_len", "output_len"}:
            return NO  # the workbench's own rows have sessions and messages too
        if "chat_id" in names or not names & set(PROMPTS) or any(isinstance(r.get("hash_ids"), dict) for r in rows):
            return NO
        if "messages" in names and not names & {"timestamp", "delay", "output_length", "hash_ids"}:
            return NO
        if not names & {"timestamp", "delay", "hash_ids", "text_input"}:
            return NO
        if names & MARKS:
            # The same shape with blocks of another size has a reader of its own.
            return SURE if "hash_ids" not in names or fits(rows, self.block) else SURE - 20
        return MAYBE if "hash_ids" in names else SURE - 30

    def parse(self, record: Any, context: Context) -> Row:
        record = _named(fields(record))
        forms = [form for form in PROMPTS if record.get(form) is not None]
        if len(forms) != 1:
            raise Drop("not exactly one prompt form", " and ".join(forms) or f"none of {', '.join(PROMPTS)}")
        row = self._prompt(record, forms[0], context)
        stamp = record.get("timestamp")
        row.t_ns = None if stamp is None else context.time(stamp, self.unit)
        if (length := record.get("output_length")) is not None:
            row.output_len = context.length("output_length", length)
            row.more.pop("max_tokens", None)
            for gone in ("stop", "stop_token_ids", "ignore_eos"):
                row.more.pop(gone, None)
        if record.get("priority") is not None:
            row.more["priority"] = checked("priority", record["priority"])
        row.more.update(client(record, context))
        for field in IGNORED:
            if record.get(field):
                context.note(f"field {field!r} is not used")
        self._turn(row, record, context)
        return row

    def _prompt(self, record: dict[str, Any], form: str, context: Context) -> Row:
        value = record[form]
        if form == "input_length":
            row = Row(prompt_len=context.length(form, value))
            if record.get("hash_ids") is not None:
                prefix(row, block_ids(record["hash_ids"]), self.block, context)
            return row
        if form == "text_input":
            if not isinstance(value, str) or not value:
                raise Drop("empty prompt" if value == "" else "text_input is not text")
            return Row(more={"prompt": value})
        if form == "messages":
            chat, clamped = messages(value)
            return Row(more={"messages": chat}, clamped=clamped)
        return body(value, context)

    def _turn(self, row: Row, record: dict[str, Any], context: Context) -> None:
        session = name(record.get("session_id"))
        delay = record.get("delay")
        pause = 0.0 if delay is None else context.seconds(delay, self.unit)
        if session is None:
            if delay is not None:
                context.note("the delay of a row without a session is not used")
            return
        sessions: dict[str, tuple[str, int]] = context.state.setdefault("last_turns", {})
        last = sessions.get(session)
        turn = record.get("turn")
        turn = (last[1] + 1 if last else 0) if turn is None else context.length("turn", turn)
        row.more |= {"id": f"{session}/{turn}", "session": session, "turn": turn}
        if last and (delay is not None or row.t_ns is None):
            # Where turns are out of order in the file their numbers say what follows what.
            in_order = record.get("turn") is None or turn == last[1] + 1
            row.more |= {"after": last[0] if in_order else f"{session}/{turn - 1}", "delay": pause}
            if row.prompt_len is None:
                context.note("turns are sent as they stand, without the texts of earlier turns before them")
        elif turn > 1 and not last and delay is not None:
            row.more |= {"after": f"{session}/{turn - 1}", "delay": pause}
        sessions[session] = (f"{session}/{turn}", turn)


def _named(record: dict[str, Any]) -> dict[str, Any]:
    """With the names of this format, where the row has marks of Dynamo's: these words alone are anybody's."""
    if not record.keys() & {"created_time", "delay_ms", "hash_ids"} or not record.keys() & ALIASES.keys():
        return record
    return {ALIASES.get(name, name) if ALIASES.get(name) not in record else name: record[name] for name in record}


class AgentBlocks(MooncakePlus):
    """The same with blocks of 64 tokens and numbered turns: agent logs reduced to lengths and block ids."""

    name = "agent-blocks"
    title = "Agent sessions as lengths and block ids; ms from the session's start, blocks of 64"
    block = 64

    def sniff(self, head: Head) -> int:
        first = head.first
        if not first.keys() >= {"session_id", "turn", "input_length", "hash_ids"}:
            return NO
        # Short prompts alone can fit blocks of both sizes: then they are what most such files have.
        return SURE if fits(head.records, self.block) and not fits(head.records, MooncakePlus.block) else NO

    def parse(self, record: Any, context: Context) -> Row:
        context.note("times count from the start of each session: all sessions begin together")
        return super().parse(record, context)
