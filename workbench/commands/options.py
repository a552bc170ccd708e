"""Options that commands share: how to run a model (`with_running`), and how to show a run (`with_showing`).

Invariant: an option has its help, its default and its check in this one place. Light imports only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import WorkbenchError
from workbench.commands.slo_options import SloName, SloScale, SloTpot, SloTtft, slo_from, slo_given

if TYPE_CHECKING:
    from traces.slo import Slo


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


class Clock(StrEnum):
    real = "real"
    virtual = "virtual"


@dataclass(frozen=True, slots=True)
class Running:
    """A model, where and with what seed it runs, and by which clock."""

    model: str
    dtype: str
    device: str
    threads: int | None
    seed: int
    costs: tuple[int, int] | None
    """Nanoseconds of an iteration and of a token on a virtual clock; None: the real one."""
    record: Path | None
    record_text: bool


@dataclass(frozen=True, slots=True)
class Showing:
    """A screen, or a summary at the end."""

    headless: bool
    as_json: bool = False
    out: Path | None = None
    slo: Slo | None = None
    """What goodput is measured by."""
    definitions: bool = False
    pace: float | None = None
    fps: int | None = None
    glyphs: str | None = None


_RUNNING: dict[str, tuple[Any, Any]] = {
    "model": (
        Annotated[
            str, typer.Option(help="tiny (built in), a fetched model, a folder, a .gguf file or a hub id (org/name).")
        ],
        "smollm2-135m-instruct",
    ),
    "dtype": (
        Annotated[Dtype, typer.Option(help="Numbers of the model; float32 on CPU is the exact mode.")],
        Dtype.auto,
    ),
    "device": (
        Annotated[Device, typer.Option(help="Where the model runs; auto takes a GPU if there is one.")],
        Device.auto,
    ),
    "threads": (
        Annotated[int | None, typer.Option(help="CPU threads of the model (default: one a core).", metavar="N")],
        None,
    ),
    "seed": (Annotated[int, typer.Option(help="Seed of sampling and of made prompts.")], 0),
    "clock": (
        Annotated[
            Clock,
            typer.Option(
                help="virtual: time is made of --step-ms and --token-us and waiting takes none, so the same requests, "
                "seed and knobs give the same schedule on any machine."
            ),
        ],
        Clock.real,
    ),
    "step_ms": (
        Annotated[
            float | None,
            typer.Option(help="With --clock virtual: milliseconds of an iteration (default 10).", metavar="NUMBER"),
        ],
        None,
    ),
    "token_us": (
        Annotated[
            float | None,
            typer.Option(help="With --clock virtual: microseconds of each token in it (default 50).", metavar="NUMBER"),
        ],
        None,
    ),
    "record": (
        Annotated[
            Path | None,
            typer.Option(help="Record the run into a new file, to be played, exported or run again.", metavar="FILE"),
        ],
        None,
    ),
    "no_record_text": (
        Annotated[bool, typer.Option("--no-record-text", help="With --record: leave prompts, tokens and texts out.")],
        False,
    ),
}

_SHOWING: dict[str, tuple[Any, Any]] = {
    "headless": (Annotated[bool, typer.Option("--headless", help="No screen; a summary at the end.")], False),
    "json": (Annotated[bool, typer.Option("--json", help="With --headless: the summary as one JSON object.")], False),
    "out": (
        Annotated[
            Path | None,
            typer.Option(
                help="With --headless: one JSON line per request, in the order in which they ended.", metavar="FILE"
            ),
        ],
        None,
    ),
    "slo": (SloName, None),
    "slo_ttft": (SloTtft, None),
    "slo_tpot": (SloTpot, None),
    "slo_scale": (SloScale, None),
    "definitions": (
        Annotated[
            bool,
            typer.Option("--definitions", help="With --headless: what every figure of the summary means, in full."),
        ],
        False,
    ),
    "pace": (
        Annotated[
            float | None, typer.Option(help="On the screen: at most this many iterations a second.", metavar="NUMBER")
        ],
        None,
    ),
    "fps": (Annotated[int | None, typer.Option(help="Most frames a second of the screen.", metavar="N")], None),
    "glyphs": (Annotated[Glyphs | None, typer.Option(help="How the screen draws; g changes it there.")], None),
}

Command = Callable[..., Any]


def with_running(command: Command) -> Command:
    """`command(..., running)` as a function with an option for each part of `Running`."""
    return _adding(command, _RUNNING, "running", _running)


def with_showing(command: Command) -> Command:
    """`command(..., showing)` as a function with an option for each part of `Showing`."""
    return _adding(command, _SHOWING, "showing", _showing)


def _adding(
    command: Command, table: dict[str, tuple[Any, Any]], name: str, make: Callable[[dict[str, Any]], Any]
) -> Command:
    def run(**values: Any) -> Any:
        given = {option: values.pop(option) for option in table}
        return command(**values, **{name: make(given)})

    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.name != name
    ]
    made = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for option, (annotation, default) in table.items()
    ]
    run.__signature__ = signature.replace(parameters=own + made)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own + made}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _running(given: dict[str, Any]) -> Running:
    if given["no_record_text"] and given["record"] is None:
        raise WorkbenchError("--no-record-text needs --record")
    return Running(
        given["model"],
        given["dtype"].value,
        given["device"].value,
        given["threads"],
        given["seed"],
        _costs(given["clock"], given["step_ms"], given["token_us"]),
        given["record"],
        not given["no_record_text"],
    )


def _costs(clock: Clock, step_ms: float | None, token_us: float | None) -> tuple[int, int] | None:
    if clock is Clock.real:
        for name, value in (("--step-ms", step_ms), ("--token-us", token_us)):
            if value is not None:
                raise WorkbenchError(f"{name} needs --clock virtual")
        return None
    check_range("--step-ms", step_ms, 0.001, 3_600_000)
    check_range("--token-us", token_us, 0, 1_000_000_000)
    return round(1e6 * (10.0 if step_ms is None else step_ms)), round(1e3 * (50.0 if token_us is None else token_us))


def _showing(given: dict[str, Any]) -> Showing:
    limits = [given[name] for name in ("slo", "slo_ttft", "slo_tpot", "slo_scale")]
    if given["headless"]:
        for name in ("pace", "fps", "glyphs"):
            if given[name] is not None:
                raise WorkbenchError(f"--{name} is for the screen; leave it or --headless out")
    else:
        asked = {"--json": given["json"], "--out": given["out"], "--definitions": given["definitions"]}
        first = next((name for name, value in asked.items() if value), None) or slo_given(*limits)
        if first is not None:
            raise WorkbenchError(f"{first} needs --headless")
        check_range("--pace", given["pace"], 0.1, 1000)
        check_range("--fps", given["fps"], 1, 60)
    return Showing(
        given["headless"],
        given["json"],
        given["out"],
        slo_from(*limits),
        given["definitions"],
        given["pace"],
        given["fps"],
        given["glyphs"].value if given["glyphs"] else None,
    )


def check_range(name: str, number: float | None, low: float, high: float) -> None:
    if number is not None and not low <= number <= high:
        raise WorkbenchError(f"{name}: {number:.15g} is out of range, allowed: {low:.15g}..{high:.15g}")
