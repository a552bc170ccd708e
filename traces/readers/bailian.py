"""Qwen-Bailian: JSON lines of chats, seconds, blocks of 16 tokens. Each row holds its whole history.

`parent_chat_id` (-1: none) is the chat before it. The file tells when chats began and not when they ended: a turn is
given the time between both beginnings as its delay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import block_ids, client, fields, name, prefix
from traces.rows import Drop, Row

BLOCK = 16
REMEMBERED = 1 << 18
"""Chats. One whose parent is further back begins a session of its own name; the public files are smaller."""


class Chat(NamedTuple):
    session: str
    t_ns: int


class Bailian(Reader):
    name = "bailian"
    title = "Qwen-Bailian: chats with parents, lengths and block ids; s, blocks of 16"
    unit = "s"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        return SURE if head.first.keys() >= {"chat_id", "parent_chat_id", "timestamp", "input_length"} else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        chat = name(record.get("chat_id"))
        if chat is None:
            raise Drop("no chat_id")
        t_ns = context.time(record.get("timestamp"), self.unit)
        row = Row(
            t_ns,
            context.length("input_length", record.get("input_length")),
            context.length("output_length", record.get("output_length")),
        )
        if record.get("hash_ids") is not None:
            prefix(row, block_ids(record["hash_ids"]), BLOCK, context)
        row.more |= {"id": chat, **client(record, context)}
        if record.get("turn") is not None:
            row.more["turn"] = context.length("turn", record["turn"])
        chats: dict[str, Chat] = context.state.setdefault("chats", {})
        parent = name(record.get("parent_chat_id"))
        session = chat
        if parent is not None and parent != "-1":
            known = chats.get(parent)
            session = known.session if known else parent
            gap = max(0, t_ns - known.t_ns) if known else 0
            row.more |= {"after": parent, "delay": gap / 1e9}
            context.note("a turn's delay is the time between its beginning and its parent's: ends are not in the file")
        row.more["session"] = session
        chats[chat] = Chat(session, t_ns)
        if len(chats) > REMEMBERED:
            del chats[next(iter(chats))]
        return row
