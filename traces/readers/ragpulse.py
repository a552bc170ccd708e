"""RAGPulse: JSON lines, seconds as text, prompts as components (system prompt, passages, history, search, question).

`hash_ids` is an object of lists; an id is one component of its own length, and numbers are shared by all kinds. The
lengths are in side files beside the trace, one `{"KIND_id": ..., "token_length": ...}` a line. Without them a prompt's
length is spread evenly over its components, and a note says so. Components are a few tokens short of the prompt (the
chat template): the rest is the row's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import WorkbenchError
from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import block_ids, client, fields, name
from traces.readers.files import read_lines
from traces.rows import Drop, Row

LENGTH = "token_length"
CUT = "components longer than the prompt were cut"


class RagPulse(Reader):
    name = "ragpulse"
    title = "RAGPulse: retrieval prompts as components of their own lengths; s"
    unit = "s"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        return SURE if isinstance(first.get("hash_ids"), dict) and "input_length" in first else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        row = Row(
            context.time(record.get("timestamp"), self.unit),
            context.length("input_length", record.get("input_length")),
            context.length("output_length", record.get("output_length")),
        )
        if (session := name(record.get("session_id"))) is not None:
            row.more["session"] = session
        row.more.update(client(record, context))
        kinds = record.get("hash_ids")
        if kinds is None:
            return row
        if not isinstance(kinds, dict):
            raise Drop("bad hash_ids", "not an object of components")
        ids = tuple(
            id for kind, part in kinds.items() if part is not None for id in block_ids(part, f"hash_ids {kind}")
        )
        if ids and row.prompt_len:
            self._components(row, ids, row.prompt_len, context)
        return row

    def _components(self, row: Row, ids: tuple[int, ...], tokens: int, context: Context) -> None:
        known = context.state.get("lengths")
        if known is None:
            known = context.state["lengths"] = side_lengths(context.path)
        lengths: list[int | None] = [known.get(id) for id in ids]
        unknown = lengths.count(None)
        spread = spread_over(max(0, tokens - sum(length or 0 for length in lengths)), unknown)
        sizes = [next(spread) if length is None else length for length in lengths]
        if unknown == len(ids):
            context.note(
                "no side files with component lengths beside the trace: prompts are spread evenly over their ids"
            )
        elif unknown:
            context.note("components missing in the side files got an even share of what is left of their prompt")
        if sum(sizes) > tokens:
            row.clamped += (CUT,)
        kept_ids: list[int] = []
        kept: list[int] = []
        room = tokens
        for id, size in zip(ids, sizes, strict=True):
            if size and room:
                kept_ids.append(id)
                kept.append(min(size, room))
                room -= kept[-1]
        if kept:
            row.more |= {"prefix_ids": tuple(kept_ids), "prefix_lens": tuple(kept)}


def spread_over(tokens: int, parts: int) -> Iterator[int]:
    """`tokens` in `parts` whole numbers that differ by at most one, the larger ones first."""
    for part in range(parts):
        yield tokens // parts + (part < tokens % parts)


def side_lengths(trace: Path) -> dict[int, int]:
    """Component id to tokens, of all side files in the trace's folder. Other files there are left alone."""
    lengths: dict[int, int] = {}
    for path in sorted(trace.absolute().parent.glob("*.jsonl*")):
        if path.name == trace.name or not path.is_file():
            continue
        try:
            for line, raw in read_lines(path):
                entry = _entry(raw)
                if entry is None and line == 1:
                    break
                if entry:
                    lengths.setdefault(*entry)
        except WorkbenchError:  # not a text file: none of ours
            continue
    return lengths


def _entry(raw: bytes) -> tuple[int, int] | None:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    if not isinstance(value, dict) or LENGTH not in value:
        return None
    ids = [item for key, item in value.items() if key == "id" or key.endswith("_id")]
    length = value[LENGTH]
    if len(ids) != 1 or not isinstance(ids[0], int) or not isinstance(length, int) or length < 0:
        return None
    return ids[0], length
