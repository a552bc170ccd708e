"""ShareGPT and its relatives: one array (or lines) of conversations; no times, no token counts.

Of each conversation the first question and the answer to it are taken: the question is the prompt, and the answer's
length, a quarter of its characters, is the output length. Rows without such a pair are dropped.
`Conversations` reads LMSYS-Chat-1M and WildChat, which have names of their own and (WildChat) times.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import LIKELY, NO, SURE, Container, Context, Head, Reader
from traces.readers.chat import role
from traces.readers.fields import client, estimate, fields, given, name, show
from traces.rows import Drop, Row

SPELLINGS = ("conversations", "conversation", "messages")
BODY = {"model", "max_tokens", "max_completion_tokens", "temperature", "stream", "tools"}
"""Fields of an API body, which has `messages` too."""
ABOUT_LENGTH = "output lengths are estimates: a quarter of the characters of the recorded answer"


class ShareGPT(Reader):
    name = "sharegpt"
    title = "ShareGPT: conversations; first question, length of its answer estimated; no times"
    unit = ""
    containers: tuple[Container, ...] = (Container.JSON, Container.JSONL)

    def sniff(self, head: Head) -> int:
        first = head.first
        turns = given(first, *SPELLINGS)
        if not isinstance(turns, list) or first.keys() & {"timestamp", "delay", "session_id", "custom_id"}:
            return NO
        if "conversation_id" in first or "conversation_hash" in first:
            return NO
        if not all(isinstance(turn, dict) and turn.keys() & {"from", "role", "value", "content"} for turn in turns):
            return NO
        if "messages" not in first:
            return SURE
        # A body to send ends with a question, a conversation that was had ends with an answer.
        answered = any(_speaker(turn, 0) == "assistant" for turn in turns[-1:])
        return LIKELY + 20 if answered and not first.keys() & BODY else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        question, answer = pair(given(record, *SPELLINGS))
        context.note(ABOUT_LENGTH)
        return Row(None, None, estimate(answer), more={"prompt": question, **self.who(record, context)})

    def who(self, record: dict[str, Any], context: Context) -> dict[str, str]:
        return client(record, context)


class Conversations(ShareGPT):
    name = "wildchat"
    title = "LMSYS-Chat-1M, WildChat: conversations; first question, length of its answer estimated"
    unit = "date"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        ours = isinstance(first.get("conversation"), list) and first.keys() & {"conversation_id", "conversation_hash"}
        return SURE if ours else NO

    def parse(self, record: Any, context: Context) -> Row:
        row = super().parse(record, context)
        if (stamp := record.get("timestamp")) is not None:
            row.t_ns = context.time(stamp, "s")
        return row

    def who(self, record: dict[str, Any], context: Context) -> dict[str, str]:
        return client(record, context, "hashed_ip")


def pair(turns: Any) -> tuple[str, str]:
    """The first question and the answer to it. Raises Drop."""
    if not isinstance(turns, list):
        raise Drop("no conversation", show(turns))
    asked = next((at for at, turn in enumerate(turns) if _speaker(turn, at) == "user"), None)
    if asked is None:
        raise Drop("no question in the conversation", f"{len(turns)} turns")
    following = turns[asked + 1] if asked + 1 < len(turns) else None
    if _speaker(following, asked + 1) != "assistant":
        raise Drop("no answer to the first question", f"{len(turns)} turns")
    question, answer = (given(turn, "value", "content") for turn in (turns[asked], turns[asked + 1]))
    for text, what in ((question, "question"), (answer, "answer")):
        if not isinstance(text, str) or not text.strip():
            raise Drop(f"empty {what}", name(text) or "")
    return question, answer


def _speaker(turn: Any, place: int) -> str:
    """Turns that do not say who speaks take turns, the user first."""
    if not isinstance(turn, dict):
        return ""
    said = given(turn, "from", "role")
    return role(said) if said is not None else ("user", "assistant")[place % 2]
