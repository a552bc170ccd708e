"""`workbench model`: get, list, path, rm.

What: the cache folder of models, from the command line.
Invariant: what a script reads (a path, a list) goes to stdout; progress and questions go to stderr.
Omission: mistakes are raised as `WorkbenchError`; the main command prints them and exits with 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.default_model import Progress

app = typer.Typer(help="Fetch, list and remove models.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="A model: smollm2-135m-instruct, a folder, a .gguf file or a Hub id (org/name).")
]


@app.command()
def get(name: Name = "smollm2-135m-instruct") -> None:
    """Fetch (or convert) a model, so that later runs start at once."""
    from workbench.model_store import resolve

    with progress_bar() as progress:
        source = resolve(name, progress)
    typer.echo(source.path if source.path is not None else f"{source.name} is built in")


@app.command("list")
def list_() -> None:
    """Show the models that are ready to run."""
    from rich.console import Console
    from rich.table import Table

    from workbench.model_store import DEFAULT_MODEL, TINY, list_models

    models = list_models()
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "size", "licence", "source"):
        table.add_column(heading, justify="right" if heading == "size" else "left", no_wrap=heading != "source")
    if all(model.name != DEFAULT_MODEL for model in models):
        table.add_row(DEFAULT_MODEL, "-", "Apache-2.0", "not fetched yet: workbench model get")
    for model in models:
        table.add_row(model.name, f"{model.size / 1e6:.0f} MB", model.licence, model.source)
    table.add_row(TINY, "-", "-", "built in; random weights, for trying things")
    Console().print(table)


@app.command()
def path(name: Name = "smollm2-135m-instruct") -> None:
    """Print the folder of a model that was fetched before."""
    from workbench.model_store import path as path_of

    typer.echo(path_of(name))


@app.command()
def rm(
    name: Annotated[str, typer.Argument(help="A name from `workbench model list`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a model from the cache folder."""
    from workbench.model_store import path as path_of
    from workbench.model_store import remove

    folder = path_of(name)
    if not yes:
        typer.confirm(f"Delete {folder}?", abort=True, err=True)
    remove(name)
    typer.echo(f"deleted {folder}", err=True)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr that follows `progress(stage, done, total)`; one line a stage, bytes counted."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=None)
            bar.update(tasks[stage], completed=done, total=total or None)

        yield progress
