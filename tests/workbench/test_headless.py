"""The headless driver on an engine that follows a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.records import Iteration, Kind
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.traces.records import arrived, finished, info, record, scheduled, token
from workbench.headless import OutFile, run_headless


class ScriptedEngine:
    """Gives every request one token in the iteration after its arrival."""

    def __init__(self, break_at: int | None = None) -> None:
        self.clock = ManualClock(10.0)
        self.break_at = break_at
        self.planned: list[Request] = []
        self.running: list[Request] = []
        self.seq = 0

    def submit(self, request: Request) -> None:
        self.planned.append(request)

    def has_work(self) -> bool:
        return bool(self.planned)

    def next_arrival(self) -> float | None:
        return min(request.arrival or 0.0 for request in self.planned)

    def step(self) -> Iteration | None:
        now = self.clock.now()
        due = [request for request in self.planned if (request.arrival or 0.0) <= now]
        if not due:
            return None
        if self.seq == self.break_at:
            self.running = due
            raise RuntimeError("boom")
        self.planned = [request for request in self.planned if request not in due]
        self.clock.advance(0.5)
        it = record(
            self.seq, now, self.clock.now(),
            arrived=tuple(arrived(r.id, r.arrival or 0.0) for r in due),
            scheduled=tuple(scheduled(r.id, 4, kind=Kind.NEW) for r in due),
            tokens=tuple(token(r.id) for r in due),
            finished=tuple(finished(r.id) for r in due),
            planned=len(self.planned),
        )  # fmt: skip
        self.seq += 1
        return it

    def fault_record(self, trace: str) -> Iteration:
        now = self.clock.now()
        return record(
            self.seq, now, now, fault=trace, arrived=tuple(arrived(r.id, r.arrival or 0.0) for r in self.running),
            finished=tuple(finished(r.id, FinishReason.ERROR, detail="the engine failed") for r in self.running),
        )  # fmt: skip


def requests(*arrivals: float) -> list[Request]:
    return [Request(f"r{i}", [1, 2, 3, 4], SamplingParams(), arrival=at) for i, at in enumerate(arrivals)]


def run(engine: Any, asked: list[Request], **options: Any) -> int:
    sleep: Callable[[float], None] = engine.clock.advance
    return run_headless(engine, info(), asked, as_json=True, sleep=sleep, **options)


def test_arrivals_are_kept_and_counted_from(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine()
    assert run(engine, requests(0.0, 0.2, 5.0)) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["requests"]["completed"] == 3 and not summary["interrupted"]
    # r1 is due at 0.2 but the engine is busy until 0.5: its 0.8 s count from when it was due
    assert summary["ttft_s"]["p99"] == pytest.approx(0.8, abs=0.02)
    assert summary["wall_s"] == pytest.approx(5.5, abs=0.15)


def test_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ScriptedEngine(), []) == 0
    assert json.loads(capsys.readouterr().out)["requests"]["planned"] == 0


def test_fault_ends_with_one_line_and_keeps_the_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.txt"
    monkeypatch.setenv("WORKBENCH_LOG", str(log))
    out = OutFile(tmp_path / "out.jsonl")
    assert run(ScriptedEngine(break_at=1), requests(0.0, 3.0, 9.0), out=out) == 1
    out.close()
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line == f"error: the engine stopped with a fault (RuntimeError: boom); the traceback is in {log}"
    assert "Traceback" in log.read_text() and "in step" in log.read_text()
    counts = json.loads(said.out)["requests"]
    assert (counts["completed"], counts["failed"], counts["unfinished"]) == (1, 1, 1)
    rows = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["finish_reason"], row["error"]) for row in rows] == [
        ("r0", "length", None),
        ("r1", "error", "the engine failed"),
    ]


def test_stuck_engine_is_a_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_LOG", str(tmp_path / "log.txt"))
    engine = ScriptedEngine()
    monkeypatch.setattr(engine, "step", lambda: None)
    monkeypatch.setattr(engine, "next_arrival", lambda: None)
    assert run(engine, requests(0.0)) == 1
    assert "did nothing" in capsys.readouterr().err


def test_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine()
    assert run_headless(engine, info(), requests(0.0), sleep=engine.clock.advance) == 0  # type: ignore[arg-type]
    text = capsys.readouterr().out
    assert "1 planned: 1 completed" in text and "TTFT" in text
    assert "TPOT" in text and " - " in text  # one token: no TPOT


def test_out_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text("old\n")
    out = OutFile(path)
    assert path.read_text() == "old\n"
    out.close()
    assert path.read_text() == "old\n" and list(tmp_path.iterdir()) == [path]
    out = OutFile(path)
    out.commit()
    out.close()
    assert path.read_text() == ""
    null = OutFile(Path("/dev/null"))
    null.commit()
    null.close()
