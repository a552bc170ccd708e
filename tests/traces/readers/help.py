"""What the tests of readers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import WorkbenchError
from traces.readers import open_trace, read_workload
from traces.rows import NO_TIME, ReadOptions, Report

DATA = Path(__file__).parents[1] / "data"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def write(path: Path, *lines: str | bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + end for line in lines))
    return path


def rows_of(path: Path, **options: Any) -> tuple[list[tuple[Any, ...]], Report]:
    """((line, t_ns, prompt, output, failed, more) of each kept row, the account)."""
    trace = open_trace(path, ReadOptions(**options))
    rows = []
    for chunk in trace.chunks():
        more = chunk.more or [{}] * len(chunk)
        times = [None if t == NO_TIME else t for t in chunk.t_ns.tolist()]
        rows += zip(
            chunk.line.tolist(), times, chunk.prompt_len.tolist(), chunk.output_len.tolist(), chunk.failed.tolist(),
            more, strict=True,
        )  # fmt: skip
    report = trace.report
    assert report.kept == len(rows) and report.read == report.kept + sum(report.dropped.values())
    return rows, report


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(WorkbenchError) as caught:
        read_workload(path, ReadOptions(**options))
    return str(caught.value)
