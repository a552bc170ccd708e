"""`run_exports`: several files of one run in one pass over its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Protocol, runtime_checkable

from engine.errors import WorkbenchError
from engine.host import EngineInfo
from engine.records import Iteration
from traces.exports.lives import Lives
from traces.exports.target import Out, check_target, open_target, writing


class Export(Protocol):
    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        """Take one record, which `lives` has folded in already.

        known: the same without requests of which nobody saw the beginning; it is `it` itself in a whole recording.
        """
        ...

    def finish(self, lives: Lives) -> None:
        """There are no more records: write what is left."""
        ...


@runtime_checkable
class Holding(Protocol):
    """An export that holds more than its file."""

    def let_go(self) -> None:
        """Nothing comes any more, and the file is of no use: before it is closed."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One file to make."""

    make: Callable[[EngineInfo, IO[Any]], Export]
    out: Out
    binary: bool = False
    text: bool = False
    """Needs the text of the outputs."""


def run_exports(
    info: EngineInfo,
    iterations: Iterable[Iteration],
    jobs: Sequence[Job],
    *,
    force: bool = False,
    watch: Callable[[Iteration], None] | None = None,
) -> Lives:
    """Make all files; they get their names at the end; on a failure before that, none does.

    force: replace files that are there. watch: called with each record after it was written, to show progress.
    WorkbenchError when a file is there already or cannot be written, before any record is read.
    """
    for number, job in enumerate(jobs):
        check_target(job.out, force=force)
        if any(other.out == job.out for other in jobs[:number]):
            raise WorkbenchError(f"{job.out} is asked for twice; give each export a file of its own")
    lives = Lives(info, text=any(job.text for job in jobs))
    exports: list[Export] = []
    with ExitStack() as files:
        for job in jobs:
            file = files.enter_context(open_target(job.out, binary=job.binary, force=force))
            exports.append(job.make(info, file))
        try:
            for it in iterations:
                known = lives.add(it)
                for job, export in zip(jobs, exports, strict=True):
                    with writing(job.out):
                        export.add(it, known, lives)
                if watch is not None:
                    watch(it)
            for job, export in zip(jobs, exports, strict=True):
                with writing(job.out):
                    export.finish(lives)
        except BaseException:
            for export in exports:
                if isinstance(export, Holding):
                    export.let_go()
            raise
    return lives
