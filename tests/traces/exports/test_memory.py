"""A recording is not held in memory: only the requests that are alive are."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

from engine.records import Iteration, Kind
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.exports.otel import otel_job
from traces.exports.perfetto import PerfettoTrace
from traces.exports.prometheus import PrometheusText
from traces.exports.run import Job, run_exports
from traces.exports.tables import IterationsCsv, RequestsCsv


class Nowhere(io.TextIOBase):
    def __init__(self) -> None:
        self.written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        return len(text)


def records(count: int) -> Iterator[Iteration]:
    """A request arrives in every iteration and ends in the next one."""
    for n in range(count):
        ends = n > 0
        yield record(
            n, n / 100, n / 100 + 0.009, arrived=(arrived(f"r{n}", n / 100, 50),),
            scheduled=(scheduled(f"r{n}", 50, kind=Kind.NEW), *((scheduled(f"r{n - 1}"),) if ends else ())),
            tokens=(token(f"r{n}"), *((token(f"r{n - 1}"),) if ends else ())),
            finished=(finished(f"r{n - 1}", prompt_len=50, output_len=2),) if ends else (),
        )  # fmt: skip


def peak(count: int) -> tuple[int, int]:
    out = [Nowhere() for _ in range(5)]
    jobs = [Job(make, file) for make, file in zip(
        (PerfettoTrace, RequestsCsv, IterationsCsv, PrometheusText), out, strict=False)]  # fmt: skip
    jobs.append(otel_job(out[4], content=True))
    tracemalloc.start()
    lives = run_exports(info(), records(count), jobs)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(lives.live) == 1
    return most, sum(file.written for file in out)


def test_memory_does_not_grow_with_the_run() -> None:
    peak(50)  # imports and caches
    short, little = peak(300)
    long, much = peak(1500)
    assert much > 4.5 * little
    assert long < short + 60_000, f"{short} bytes for 300 iterations, {long} for 1,500"
