"""Pieces that the JSON readers share: names, clients, estimates, block ids.

Invariant: nothing here guesses silently. A changed value is a reason in `Row.clamped`, a guess is a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from traces.readers.base import Context
from traces.readers.lengths import covered
from traces.readers.native import FIELDS, Bad
from traces.rows import Drop, Row

CHARS_PER_TOKEN = 4
CLIENT_FOUND = "client found"
"""In `Context.state`: some row has the field of `--client-from`, though perhaps not at its top."""

BLOCK_ASKED = "id block used"
"""In `Context.state`: some row has block ids, which `--id-block` is about."""


def fields(record: Any) -> dict[str, Any]:
    """The record, known to be a JSON object. Raises Drop."""
    if not isinstance(record, dict):
        raise Drop("not a JSON object", show(record))
    return record


def show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def estimate(text: str) -> int:
    """Tokens of a text, without a tokenizer: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def name(value: Any) -> str | None:
    """An id, a session or a client as text; None when there is none."""
    if value is None or value == "" or isinstance(value, bool | dict | list):
        return None
    return str(value)


def client(record: Mapping[str, Any], context: Context, *names: str) -> dict[str, str]:
    """`{"client": ...}` of the field that `--client-from` asks for, else of the first of `names` that is there."""
    asked = context.options.client_from
    for field in (asked,) if asked else names:
        if (value := name(record.get(field))) is not None:
            if asked:
                context.state[CLIENT_FOUND] = True
            return {"client": value}
    return {}


def given(record: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that is there and not null; None when none is."""
    for name in names:
        if (value := record.get(name)) is not None:
            return value
    return None


def checked(field: str, value: Any) -> Any:
    """A value as the native format's field of that name takes it. Raises Drop."""
    try:
        return FIELDS[field].read(value)
    except Bad as error:
        raise Drop(f"bad {field}", str(error)) from None


def block_ids(value: Any, field: str = "hash_ids") -> tuple[int, ...]:
    """Content ids of any size: 64-bit ones stay what they are. Raises Drop."""
    if not isinstance(value, list):
        raise Drop(f"bad {field}", f"{show(value)} is not a list")
    if set(map(type, value)) <= {int}:
        return tuple(value)
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float) or item != item // 1:
            raise Drop(f"bad {field}", f"{show(item)} is not a whole number")
    return tuple(map(int, value))


def prefix(row: Row, ids: tuple[int, ...], block: int, context: Context, *, partial: bool = True) -> Row:
    """Put block ids on a row with a `prompt_len`.

    partial: the format numbers the last, partly filled block too. Where it does not, whole blocks are enough.
    Raises Drop where ids are missing, see `covered`.
    """
    asked = context.options.id_block
    if asked is not None:
        context.state[BLOCK_ASKED] = True
        block = asked
    tokens = row.prompt_len or 0
    whole, rest = divmod(tokens, block)
    if len(ids) != whole + (rest > 0) and (partial or len(ids) != whole):
        if len(ids) > 2 * (whole + 1):
            context.note(
                f"some rows have far more ids than blocks of {block} tokens: is the block size another one? "
                "(--id-block N)"
            )
        ids, changed = covered(tokens, ids, block, context.options)
        row.clamped += changed
    if ids:
        row.more["prefix_ids"] = ids
        row.more["prefix_lens"] = (block,)
    return row


def fits(records: Iterable[Any], block: int) -> bool:
    """Whether every row with ids among these has as many as its prompt has blocks of that size."""
    rows = [r for r in records if isinstance(r, dict) and isinstance(r.get("hash_ids"), list)]
    lengths = [r.get("input_length") for r in rows]
    return bool(rows) and all(
        isinstance(length, int) and -(-length // block) == len(row["hash_ids"])
        for row, length in zip(rows, lengths, strict=True)
    )
