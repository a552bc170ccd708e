"""`workbench export`: files for other tools from a recording, all of them in one pass.

Invariant: nothing is written when any of the files is refused or the recording cannot be opened; a file gets its name
when it is whole. What a person should know goes to stderr, and stdout stays empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import WorkbenchError
from workbench.commands.rec import open_recording
from workbench.commands.slo_options import SloName, SloScale, SloTpot, SloTtft, slo_from, slo_given
from workbench.say import StatusLine, say

if TYPE_CHECKING:
    from engine.records import Iteration
    from traces.exports.run import Job
    from traces.recording import Recording


def _file(help: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=help, metavar="FILE", show_default=False)
    return option


def export(
    recording: Annotated[Path, typer.Argument(help="A recording (*.wbrec.jsonl), plain or packed.")],
    perfetto: Annotated[
        Path | None, _file("Chrome trace events, for ui.perfetto.dev; a name ending in .gz is compressed.")
    ] = None,
    html: Annotated[Path | None, _file("A report to read in a browser: one file that needs no network.")] = None,
    requests_csv: Annotated[Path | None, _file("A row for each request.")] = None,
    iterations_csv: Annotated[Path | None, _file("A row for each iteration.")] = None,
    requests_parquet: Annotated[Path | None, _file("The same as Parquet, with types and units.")] = None,
    iterations_parquet: Annotated[Path | None, _file("The same as Parquet, with types and units.")] = None,
    otel: Annotated[Path | None, _file("OpenTelemetry GenAI spans as OTLP JSON.")] = None,
    prometheus: Annotated[Path | None, _file("The run's totals and histograms as Prometheus text.")] = None,
    svg: Annotated[Path | None, _file("A picture of the screen.")] = None,
    step: Annotated[
        int | None,
        typer.Option(help="With --svg: after this iteration (default: the last).", metavar="N", show_default=False),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="With --svg: columns and rows (default 120x40).", metavar="COLUMNSxROWS", show_default=False),
    ] = None,
    content: Annotated[bool, typer.Option("--content", help="With --otel: the text of prompts and answers.")] = False,
    slo: SloName = None,
    slo_ttft: SloTtft = None,
    slo_tpot: SloTpot = None,
    slo_scale: SloScale = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Make files for other tools from a recording."""
    given = slo_given(slo, slo_ttft, slo_tpot, slo_scale)
    for option, asked, needs, target in (
        ("--step", step is not None, "--svg", svg),
        ("--size", size is not None, "--svg", svg),
        ("--content", content, "--otel", otel),
        (given, given is not None, "--html", html),
    ):
        if asked and target is None:
            raise WorkbenchError(f"{option} needs {needs}")
    limits = slo_from(slo, slo_ttft, slo_tpot, slo_scale)
    targets = {
        "perfetto": perfetto,
        "requests-csv": requests_csv,
        "iterations-csv": iterations_csv,
        "requests-parquet": requests_parquet,
        "iterations-parquet": iterations_parquet,
        "prometheus": prometheus,
        "html": html,
        "otel": otel,
    }
    wanted = [out for out in (*targets.values(), svg) if out is not None]
    if not wanted:
        raise WorkbenchError("nothing to export: give one or more of --html, --perfetto, --requests-csv, --svg, ...")
    _check(recording, wanted, force)
    if svg is not None:
        from workbench.shots import read_size

        screen = read_size(size) if size is not None else None
    line = StatusLine()
    opened = open_recording(recording)
    try:
        for note in opened.notes:
            say(f"note: {recording}: {note}")
        if svg is not None and step is not None and not opened.first_step <= step <= opened.last_step:
            raise WorkbenchError(
                f"--step: there is no iteration {step}; {recording} has {opened.first_step} to {opened.last_step}"
            )
        from traces.exports.kinds import KINDS, Asked

        jobs = [
            KINDS[kind].job(Asked(opened, out, limits, content)) for kind, out in targets.items() if out is not None
        ]
        if jobs:
            _run(opened, jobs, line, force=force)
        if svg is not None:
            from workbench.shots import SIZE, write_shot

            write_shot(opened, svg, step=step, size=screen or SIZE, force=force)
    finally:
        line.clear()
        opened.close()
    for out in wanted:
        say(f"wrote {out}")


def _check(recording: Path, wanted: list[Path], force: bool) -> None:
    """Before anything is opened: every file must be one that may be written."""
    from traces.exports.target import check_target

    for number, out in enumerate(wanted):
        check_target(out, force=force)
        if out.exists() and recording.exists() and out.samefile(recording):
            raise WorkbenchError(f"{out} is the recording itself; give another file")
        if out in wanted[:number]:
            raise WorkbenchError(f"{out} is asked for twice; give each export a file of its own")


def _run(recording: Recording, jobs: list[Job], line: StatusLine, *, force: bool) -> None:
    from traces.exports.recorded import export_recording

    last = recording.first_seq + recording.num_records - 1
    known = len(recording.notes)

    def watch(it: Iteration) -> None:
        if line.due:
            line.show(f"record {it.seq} of {last}")

    lives = export_recording(recording, jobs, force=force, watch=watch)
    line.clear()
    for note in recording.notes[known:]:
        say(f"note: {recording.name}: {note}")
    if lives.strangers:
        say(f"note: {lives.strangers} requests were there before the recording began; they are left out")
