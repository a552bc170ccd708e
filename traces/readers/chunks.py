"""Rows and columns to chunks, never larger than CHUNK_ROWS and in order of their lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from traces.readers.counting import Counting
from traces.rows import CHUNK_ROWS, Chunk, Flags, Ints, Row

PARSED_ROWS = 8192
"""Rows that were made one by one and are given on at once: with their fields they are a hundred times as large."""
MOST_HELD = 4 << 20
"""Bytes of texts and ids in a chunk, about: prompts of whole conversations must not fill the memory."""


def one_by_one(records: Iterable[tuple[int, Any]], counting: Counting) -> Iterator[Chunk]:
    """Of (line, record)s."""
    lines: list[int] = []
    rows: list[Row] = []
    held = 0
    for line, record in records:
        for row in counting.rows(line, record):
            lines.append(line)
            rows.append(row)
            held += _size(row)
        if len(rows) >= PARSED_ROWS or held > MOST_HELD:
            yield from _in_chunks(lines, rows)
            lines, rows, held = [], [], 0
    yield from _in_chunks(lines, rows)


def merged(
    line: Ints,
    times: Ints,
    prompt: Ints,
    output: Ints,
    failed: Flags,
    more: list[dict[str, Any]] | None,
    odd_lines: list[int],
    odd_rows: list[Row],
) -> Iterator[Chunk]:
    """Chunks of both kinds of rows in order of their lines."""
    if odd_rows:
        odd = Chunk.of(odd_lines, odd_rows)
        if more is not None or odd.more is not None:
            more = [*(more or [{}] * len(line)), *(odd.more or [{}] * len(odd))]
        line = np.concatenate((line, odd.line))
        order = np.argsort(line, kind="stable")
        line = line[order]
        times = np.concatenate((times, odd.t_ns))[order]
        prompt = np.concatenate((prompt, odd.prompt_len))[order]
        output = np.concatenate((output, odd.output_len))[order]
        failed = np.concatenate((failed, odd.failed))[order]
        more = None if more is None else [more[place] for place in order.tolist()]
    for at in range(0, len(line), CHUNK_ROWS):
        part = slice(at, at + CHUNK_ROWS)
        texts = None if more is None or not any(more[part]) else more[part]
        yield Chunk(line[part], times[part], prompt[part], output[part], failed[part], texts)


def _in_chunks(lines: list[int], rows: list[Row]) -> Iterator[Chunk]:
    for at in range(0, len(rows), CHUNK_ROWS):
        yield Chunk.of(lines[at : at + CHUNK_ROWS], rows[at : at + CHUNK_ROWS])


def _size(row: Row) -> int:
    """Bytes, roughly, of texts and ids: what can be large in a row."""
    more = row.more
    size = len(more.get("prompt") or "")
    if "messages" in more:
        size += sum(len(content) for _, content in more["messages"])
    return size + 16 * (len(more.get("prompt_ids") or ()) + len(more.get("prefix_ids", ())))
