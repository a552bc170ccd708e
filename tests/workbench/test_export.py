"""`workbench export`: one recording, all files, and mistakes that change nothing."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine.errors import WorkbenchError
from engine.view import EngineView
from tests.traces.exports.prometheus_text import parse
from tests.traces.exports.runs import Run, random_run
from tests.traces.exports.trace_format import check_trace
from traces.exports.otel import write_otel
from traces.exports.recorded import export_recording
from traces.exports.run import Job
from traces.exports.tables import IterationsCsv, write_requests_csv
from traces.recording import Header, Recorder, Recording
from workbench.commands.export import export

WALL = 1_764_000_000 * 10**9


def record(run: Run, path: Path, *, first: int = 0, tokens: bool = True) -> Path:
    config = run.info.config
    view = EngineView(config.num_blocks, config.block_size, config.values())
    for it in run.records[:first]:
        view.apply(it)
    header = Header(run.info, wall_ns=WALL)
    with Recorder(path, header, tokens=tokens, view=view if first else None) as recorder:
        for it in run.records[first:]:
            recorder.add(it)
    return path


@pytest.fixture(scope="module")
def run() -> Run:
    return random_run(1)


@pytest.fixture
def recording(run: Run, tmp_path: Path) -> Path:
    return record(run, tmp_path / "run.wbrec.jsonl")


def test_everything_at_once(run: Run, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = {name: tmp_path / name for name in ("t.json", "r.html", "r.csv", "i.csv", "r.pq", "i.pq", "o.json", "p", "s")}
    export(
        recording, perfetto=out["t.json"], html=out["r.html"], requests_csv=out["r.csv"], iterations_csv=out["i.csv"],
        requests_parquet=out["r.pq"], iterations_parquet=out["i.pq"], otel=out["o.json"], prometheus=out["p"],
        svg=out["s"], step=40, size="80x24",
    )  # fmt: skip
    check_trace(out["t.json"].read_text("utf-8"))
    families = parse(out["p"].read_text("utf-8"))
    sampled = sum(len(it.tokens) for it in run.records)
    assert families["workbench_generation_tokens_total"].value() == sampled
    direct = io.StringIO()
    write_requests_csv(run.info, run.records, direct)
    assert out["r.csv"].read_bytes().decode() == direct.getvalue(), "a recording gives what the run itself gives"
    assert len(list(csv.DictReader(out["i.csv"].open(newline="")))) == len(run.records)
    assert pq.read_table(out["i.pq"]).num_rows == len(run.records) and pq.read_table(out["r.pq"]).num_rows == 42
    spans = io.StringIO()
    write_otel(run.info, run.records, spans, wall_ns=WALL)
    assert json.loads(out["o.json"].read_text()) == json.loads(spans.getvalue()), "the recording knows the wall clock"
    assert "run.wbrec.jsonl" in out["r.html"].read_text("utf-8")
    assert "good requests" in out["r.html"].read_text("utf-8"), "the SLO is chat unless another is asked for"
    assert out["s"].read_text("utf-8").startswith("<svg")
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("wrote ") == len(out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to export"),
        ({"step": 3, "html": Path("x")}, "--step needs --svg"),
        ({"size": "80x24", "html": Path("x")}, "--size needs --svg"),
        ({"content": True, "html": Path("x")}, "--content needs --otel"),
        ({"slo": "chat", "otel": Path("x")}, "--slo needs --html"),
        ({"svg": Path("x.svg"), "size": "wide"}, "--size"),
        ({"svg": Path("x.svg"), "step": 100_000}, "--step: there is no iteration 100000"),
        ({"html": Path("x"), "otel": Path("x")}, "x is asked for twice"),
        ({"html": Path("no/x")}, "there is no folder"),
    ],
)
def test_mistakes_change_nothing(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkbenchError, match=message):
        export(recording, **options)
    assert list(tmp_path.iterdir()) == [recording]


def test_files_that_are_there_stay(recording: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("precious")
    with pytest.raises(WorkbenchError, match="is there already"):
        export(recording, requests_csv=old, html=tmp_path / "r.html")
    assert old.read_text() == "precious" and not (tmp_path / "r.html").exists()
    export(recording, requests_csv=old, force=True)
    assert old.read_text().startswith("id,")
    before = recording.read_bytes()
    with pytest.raises(WorkbenchError, match="is the recording itself"):
        export(recording, requests_csv=recording, force=True)
    assert recording.read_bytes() == before


def test_no_recording(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="no such file"):
        export(tmp_path / "none", html=tmp_path / "r.html")
    (tmp_path / "other").write_text("id,client\n1,2\n")
    with pytest.raises(WorkbenchError, match="is no recording"):
        export(tmp_path / "other", html=tmp_path / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_recording_without_text(run: Run, tmp_path: Path) -> None:
    path = record(run, tmp_path / "bare.wbrec.jsonl", tokens=False)
    with pytest.raises(WorkbenchError, match="recorded without text"):
        export(path, otel=tmp_path / "o.json", content=True)
    export(path, requests_csv=tmp_path / "r.csv")
    direct = io.StringIO()
    write_requests_csv(run.info, run.records, direct)
    assert (tmp_path / "r.csv").read_bytes().decode() == direct.getvalue(), "lengths and times are all it needs"


def test_a_recording_of_the_second_half(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(run, tmp_path / "half.wbrec.jsonl", first=50)
    export(path, perfetto=tmp_path / "t.json", html=tmp_path / "r.html")
    check_trace((tmp_path / "t.json").read_text("utf-8"))
    assert "requests were there before the recording began; they are left out" in capsys.readouterr().err


def test_a_recording_that_was_cut(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed while it wrote: what is whole is exported, and what is missing is told."""
    data = recording.read_bytes()
    cut = tmp_path / "cut.wbrec.jsonl"
    cut.write_bytes(data[: len(data) // 2])
    export(cut, iterations_csv=tmp_path / "i.csv")
    rows = list(csv.DictReader((tmp_path / "i.csv").open(newline="")))
    assert [int(row["seq"]) for row in rows] == list(range(len(rows))) and len(rows) > 20
    assert "bytes of an unfinished last line were ignored" in capsys.readouterr().err


def test_as_a_process(recording: Path, tmp_path: Path) -> None:
    def workbench(*options: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "workbench", "export", *map(str, options)]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)

    done = workbench(recording, "--iterations-csv", tmp_path / "i.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"wrote {tmp_path / 'i.csv'}\n")
    done = workbench(recording, "--iterations-csv", tmp_path / "i.csv")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")


def test_a_recording_that_is_being_written(run: Run, tmp_path: Path) -> None:
    """What an application does that exports the run it shows."""
    path = tmp_path / "now.wbrec.jsonl"
    with Recorder(path, Header(run.info)) as recorder:
        for it in run.records[:70]:
            recorder.add(it)
        recording = Recording.open(path)
        out = io.StringIO()
        export_recording(recording, [Job(IterationsCsv, out)])
        recording.close()
    assert len(out.getvalue().splitlines()) == 71
