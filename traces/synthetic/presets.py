"""The ten presets by name, and the two ways to use them: as a workload, or as a file.

Invariant: the same name, seed and settings give the same rows, and the same bytes, in every process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import WorkbenchError
from traces.readers.native import MOST_RANDOM
from traces.synthetic.agent import AT_ONCE, agent
from traces.synthetic.arrivals import TICKS
from traces.synthetic.chat import batch, chat, longdoc
from traces.synthetic.dirty import write_dirty
from traces.synthetic.plan import Draft, Plan, finish
from traces.synthetic.rag import rag
from traces.synthetic.single import bursty, code, fair, reason
from traces.workload import Workload
from traces.writers.native import write_native

MOST_ROWS = 10_000_000
_NOT_ASKED = {"len_scale": 1.0, "slo_scale": 1.0}
"""Options that are always there; the others are None where nobody asks."""


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    shows: str
    """One line: what there is to see."""
    n: int
    """Rows, where nobody says."""
    make: Callable[[Plan], list[Draft]] | None
    """None: it is a file, not a workload."""
    rate: float | None = None
    """Requests a second of the real trace; None: its loop is closed, or it has no times."""
    rate_of: str = ""
    """Which trace that is."""
    ttft_s: float | None = None
    """The SLO it is meant for, before `slo_scale`; a deadline of each row where it is for the first token."""
    tpot_s: float | None = None
    variants: tuple[tuple[str, str], ...] = ()
    """(name, one line); the first is meant where nobody says."""

    @property
    def closed_loop(self) -> bool:
        """It takes no rate: calls wait for calls."""
        return self.make is not None and self.rate is None


_ALL = (
    Preset("chat", "steady state, and what a queue does to TTFT", 2000, chat, 5.53, "Azure 2023 conv", 2.0, 0.2),
    Preset(
        "code", "prefill-bound: bursts, and how they drain in idle times", 2000, code, 2.57, "Azure 2023 code", 0.45
    ),
    Preset(
        "batch",
        "throughput, priority, and who is preempted when chat comes beside a pile of work",
        2000,
        batch,
        11.06,
        "Azure 2023 conv, and as much again",
        variants=(("once", "all of the pile at 0 s"), ("waves", "the pile in waves of CV 3 over the run")),
    ),
    Preset("rag", "the limits of a prefix cache when passages change places", 2000, rag, 0.012, "RAGPulse", 2.0),
    Preset("longdoc", "head-of-line blocking, and the size of prefill chunks", 2000, longdoc, 5.53, "Azure 2023 conv"),
    Preset("agent", "the prefix cache, and what is evicted while tools run", 2000, agent),
    Preset(
        "reason",
        "decode-bound: KV that grows, and preemption",
        2000,
        reason,
        16.0,
        "ServeGen deepseek-r1",
        tpot_s=0.08,
    ),
    Preset(
        "fair",
        "FCFS against a fair policy",
        1500,
        fair,
        2.5,
        "the VTC arena sample",
        variants=(("arena", "27 clients as in the sample"), ("hog", "two clients, one asks three times as often")),
    ),
    Preset("bursty", "why averages lie: one client comes in bursts", 2000, bursty, 5.53, "Azure 2023 conv"),
    Preset("dirty", "what the readers say about broken rows; a file, not a workload", 0, None),
)
PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}


def generate(
    name: str,
    *,
    n: int | None = None,
    seed: int = 0,
    rate: float | None = None,
    duration: float | None = None,
    len_scale: float = 1.0,
    max_len: int | None = None,
    slo_scale: float = 1.0,
    variant: str | None = None,
) -> Workload:
    """A preset as requests, in order of arrival.

    n: rows. rate: requests a second over all; the real trace's own where it is None. duration: seconds; with `n` it
    fixes the rate, without it the number of rows. len_scale: of prompt and output lengths. max_len: most tokens of a
    prompt and its answer together; the prompt is cut first. slo_scale: of deadlines. variant: one of the preset's.
    Raises WorkbenchError naming what cannot be.
    """
    preset = _preset(name)
    if preset.make is None:
        raise WorkbenchError(f"preset {name!r} is a file of broken rows, not a workload; write it to a file")
    plan = _plan(preset, n, seed, rate, duration, len_scale, max_len, slo_scale, variant)
    specs = finish(preset.make(plan), plan)
    if (longest := max((spec.prompt_len or 0 for spec in specs), default=0)) > MOST_RANDOM:
        raise WorkbenchError(
            f"len_scale: {len_scale:g} makes a prompt of {longest:,} tokens, allowed: up to {MOST_RANDOM:,}; "
            "max_len cuts them"
        )
    return Workload(name, specs, notes=(_note(preset, plan, rate is None and not (n and duration)),))


def write_preset(name: str, path: Path, **options: Any) -> tuple[Path, ...]:
    """Writes a preset: JSON lines of the native format. `options` are those of `generate`. Returns the files written.

    `dirty` takes `seed` alone; what it writes is told in `traces.synthetic.dirty`.
    """
    path = Path(path)
    if _preset(name).make is None:
        other = sorted(name for name, value in options.items() if name != "seed" and value != _NOT_ASKED.get(name))
        if other:
            raise WorkbenchError(f"preset {name!r} is always the same rows; leave out {', '.join(other)}")
        return write_dirty(path, options.get("seed") or 0)
    workload = generate(name, **options)
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            write_native(workload.specs, file)
    except OSError as error:
        raise WorkbenchError(f"{path} cannot be written: {error.strerror or error}") from None
    return (path,)


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise WorkbenchError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def _plan(
    preset: Preset,
    n: int | None,
    seed: int,
    rate: float | None,
    duration: float | None,
    len_scale: float,
    max_len: int | None,
    slo_scale: float,
    variant: str | None,
) -> Plan:
    if n is not None and not 1 <= n <= MOST_ROWS:
        raise WorkbenchError(f"n: {n} is out of range, allowed: 1..{MOST_ROWS}")
    for option, value in (("rate", rate), ("duration", duration), ("len_scale", len_scale), ("slo_scale", slo_scale)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise WorkbenchError(f"{option}: {value} is out of range, allowed: above 0")
    if max_len is not None and max_len < 2:
        raise WorkbenchError(f"max_len: {max_len} leaves no room for a prompt and an answer, allowed: 2 and more")
    names = [known for known, _ in preset.variants]
    if variant is not None and variant not in names:
        has = f"there are {', '.join(names)}" if names else "this preset has none"
        raise WorkbenchError(f"variant: {variant!r} is none of preset {preset.name!r}; {has}")
    until = None
    if preset.closed_loop:
        if rate is not None:
            raise WorkbenchError(
                f"rate: preset {preset.name!r} is a closed loop of {AT_ONCE} sessions, its rate is what the server"
                " can do; leave rate out"
            )
        if duration is not None:
            until, n = round(duration * TICKS), n or MOST_ROWS
        rate = 0.0
    elif rate is not None and duration is not None:
        if n is not None:
            raise WorkbenchError("n, rate and duration: any two of them give the third; leave one out")
        n = _rows(rate * duration)
    elif duration is not None:
        if n is not None:
            rate = n / duration
        else:
            rate = preset.rate or 0.0
            n = _rows(rate * duration)
    return Plan(
        preset.name,
        preset.n if n is None else n,
        (preset.rate or 0.0) if rate is None else rate,
        seed,
        variant or (names[0] if names else ""),
        until,
        len_scale,
        max_len,
        slo_scale,
    )


def _rows(number: float) -> int:
    if number > MOST_ROWS:
        raise WorkbenchError(f"rate and duration make {number:.0f} rows, allowed: up to {MOST_ROWS}")
    return max(1, round(number))


def _note(preset: Preset, plan: Plan, own_rate: bool) -> str:
    """All that is needed to make it again."""
    parts = [f"preset {preset.name}{' ' + plan.variant if plan.variant else ''}", f"seed {plan.seed}"]
    if preset.closed_loop:
        parts.append(f"closed loop of {AT_ONCE} sessions")
    else:
        parts.append(f"{plan.rate:g} requests/s" + (f" (that of {preset.rate_of})" if own_rate else ""))
    if plan.len_scale != 1:
        parts.append(f"lengths x {plan.len_scale:g}")
    if plan.max_len is not None:
        parts.append(f"at most {plan.max_len} tokens")
    if plan.slo_scale != 1:
        parts.append(f"deadlines x {plan.slo_scale:g}")
    return ", ".join(parts)
