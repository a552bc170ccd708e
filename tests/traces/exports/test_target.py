"""A file is whole or not there, and what was there before stays unless it is to be replaced."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import WorkbenchError
from engine.records import Iteration
from engine.view import EngineView
from tests.traces.exports.prometheus_text import parse
from tests.traces.exports.runs import random_run
from tests.traces.exports.trace_format import check_trace
from traces.exports.otel import otel_job, write_otel
from traces.exports.perfetto import PerfettoTrace, write_perfetto
from traces.exports.prometheus import PrometheusText, write_prometheus
from traces.exports.recorded import info_at
from traces.exports.report import report_job, write_report
from traces.exports.run import Job, run_exports
from traces.exports.tables import (
    IterationsCsv,
    IterationsParquet,
    RequestsCsv,
    RequestsParquet,
    write_iterations_csv,
    write_iterations_parquet,
    write_requests_csv,
    write_requests_parquet,
)

RUN = random_run(1, count=8)
WRITERS: list[Callable[..., None]] = [
    write_perfetto, write_requests_csv, write_iterations_csv, write_requests_parquet, write_iterations_parquet,
    write_otel, write_prometheus, write_report,
]  # fmt: skip


def failing() -> Iterator[Iteration]:
    yield from RUN.records[:5]
    raise KeyError("the recording is broken here")


@pytest.mark.parametrize("write", WRITERS)
def test_nothing_is_left_of_a_failed_export(write: Callable[..., None], tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("precious")
    with pytest.raises(KeyError):
        write(RUN.info, failing(), tmp_path / "new")
    with pytest.raises(KeyError):
        write(RUN.info, failing(), old, force=True)
    assert os.listdir(tmp_path) == ["old"] and old.read_text() == "precious"


@pytest.mark.parametrize("write", WRITERS)
def test_an_existing_file_is_refused_before_anything_is_read(write: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("precious")
    with pytest.raises(WorkbenchError, match="there is there already; give another name, or --force"):
        write(RUN.info, failing(), path)
    assert path.read_text() == "precious"
    write(RUN.info, RUN.records, path, force=True)
    assert path.stat().st_size > 500 and os.listdir(tmp_path) == ["there"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask(), "readable like any other file"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_names_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="is a folder"):
        write_perfetto(RUN.info, RUN.records, tmp_path)
    with pytest.raises(WorkbenchError, match="there is no folder"):
        write_perfetto(RUN.info, RUN.records, tmp_path / "no" / "trace.json")


def test_a_full_disk_is_told_of_the_right_file(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    good = tmp_path / "good.csv"
    with pytest.raises(WorkbenchError, match=r"/dev/full could not be written: No space left"):
        run_exports(RUN.info, RUN.records, [Job(RequestsCsv, good), Job(PerfettoTrace, Path("/dev/full"))], force=True)
    assert not os.listdir(tmp_path)


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_prometheus(RUN.info, RUN.records, pipe, force=True)
    reader.join(10)
    assert got and got[0].startswith(b"# HELP workbench_info")


def test_a_stream_of_the_callers_stays_open() -> None:
    out = io.StringIO()
    write_prometheus(RUN.info, RUN.records, out)
    assert not out.closed and out.getvalue()


def test_all_in_one_pass(tmp_path: Path) -> None:
    """Records are taken once, and each file is what it is alone."""
    jobs = {
        "trace": Job(PerfettoTrace, tmp_path / "trace"),
        "requests.csv": Job(RequestsCsv, tmp_path / "requests.csv"),
        "iterations.csv": Job(IterationsCsv, tmp_path / "iterations.csv"),
        "requests.pq": Job(RequestsParquet, tmp_path / "requests.pq", binary=True),
        "iterations.pq": Job(IterationsParquet, tmp_path / "iterations.pq", binary=True),
        "otel": otel_job(tmp_path / "otel", wall_ns=5, content=True),
        "prometheus": Job(PrometheusText, tmp_path / "prometheus"),
        "report": report_job(tmp_path / "report"),
    }
    run = random_run(1, steps=60)
    seen: list[int] = []
    run_exports(run.info, iter(run.records), list(jobs.values()), watch=lambda it: seen.append(it.seq))
    assert seen == [it.seq for it in run.records]
    alone = tmp_path / "alone"
    for name, job in jobs.items():
        run_exports(run.info, run.records, [Job(job.make, alone, binary=job.binary, text=job.text)], force=True)
        assert alone.read_bytes() == (tmp_path / name).read_bytes(), name


def test_two_exports_cannot_have_one_file(tmp_path: Path) -> None:
    same: Any = tmp_path / "same"
    with pytest.raises(WorkbenchError, match="asked for twice"):
        run_exports(RUN.info, failing(), [Job(RequestsCsv, same), Job(IterationsCsv, same)])
    assert not os.listdir(tmp_path)


def test_records_that_begin_in_the_middle_of_a_run() -> None:
    """Every export takes them; the trace stays valid, and the page says what is left out."""
    run = random_run(3, count=60)
    config = run.info.config
    view = EngineView(config.num_blocks, config.block_size, config.values())
    for it in run.records[:50]:
        view.apply(it)
    info = info_at(run.info, view)
    out = {name: io.StringIO() for name in ("trace", "requests", "iterations", "otel", "prometheus", "report")}
    run_exports(
        info,
        run.records[50:],
        [
            Job(PerfettoTrace, out["trace"]),
            Job(RequestsCsv, out["requests"]),
            Job(IterationsCsv, out["iterations"]),
            otel_job(out["otel"]),
            Job(PrometheusText, out["prometheus"]),
            report_job(out["report"]),
        ],
    )
    check_trace(out["trace"].getvalue())
    parse(out["prometheus"].getvalue())
    there = sum(request.finished_at is None for request in view.requests.values())
    assert there and f"{there} requests that were there already are left out" in out["report"].getvalue()
    assert len(out["iterations"].getvalue().splitlines()) == 1 + len(run.records) - 50
