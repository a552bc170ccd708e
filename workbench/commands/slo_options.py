"""The options that set an SLO, shared by every command that measures a run.

What: annotated types for a command's parameters, and `slo_from`, which makes one `Slo` of what was given.
Invariant: with none of them given the SLO is the preset `chat`; it is told with every result.
"""

from __future__ import annotations

import math
from typing import Annotated

import typer

from engine.errors import WorkbenchError
from traces.slo import LIMITS_MS, Slo

DEFAULT = "chat"
NONE = "none"

SloName = Annotated[
    str | None,
    typer.Option(
        "--slo",
        help=f"Limits for goodput (default {DEFAULT}): {', '.join(LIMITS_MS)}, or {NONE}.",
        metavar="NAME",
        show_default=False,
    ),
]
SloTtft = Annotated[
    float | None,
    typer.Option("--slo-ttft", help="Limit on the time to the first token, in ms.", metavar="MS", show_default=False),
]
SloTpot = Annotated[
    float | None,
    typer.Option("--slo-tpot", help="Limit on the time per further token, in ms.", metavar="MS", show_default=False),
]
SloScale = Annotated[
    float | None,
    typer.Option(
        "--slo-scale", help="Multiplies the limits, for machines slower than the presets are meant for.", metavar="X",
        show_default=False,
    ),
]  # fmt: skip


def slo_from(
    name: str | None = None, ttft_ms: float | None = None, tpot_ms: float | None = None, scale: float | None = None
) -> Slo | None:
    """What the options ask for; None for `--slo none`. A limit alone is the only one; with a name it replaces its.

    Raises WorkbenchError naming the option.
    """
    for option, value in (("--slo-ttft", ttft_ms), ("--slo-tpot", tpot_ms), ("--slo-scale", scale)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise WorkbenchError(f"{option}: {value:g} is out of range; give a number above 0")
    if name == NONE:
        given = [
            option
            for option, value in (("--slo-ttft", ttft_ms), ("--slo-tpot", tpot_ms), ("--slo-scale", scale))
            if value is not None
        ]
        if given:
            raise WorkbenchError(f"{given[0]} with --slo {NONE}: leave one of them out")
        return None
    if name is not None and name not in LIMITS_MS:
        raise WorkbenchError(f"--slo: there is no {name!r}; choose one of {', '.join((*LIMITS_MS, NONE))}")
    own = ttft_ms is not None or tpot_ms is not None
    if not own:
        return Slo.preset(name or DEFAULT, scale or 1.0)
    base = Slo.preset(name) if name is not None else Slo(None, None)
    return Slo(
        base.ttft_s if ttft_ms is None else ttft_ms / 1000,
        base.tpot_s if tpot_ms is None else tpot_ms / 1000,
        scale or 1.0,
        f"{name}, changed" if name is not None else "custom",
    )


def slo_given(name: str | None, ttft_ms: float | None, tpot_ms: float | None, scale: float | None) -> str | None:
    """The first option that was given, for commands that refuse them in some mode."""
    options = (("--slo", name), ("--slo-ttft", ttft_ms), ("--slo-tpot", tpot_ms), ("--slo-scale", scale))
    return next((option for option, value in options if value is not None), None)
