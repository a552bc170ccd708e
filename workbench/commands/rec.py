"""`workbench rec`: info, check, pack, unpack, rerun.

What: recordings of runs, from the command line.
Invariant: what a script reads goes to stdout; progress goes to stderr. Exit code 1: `check` found something, or
`rerun` a difference.
Omission: mistakes are raised as `WorkbenchError`; the main command prints them and exits with 2.
"""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.say import StatusLine, plain, say

if TYPE_CHECKING:
    from engine.clock import Clock
    from engine.engine import Engine
    from traces.recording import Header, Recording

app = typer.Typer(help="Look at, check, pack and run again recordings of runs.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="A recording (*.wbrec.jsonl, plain or packed).", metavar="FILE")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to (default: beside FILE).", metavar="FILE")]
FOUND = 1


@app.command()
def info(
    file: File, json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False
) -> None:
    """Say what is in a recording, from its header and index."""
    found = _facts(open_recording(file))
    if json:
        typer.echo(json_.dumps(found))
        return
    width = max(map(len, found))
    for name, value in found.items():
        values = value if isinstance(value, list) else _wrapped(value) if isinstance(value, dict) else [value]
        for at, one in enumerate(values):
            typer.echo(plain(f"{name.replace('_', ' ') if not at else '':{width}}  {_text(one)}"))


@app.command()
def check(file: File) -> None:
    """Read all of a recording: every line, every check sum."""
    from traces.recording.check import check as look

    recording = open_recording(file)
    line = StatusLine()
    problems = look(recording, line.progress)
    line.clear()
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(FOUND)
    typer.echo(
        f"{recording.num_records} records, {recording.last_step - recording.first_step + 1} iterations, "
        f"{recording.size} bytes: all there, all in agreement"
    )


@app.command()
def pack(
    file: File, out: Out = None, zstd: Annotated[bool, typer.Option("--zstd", help="zstd instead of gzip.")] = False
) -> None:
    """Compress a recording so that it can still be opened at any iteration."""
    from traces.recording.pack import pack as do

    line = StatusLine()
    try:
        done = do(file, out, zstd=zstd, progress=line.progress)
    finally:
        line.clear()
    typer.echo(f"{done.path}: {done.after} bytes, {100 * done.after / max(1, done.before):.0f} % of {done.before}")


@app.command()
def unpack(file: File, out: Out = None) -> None:
    """Write the plain recording of a packed one."""
    from traces.recording.pack import unpack as do

    line = StatusLine()
    try:
        done = do(file, out, progress=line.progress)
    finally:
        line.clear()
    typer.echo(f"{done.path}: {done.after} bytes")


@app.command()
def rerun(
    file: File,
    model: Annotated[
        str | None, typer.Option(help="The model, if it is no longer where the recording found it.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the model.", metavar="N")] = None,
) -> None:
    """Run a recording again for real, and report the first iteration that differs."""
    raise typer.Exit(run_again(file, model=model, threads=threads))


def run_again(file: Path, *, model: str | None = None, threads: int | None = None) -> int:
    """The exit code: 0 all the same, 1 something differs."""
    from traces.recording.rerun import rerun_recording
    from workbench.terminal import quiet_libraries

    quiet_libraries()
    recording = open_recording(file)
    line = StatusLine()
    try:
        result = rerun_recording(
            recording, factory(recording.header, line, model=model, threads=threads), progress=line.progress
        )
    finally:
        line.clear()
    for note in (*recording.notes, *result.notes):
        say(f"note: {note}")
    if result.difference is not None:
        typer.echo(plain(f"{result.steps} of {result.total} iterations are the same; then {result.difference}"))
        return FOUND
    typer.echo(f"all {result.total} iterations are the same: schedule, blocks and tokens")
    return 0


def factory(header: Header, line: StatusLine, *, model: str | None = None, threads: int | None = None) -> Any:
    """Builds the recorded engine: its model, dtype, device and seed."""
    from workbench.session import RunOptions, load

    info = header.info

    def build(knobs: dict[str, Any], clock: Clock) -> Engine:
        options = RunOptions(
            model=model or header.source or info.model,
            knobs=knobs,
            dtype=info.dtype,
            device="cpu" if info.device == "cpu" else "auto",
            threads=threads or (info.threads if info.device == "cpu" else None),
            seed=header.seed,
        )
        return load(options, None, line.progress, clock).engine

    return build


def open_recording(file: Path) -> Recording:
    """With its progress on stderr."""
    from traces.recording import Recording

    line = StatusLine()
    try:
        return Recording.open(file, line.progress)
    finally:
        line.clear()


def _facts(recording: Recording) -> dict[str, Any]:
    import numpy as np

    from traces.recording import Mark

    header, marks = recording.header, recording.marks
    ends = recording.ends
    config = header.info.config
    span = float(ends[-1] - ends[0] + recording.durations[0]) if len(ends) else 0.0
    return {
        "file": recording.name,
        "bytes": recording.size,
        "bytes_on_disk": Path(recording.name).stat().st_size,
        "model": header.info.model,
        "dtype": header.info.dtype,
        "device": header.info.device,
        "seed": header.seed,
        "clock": header.clock,
        "text": header.tokens,
        "records": recording.num_records,
        "first_iteration": recording.first_step,
        "last_iteration": recording.last_step,
        "requests": recording.num_requests,
        "span_s": round(span, 6),
        "bytes_per_iteration": round(recording.size / max(1, len(ends)), 1),
        "marked": {mark.name.lower(): int(np.count_nonzero(marks & mark)) for mark in Mark if mark.name},
        "bookmarks": [f"{step}: {text}" for step, text in recording.bookmarks],
        "knobs": {name: value for name, value in config.values().items() if value is not None},
        "ended": recording.closed,
        "can_run_again": header.complete,
        "notes": recording.notes,
    }


def _wrapped(value: dict[str, Any]) -> list[str]:
    """Names and values, as many a line as can be read."""
    lines = [""]
    for name, one in value.items():
        part = f"{name}={_text(one)}"
        if lines[-1] and len(lines[-1]) + len(part) > 76:
            lines.append("")
        lines[-1] += f"  {part}" if lines[-1] else part
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name}={_text(one)}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
