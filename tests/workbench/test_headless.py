"""The headless driver on an engine that follows a script."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engine.clock import ManualClock
from engine.host import EngineInfo
from engine.plan import Plan
from engine.records import Cause, Copied, Iteration, Kind, Preempted, Rejected, Slots, Timings
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.definitions import DEFINITIONS
from traces.metrics import Metrics
from traces.slo import Slo
from workbench.headless import OutFile, run_headless
from workbench.summary import summary_tables


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

    def next_event(self) -> float | None:
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
    assert summary["ttft_s"]["max"] == pytest.approx(0.8, abs=0.02)
    assert summary["wall_s"] == pytest.approx(5.5, abs=0.15)


def test_a_stall_of_two_seconds_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """An open loop of a request every 20 ms; the iteration after 0.6 s stands still for 2 s, arrivals do not."""
    clock = ManualClock(5.0)
    engine, executor = fake_engine(clock, block_size=4, num_blocks=2000, max_num_seqs=64)

    def hook(plan: Plan) -> None:
        clock.advance(2.01 if executor.calls == 60 else 0.01)

    executor.hook = hook
    about = EngineInfo("fake", "cpu", "none", 1, engine.config, 256, 0, 0)
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    asked = [Request(f"r{n}", [n % 200] * 6, params, arrival=n * 0.02) for n in range(200)]
    assert run_headless(engine, about, asked, as_json=True, sleep=clock.advance) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["ttft_s"]["max"] == pytest.approx(2.0, abs=0.1)
    assert summary["ttft_s"]["p99"] == pytest.approx(2.0, abs=0.15)
    assert summary["lag_s"]["max"] == pytest.approx(2.0, abs=0.03)


def test_goodput_and_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    """r0 takes 0.5 s, r1 0.8 s: one of two is within 600 ms."""
    for as_json in (True, False):
        engine = ScriptedEngine()
        sleep: Callable[[float], None] = engine.clock.advance
        options: dict[str, Any] = {"as_json": as_json, "definitions": True, "slo": Slo(0.3, None, scale=2.0)}
        assert run_headless(engine, info(), requests(0.0, 0.2), sleep=sleep, **options) == 0  # type: ignore[arg-type]
        said = capsys.readouterr().out
        if as_json:
            summary = json.loads(said)
            assert (summary["good"], summary["slo_attainment"]) == (1, 0.5)
            assert summary["definitions"]["ttft_s"]["text"] == DEFINITIONS["ttft_s"].text
        else:
            said = " ".join(said.split())
            assert "slo_attainment 50.0%: 1 of 2 planned requests within TTFT <= 600 ms (custom x 2)" in said
            assert "goodput_rps 1.00" in said  # 1 in the second from 0.0 to 1.0
            assert "Null below 2 tokens, and never counted as 0" in said


def test_a_dash_for_p99_and_a_sentence_for_each_latency() -> None:
    done = summary_of(
        record(0, 0, 1, arrived=tuple(arrived(f"r{n}", 0.0) for n in range(99)),
               scheduled=tuple(scheduled(f"r{n}", 4, kind=Kind.NEW) for n in range(99)),
               tokens=tuple(token(f"r{n}") for n in range(99)),
               finished=tuple(finished(f"r{n}") for n in range(99))),
    )  # fmt: skip
    lines = printed(done).splitlines()
    row = next(line for line in lines if line.startswith("TTFT ") and line.endswith(" 99"))
    assert row.split() == ["TTFT", "1.000", "1.000", "1.000", "1.000", "-", "1.000", "99"]
    assert any(line.split() == ["TTFT", *DEFINITIONS["ttft_s"].short.split()] for line in lines)
    assert not any("+inf" in line for line in lines)


def test_failures_have_reasons_and_a_table() -> None:
    done = summary_of(
        record(0, 0, 1, arrived=(arrived("a", 0.0), arrived("b", 0.0, priority=2)),
               rejected=tuple(Rejected(id, "x", f"the prompt has {id} tokens") for id in ("900", "901")),
               scheduled=(scheduled("a", 4, kind=Kind.NEW),), tokens=(token("a"),), finished=(finished("a"),)),
    )  # fmt: skip
    text = " ".join(printed(done).split())
    assert "4 planned: 1 completed, 2 rejected, 1 unfinished" in text
    assert "2 rejected: the prompt has N tokens" in text
    assert "TTFT +inf +inf +inf - 4 3" in text
    assert "2 0/1" in text and "0 1/1" in text  # priority classes


def test_nothing_sampled_is_not_a_rate_of_0() -> None:
    text = printed(summary_of(record(0, 0, 1, arrived=(arrived("a", 0.0),))))
    assert "n/a output tok/s" in text and "n/a total tok/s" in " ".join(text.split())


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
    monkeypatch.setattr(engine, "next_event", lambda: None)
    assert run(engine, requests(0.0)) == 1
    assert "did nothing" in capsys.readouterr().err


def test_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine()
    assert run_headless(engine, info(), requests(0.0), sleep=engine.clock.advance) == 0  # type: ignore[arg-type]
    text = capsys.readouterr().out
    assert "1 planned: 1 completed" in text and "TTFT" in text
    assert "TPOT" in text and " - " in text  # one token: no TPOT


def summary_of(*records: Iteration) -> dict[str, Any]:
    metrics = Metrics(info())
    for it in records:
        metrics.add(it)
    return metrics.summary()


def printed(summary: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=80)
    for table in summary_tables(summary):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def crowd(clients: int) -> dict[str, Any]:
    """Big figures and long names: everybody is preempted, swapped out, and waits."""
    names = [f"a client with a long name {number}" for number in range(clients)]
    return summary_of(
        record(0, 0, 90000, arrived=tuple(arrived(name, 0.0, 200_000, client=name, deadline=1.0) for name in names),
               scheduled=tuple(scheduled(name, 200_000, kind=Kind.NEW) for name in names),
               tokens=tuple(token(name) for name in names), slots=Slots(123_456, 1_234, 98_765)),
        record(1, 90000, 90001, preempted=tuple(Preempted(name, names[0], 9, 0, 8, 2) for name in names[1:]),
               tokens=tuple(token(name) for name in names[1:])),
        record(2, 90002, 90003, scheduled=(scheduled(names[1], 10, recomputed=8, kind=Kind.RESUMED),),
               timings=Timings(forward=1234.5, swap=2.5), copied=Copied(1000, 900, 1 << 33)),
        record(3, 90003, 90004, preempted=(Preempted(names[1], names[0], 9, 0, 0, 2, Cause.DISPLACED, 7),)),
        record(4, 90004, 90005, finished=tuple(finished(name, client=name) for name in names)),
    )  # fmt: skip


def test_tables_fit_80_columns() -> None:
    text = printed(crowd(15))
    assert max(map(len, text.splitlines())) <= 80
    assert (
        "14 by recompute: 8 tokens again" in text
        and "1 by swap: 1,000 blocks out, 900 copied back, 8,192.0 MiB" in text
    )
    assert "1,234 of 123,456 used (1.0%); 98,765 prompt tokens of padding" in " ".join(text.split())
    assert "and 3 more clients with less service" in text
    text = printed(crowd(12))
    (line,) = [line for line in text.splitlines() if line.startswith("a client") and line.endswith("0 / 12")]
    assert line.split()[-10:] == ["1/1", "200,002", "8.3%", "0us", "90000s", "-", "-", "0", "/", "12"]
    assert "fairness" in text and "Jain index" in text


def test_a_single_client_has_nobody_to_be_compared_with() -> None:
    summary = summary_of(
        record(0, 0, 1, arrived=(arrived("a", 0.0, client="[red]\x1b[2J"),),
               scheduled=(scheduled("a", 4, kind=Kind.NEW),), tokens=(token("a"),),
               finished=(finished("a"),)),
    )  # fmt: skip
    text = printed(summary)
    assert "fairness" not in text and "[red]␛[2J" in text and "\x1b" not in text
    assert "longest wait" in text and "preemptions" in text


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
