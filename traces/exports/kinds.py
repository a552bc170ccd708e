"""Every kind of file that a recording can be exported to: one table for the command line and the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engine.errors import WorkbenchError
from traces.exports import perfetto, prometheus, tables
from traces.exports.otel import otel_job
from traces.exports.report import report_job
from traces.exports.run import Job
from traces.recording import Recording
from traces.slo import Slo


class Asked(NamedTuple):
    recording: Recording
    out: Path
    slo: Slo | None
    content: bool
    """Texts of prompts and answers, where the kind can hold them."""


class ExportKind(NamedTuple):
    name: str
    suffix: str
    """Of a file named after its recording."""
    words: str
    job: Callable[[Asked], Job]


def _report(asked: Asked) -> Job:
    recording = asked.recording
    return report_job(asked.out, title=Path(recording.name).name, slo=asked.slo, clock=recording.header.clock)


def _spans(asked: Asked) -> Job:
    if asked.content and not asked.recording.header.tokens:
        raise WorkbenchError(f"--content: {asked.recording.name} was recorded without text; leave --content out")
    return otel_job(asked.out, wall_ns=asked.recording.header.wall_ns, content=asked.content)


KINDS = {
    kind.name: kind
    for kind in (
        ExportKind("html", ".html", "HTML report", _report),
        ExportKind(
            "perfetto", ".perfetto.json", "Perfetto trace", lambda asked: Job(perfetto.PerfettoTrace, asked.out)
        ),
        ExportKind(
            "requests-csv", ".requests.csv", "requests as CSV", lambda asked: Job(tables.RequestsCsv, asked.out)
        ),
        ExportKind(
            "iterations-csv", ".iterations.csv", "iterations as CSV", lambda asked: Job(tables.IterationsCsv, asked.out)
        ),
        ExportKind(
            "requests-parquet",
            ".requests.parquet",
            "requests as Parquet",
            lambda asked: Job(tables.RequestsParquet, asked.out, binary=True),
        ),
        ExportKind(
            "iterations-parquet",
            ".iterations.parquet",
            "iterations as Parquet",
            lambda asked: Job(tables.IterationsParquet, asked.out, binary=True),
        ),
        ExportKind("otel", ".otlp.json", "OpenTelemetry spans", _spans),
        ExportKind("prometheus", ".prom", "Prometheus text", lambda asked: Job(prometheus.PrometheusText, asked.out)),
    )
}
