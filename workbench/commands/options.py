"""Options that commands share: how to run a model, and how to show it.

Invariant: an option has its help, its range and its check in this one place.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from engine.errors import WorkbenchError


class DtypeName(StrEnum):
    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"


class GlyphsName(StrEnum):
    colour = "colour"
    mono = "mono"
    ascii = "ascii"


class DeviceName(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class ClockName(StrEnum):
    real = "real"
    virtual = "virtual"


DEFAULT_MODEL = "smollm2-135m-instruct"
Model = Annotated[
    str, typer.Option(help="tiny (built in), a fetched model, a folder, a .gguf file or a hub id (org/name).")
]
Headless = Annotated[bool, typer.Option("--headless", help="No screen; a summary at the end.")]
Json = Annotated[bool, typer.Option("--json", help="With --headless: the summary as one JSON object.")]
Out = Annotated[
    Path | None,
    typer.Option(help="With --headless: one JSON line per request, in the order in which they ended.", metavar="FILE"),
]
Dtype = Annotated[DtypeName, typer.Option(help="Numbers of the model; float32 on CPU is the exact mode.")]
Device = Annotated[DeviceName, typer.Option(help="Where the model runs; auto takes a GPU if there is one.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads of the model (default: one a core).", metavar="N")]
Seed = Annotated[int, typer.Option(help="Seed of sampling and of made prompts.")]
Pace = Annotated[
    float | None, typer.Option(help="On the screen: at most this many iterations a second.", metavar="NUMBER")
]
Fps = Annotated[int | None, typer.Option(help="Most frames a second of the screen.", metavar="N")]
Glyphs = Annotated[GlyphsName | None, typer.Option(help="How the screen draws; g changes it there.")]
Clock = Annotated[
    ClockName,
    typer.Option(
        help="virtual: time is made of --step-ms and --token-us, so the same requests, seed and knobs give the same "
        "schedule on any machine; waiting takes no time."
    ),
]
StepMs = Annotated[
    float | None,
    typer.Option(help="With --clock virtual: milliseconds of an iteration (default 10).", metavar="NUMBER"),
]
TokenUs = Annotated[
    float | None,
    typer.Option(help="With --clock virtual: microseconds of each token in it (default 50).", metavar="NUMBER"),
]


def check_showing(
    *, headless: bool, json: bool, out: Path | None, pace: float | None, fps: int | None, glyphs: GlyphsName | None
) -> None:
    """Whether the options for screen and for headless runs go together. Raises WorkbenchError."""
    if headless:
        for name, value in (("--pace", pace), ("--fps", fps), ("--glyphs", glyphs)):
            if value is not None:
                raise WorkbenchError(f"{name} is for the screen; leave it or --headless out")
        return
    for name, given in (("--json", json), ("--out", out is not None)):
        if given:
            raise WorkbenchError(f"{name} needs --headless")
    check_range("--pace", pace, 0.1, 1000)
    check_range("--fps", fps, 1, 60)


def check_range(name: str, number: float | None, low: float, high: float) -> None:
    if number is not None and not low <= number <= high:
        raise WorkbenchError(f"{name}: {number:.15g} is out of range, allowed: {low:.15g}..{high:.15g}")


def virtual_costs(clock: ClockName, step_ms: float | None, token_us: float | None) -> tuple[int, int] | None:
    """Nanoseconds of an iteration and of a token on the virtual clock; None on the real one."""
    if clock is ClockName.real:
        for name, value in (("--step-ms", step_ms), ("--token-us", token_us)):
            if value is not None:
                raise WorkbenchError(f"{name} needs --clock virtual")
        return None
    check_range("--step-ms", step_ms, 0.001, 3_600_000)
    check_range("--token-us", token_us, 0, 1_000_000_000)
    return round(1e6 * (10.0 if step_ms is None else step_ms)), round(1e3 * (50.0 if token_us is None else token_us))
