"""A large file is read twice for a window of time, and gives what reading all of it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import WorkbenchError
from traces.rows import ReadOptions
from traces.scaling import Scaling
from traces.workload import Workload
from workbench import reading
from workbench.replaying import Replay, prepare

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def azure(tmp_path: Path) -> Path:
    """200 rows, one in three seconds out of order, from a quarter past."""
    rows = [f"2023-11-16 18:{15 + n // 60:02}:{n % 60:02}.5000000,{n + 1},{n % 7}" for n in range(200)]
    rows[10], rows[90] = rows[90], rows[10]
    file = tmp_path / "azure.csv"
    file.write_text(AZURE + "\r\n".join([*rows[:50], "broken,1,2", *rows[50:]]))
    return file


def native(tmp_path: Path, **fields: Any) -> Path:
    file = tmp_path / "native.jsonl"
    rows = [
        {"id": f"r{n}", "arrival": 5.0 + n, "prompt_len": n + 1, "client": "ab"[n % 2], **fields} for n in range(100)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def prepared(file: Path, scaling: Scaling, monkeypatch: pytest.MonkeyPatch, large: int) -> tuple[Workload, list[str]]:
    monkeypatch.setattr(reading, "LARGE", large)
    return prepare(Replay(file, ReadOptions(), scaling))


@pytest.mark.parametrize("make", [azure, native])
@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(start=20.0, end=60.0),
        Scaling(start=70.5),
        Scaling(end=3.0),
        Scaling(start=20.0, end=90.0, limit=5, speed=2.0),
    ],
)
def test_both_ways_give_the_same(make: Any, scaling: Scaling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path)
    whole, told = prepared(file, scaling, monkeypatch, 1 << 40)
    part, told_too = prepared(file, scaling, monkeypatch, 0)
    assert [(spec.id, spec.prompt_len, spec.client, spec.where) for spec in part.specs] == [
        (spec.id, spec.prompt_len, spec.client, spec.where) for spec in whole.specs
    ]
    assert [spec.arrival for spec in part.specs] == pytest.approx([spec.arrival for spec in whole.specs], abs=1e-9)
    assert [line for line in told if "left out" in line] == [line for line in told_too if "left out" in line]
    assert len(part.specs) > 2 and part.specs[0].arrival == 0.0


def test_an_empty_window_is_named_either_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for large in (0, 1 << 40):
        with pytest.raises(WorkbenchError, match="no request is left: --from 500: 100 of 100 rows left out"):
            prepared(native(tmp_path), Scaling(start=500.0), monkeypatch, large)


def test_sessions_are_read_whole_however_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE", 0)
    trace = reading.read_trace(native(tmp_path, session="s"), ReadOptions(), window=(10.0, 20.0))
    assert not trace.windowed and len(trace.workload.specs) == 100
