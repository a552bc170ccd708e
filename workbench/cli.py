"""The command line.

Exit codes: 0 done, 1 a fault of ours (its traceback is in the log file the message names), 2 a mistake that can be
mended, 128 + n ended by signal n (130: Ctrl-C).
Invariant: only light imports here. `workbench --help` must answer at once, so torch, textual and rich are imported by
the commands that need them.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import WorkbenchError
from engine.knobs import KNOBS
from workbench.commands.export import export
from workbench.commands.model import app as model_app
from workbench.commands.options import Running, Showing, with_running, with_showing
from workbench.commands.reading import with_reading
from workbench.commands.rec import app as rec_app
from workbench.commands.replay import replay
from workbench.commands.trace import app as trace_app
from workbench.knob_options import with_knobs
from workbench.say import error

app = typer.Typer(
    help="A terminal workbench for LLM serving: a real paged-KV continuous-batching engine, iteration by iteration.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich boxes cut long option names at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(model_app, name="model")
app.add_typer(trace_app, name="trace")
app.add_typer(rec_app, name="rec")


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
@with_showing
@with_running
def run(
    workload: Annotated[
        Path | None, typer.Option(help="Requests from a file of any known format instead of the built-in ones.")
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
    *,
    running: Running,
    showing: Showing,
    knobs: dict[str, Any],
) -> None:
    """Serve requests and show every iteration."""
    from workbench.session import RunOptions, check

    if showing.headless and no_workload:
        raise WorkbenchError("--headless with --no-workload has nothing to run; leave one of them out")
    if repeat is None:
        repeat = 10 if workload is None and not showing.headless else 1
    options = RunOptions(
        **dataclasses.asdict(running),
        knobs=knobs,
        workload=workload,
        no_workload=no_workload,
        repeat=repeat,
        skip_bad=skip_bad,
    )
    from workbench.serving import serve

    raise typer.Exit(serve(options, lambda: check(options), showing))


app.command()(with_knobs(with_showing(with_running(with_reading(replay)))))
app.command()(export)


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
