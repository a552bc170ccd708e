"""Large JSON files: blocks of lines are read as rows are one by one, fast, and in flat memory."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.traces.readers.json_examples import DATA, lines
from traces.readers import open_trace
from traces.readers.mooncake import Mooncake
from traces.rows import ReadOptions, Report

COPIES = 400
"""Of 74 rows, 12.7 kB: 5 MB."""


def everything(path: Path, options: ReadOptions) -> tuple[list[tuple[Any, ...]], Report]:
    trace = open_trace(path, options)
    rows: list[tuple[Any, ...]] = []
    for chunk in trace.chunks():
        columns = (chunk.line, chunk.t_ns, chunk.prompt_len, chunk.output_len, chunk.failed)
        more = chunk.more or [{}] * len(chunk)
        rows += zip(*(column.tolist() for column in columns), more, strict=True)
    return rows, trace.report


def mixed_lines(seed: int) -> Iterator[Any]:
    """Clean blocks of lines and lines of every kind of fault among them."""
    draw = random.Random(seed)
    faults: list[Any] = [
        b"", b"  ", b"{", b"[1]", b"nonsense",
        b'{"timestamp": 0, "timestamp": 1, "input_length": 5, "output_length": 1}',
    ]  # fmt: skip
    for number in range(3000):
        tokens = draw.randrange(1, 3000)
        record: dict[str, Any] = {
            "timestamp": number * 10, "input_length": tokens, "output_length": draw.randrange(1, 99),
            "hash_ids": [draw.randrange(1 << 64) for _ in range(-(-tokens // 512))],
        }  # fmt: skip
        kind = draw.randrange(600) if number > 1000 else 600  # the first blocks are clean
        odd = {
            0: {"timestamp": 1.5}, 1: {"timestamp": "7"}, 2: {"timestamp": -3}, 3: {"input_length": 0},
            4: {"output_length": 0}, 5: {"hash_ids": []}, 6: {"hash_ids": [1] * 9}, 7: {"hash_ids": None},
            8: {"extra": "a:b"}, 9: {"output_length": 1 << 40}, 10: {"timestamp": 1 << 62}, 11: {"input_length": 5.0},
            12: {"hash_ids": [1.5]}, 13: {"hash_ids": [1 << 80] * len(record["hash_ids"])},
        }  # fmt: skip
        yield {**record, **odd.get(kind, {})} if kind not in range(14, 20) else faults[kind - 14]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("failed", ["keep", "drop", "min1"])
@pytest.mark.parametrize("short_ids", ["reject", "tail"])
def test_blocks_give_the_same_rows_as_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, failed: str, short_ids: str
) -> None:
    path = lines(tmp_path / "a.jsonl", *mixed_lines(seed))
    monkeypatch.setattr("traces.readers.json_blocks.JSON_BLOCK", 1 << 14)
    options = ReadOptions(failed=failed, short_ids=short_ids)
    at_once = everything(path, options)
    monkeypatch.setattr(Mooncake, "lines", None)
    one_by_one = everything(path, options)
    assert at_once[0] == one_by_one[0]
    assert at_once[1] == one_by_one[1]
    assert at_once[1].dropped and at_once[1].clamped and len(at_once[0]) > 2900


def test_mooncake_lines_are_read_fast(tmp_path: Path) -> None:
    """110 MB/s on one idle core of the machine it was measured on; a busy one must not make this fail."""
    path = tmp_path / "a.jsonl"
    path.write_bytes((DATA / "mooncake_arxiv_slice_74.jsonl").read_bytes() * COPIES)
    best = 0.0
    for _ in range(4):
        begin = time.process_time()
        trace = open_trace(path)
        kept = sum(len(chunk) for chunk in trace.chunks())
        best = max(best, path.stat().st_size / 1e6 / (time.process_time() - begin))
        assert kept == 74 * COPIES
    assert best > 20


def write(path: Path, kind: str, times: int) -> int:
    """A file of about 10 MB times that; returns its rows."""
    if kind == "mooncake":
        path.write_bytes((DATA / "mooncake_arxiv_slice_74.jsonl").read_bytes() * (2 * COPIES * times))
        return 74 * 2 * COPIES * times
    turns = [{"from": "human", "value": "why? " * 520}, {"from": "gpt", "value": "because " * 9}]
    rows = [json.dumps({"id": str(number), "conversations": turns}) for number in range(3600 * times)]
    path.write_text("[" + ",\n".join(rows) + "]")
    return len(rows)


@pytest.mark.parametrize("kind", ["sharegpt", "mooncake"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    peaks = []
    for times in (1, 2):
        path = tmp_path / f"{times}.json"
        rows = write(path, kind, times)
        assert path.stat().st_size > times * 9.5e6
        tracemalloc.start()
        trace = open_trace(path)
        assert sum(len(chunk) for chunk in trace.chunks()) == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert trace.format == kind
    assert peaks[1] < 1.2 * peaks[0] and peaks[1] < 16e6, peaks
