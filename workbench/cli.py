"""The command line.

Exit codes: 0 done, 1 a fault of ours (its traceback is in the log file the message names), 2 a mistake that can be
mended, 128 + n ended by signal n (130: Ctrl-C).
Invariant: only light imports here. `workbench --help` must answer at once, so torch, textual and rich are imported by
the commands that need them.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import WorkbenchError
from engine.knobs import KNOBS
from workbench.commands.model import app as model_app
from workbench.commands.slo_options import SloName, SloScale, SloTpot, SloTtft, slo_from, slo_given
from workbench.knob_options import with_knobs
from workbench.say import StatusLine, error, say

app = typer.Typer(
    help="A terminal workbench for LLM serving: a real paged-KV continuous-batching engine, iteration by iteration.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich boxes cut long option names at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(model_app, name="model")


class Dtype(StrEnum):
    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"


class Glyphs(StrEnum):
    colour = "colour"
    mono = "mono"
    ascii = "ascii"


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"serving-workbench {version('serving-workbench')}")
        except PackageNotFoundError:
            typer.echo("serving-workbench (not installed)")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
@with_knobs
def run(
    model: Annotated[
        str, typer.Option(help="tiny (built in), a fetched model, a folder, a .gguf file or a hub id (org/name).")
    ] = "smollm2-135m-instruct",
    workload: Annotated[
        Path | None, typer.Option(help="Requests from a file of JSON lines instead of the built-in ones.")
    ] = None,
    no_workload: Annotated[bool, typer.Option("--no-workload", help="Start empty.")] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Play the workload this many times (default 1; the built-in one on the screen 10).", metavar="N"
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows of the workload out and say how many.")
    ] = False,
    headless: Annotated[bool, typer.Option("--headless", help="No screen; a summary at the end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --headless: the summary as one JSON object.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --headless: one JSON line per request, in the order in which they ended.", metavar="FILE"
        ),
    ] = None,
    slo: SloName = None,
    slo_ttft: SloTtft = None,
    slo_tpot: SloTpot = None,
    slo_scale: SloScale = None,
    definitions: Annotated[
        bool, typer.Option("--definitions", help="With --headless: what every figure of the summary means, in full.")
    ] = False,
    dtype: Annotated[Dtype, typer.Option(help="Numbers of the model; float32 on CPU is the exact mode.")] = Dtype.auto,
    device: Annotated[
        Device, typer.Option(help="Where the model runs; auto takes a GPU if there is one.")
    ] = Device.auto,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of the model (default: one a core).", metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling and of random prompts.")] = 0,
    pace: Annotated[
        float | None, typer.Option(help="On the screen: at most this many iterations a second.", metavar="NUMBER")
    ] = None,
    fps: Annotated[int | None, typer.Option(help="Most frames a second of the screen.", metavar="N")] = None,
    glyphs: Annotated[Glyphs | None, typer.Option(help="How the screen draws; g changes it there.")] = None,
    knobs: Any = None,
) -> None:
    """Serve requests and show every iteration."""
    from workbench.session import RunOptions, check

    if headless:
        for name, value in (("--pace", pace), ("--fps", fps), ("--glyphs", glyphs)):
            if value is not None:
                raise WorkbenchError(f"{name} is for the screen; leave it or --headless out")
        if no_workload:
            raise WorkbenchError("--headless with --no-workload has nothing to run; leave one of them out")
    else:
        limit = slo_given(slo, slo_ttft, slo_tpot, slo_scale)
        asked = (("--json", json), ("--out", out is not None), ("--definitions", definitions))
        for name, given in (*asked, (limit or "", limit is not None)):
            if given:
                raise WorkbenchError(f"{name} needs --headless")
        for name, number, low, high in (("--pace", pace, 0.1, 1000), ("--fps", fps, 1, 60)):
            if number is not None and not low <= number <= high:
                raise WorkbenchError(f"{name}: {number:g} is out of range, allowed: {low:g}..{high}")
    limits = slo_from(slo, slo_ttft, slo_tpot, slo_scale)
    if repeat is None:
        repeat = 10 if workload is None and not headless else 1
    options = RunOptions(
        model=model,
        knobs=knobs,
        dtype=dtype.value,
        device=device.value,
        threads=threads,
        seed=seed,
        workload=workload,
        no_workload=no_workload,
        repeat=repeat,
        skip_bad=skip_bad,
    )
    if headless:
        raise typer.Exit(_run_headless(options, as_json=json, out=out, slo=limits, definitions=definitions))
    from workbench.terminal import check_terminal

    rows = check(options)
    check_terminal()
    from workbench.screen import run_screen

    raise typer.Exit(run_screen(options, rows, pace=pace, fps=fps, glyphs=glyphs.value if glyphs else None))


def _run_headless(options: Any, *, out: Path | None, **shown: Any) -> int:
    """shown: how `run_headless` is to tell the results."""
    from workbench.headless import out_file, run_headless
    from workbench.session import check, load
    from workbench.terminal import quiet_libraries

    quiet_libraries()
    if out is not None and options.workload is not None and out.exists() and out.samefile(options.workload):
        raise WorkbenchError(f"--out: {out} is the workload itself; give another file")
    workload = check(options)
    with out_file(out) as file:
        line = StatusLine()
        try:
            loaded = load(options, workload, line.progress)
        finally:
            line.clear()
        for note in loaded.notes:
            say(f"note: {note}")
        return run_headless(loaded.engine, loaded.info, loaded.requests, out=file, **shown)


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of the table.")] = False,
) -> None:
    """Say what this machine has, and what to do about each problem."""
    from workbench.doctor import run_doctor

    raise typer.Exit(run_doctor(as_json=json))


@app.command()
def knobs() -> None:
    """List every knob with its range and what other engines call it."""
    from workbench.knob_options import describe

    for knob in KNOBS.values():
        typer.echo(describe(knob))


def main() -> None:
    """Entry point of the `workbench` script and of `python -m workbench`."""
    try:
        app(prog_name="workbench")
    except WorkbenchError as problem:
        error(str(problem))
        sys.exit(2)
    except Exception as fault:
        from workbench.log import write_fault

        name = write_fault(fault)
        first = str(fault).strip().splitlines()
        error(f"{type(fault).__name__}: {first[0] if first else 'no message'}; a fault of the workbench, see {name}")
        sys.exit(1)


if __name__ == "__main__":
    main()
