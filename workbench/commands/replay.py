"""`workbench replay FILE`: a trace through the real engine, at its own times or others; or a recording played."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import WorkbenchError
from workbench.commands.options import Running, Showing, check_range
from workbench.say import StatusLine, say

MOST_TOKENS = 1 << 24


class OverLimit(StrEnum):
    drop = "drop"
    clamp = "clamp"
    reject = "reject"


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A trace of any known format, plain, gzip or zstd; or a recording.")
    ],
    speed: Annotated[
        float, typer.Option(help="Play arrivals (or a recording) this many times as fast.", metavar="X")
    ] = 1.0,
    start: Annotated[
        str | None, typer.Option("--from", help="Leave out what comes before this time of the trace.", metavar="TIME")
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", help="Leave out what comes at this time of the trace or later.", metavar="TIME"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N requests; closed-loop sessions stay whole.", metavar="N")
    ] = None,
    len_scale: Annotated[
        float, typer.Option(help="Multiply prompt, prefix and output lengths (1 token is left).", metavar="X")
    ] = 1.0,
    max_prompt: Annotated[
        int | None, typer.Option(help="Cut longer prompts to N tokens; their beginnings stay.", metavar="N")
    ] = None,
    over_limit: Annotated[
        OverLimit,
        typer.Option(
            help="Requests over max_model_len: drop them, clamp (cut prompt, then output), or reject: send them "
            "and let the engine refuse or end them."
        ),
    ] = OverLimit.reject,
    clients: Annotated[int | None, typer.Option(help="Give the requests to N invented clients.", metavar="N")] = None,
    client_skew: Annotated[
        str | None,
        typer.Option(help="With --clients: how unequal they are, zipf:A (default: all alike).", metavar="zipf:A"),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(help="Spread requests of equal stamps evenly within this time, such as 3s.", metavar="TIME"),
    ] = None,
    synth_prefix: Annotated[
        int | None,
        typer.Option(
            help="Where the trace has no prefix ids: let all prompts of a client begin with N invented tokens.",
            metavar="N",
        ),
    ] = None,
    loop: Annotated[
        bool | None,
        typer.Option(
            "--closed-loop/--open-loop",
            help="Turns of a session wait for each other, or come at their own times (default: as the rows say).",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Play it this many times in a row.", metavar="N")] = 1,
    rerun: Annotated[
        bool,
        typer.Option("--rerun", help="Of a recording: run it again for real, and report the first difference."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be sent, and end.")] = False,
    *,
    reading: Any,
    running: Running,
    showing: Showing,
    knobs: dict[str, Any],
) -> None:
    """Replay a trace file through the engine, or play a recording.

    What became of every row of a trace is told first. A recording opens in the same screens as a running engine.
    """
    from traces.scaling import MOST_CLIENTS, Scaling, duration, zipf
    from workbench.replaying import Replay, is_recording, prepare
    from workbench.session import MOST_REPEATS, RunOptions, check_options

    if reading.format is None and is_recording(file):
        odd = {"--from": start, "--to": end, "--limit": limit, "--max-prompt": max_prompt, "--clients": clients}
        odd |= {"--spread": spread, "--synth-prefix": synth_prefix, "--dry-run": dry_run or None}
        odd |= {"--len-scale": None if len_scale == 1.0 else len_scale, "--repeat": None if repeat == 1 else repeat}
        odd |= {"--closed-loop" if loop else "--open-loop": loop, "--record": running.record}
        odd |= {f"--{name.replace('_', '-')}": value for name, value in knobs.items()}
        first = next((name for name, value in odd.items() if value is not None), None)
        if first is not None:
            raise WorkbenchError(
                f"{first} cannot change {file}, a recording of a run; --format recording sends its requests anew"
            )
        check_range("--speed", speed, 0.01, 1000)
        from workbench.playing import play

        if rerun:
            from workbench.commands.rec import run_again

            raise typer.Exit(run_again(file, threads=running.threads))
        raise typer.Exit(play(file, showing, speed=speed))
    if rerun:
        raise WorkbenchError(f"--rerun needs a recording, and {file} is none")
    for name, value, low, high in (
        ("--speed", speed, 1e-6, 1e9),
        ("--limit", limit, 1, 1 << 40),
        ("--len-scale", len_scale, 1e-6, 1e6),
        ("--max-prompt", max_prompt, 1, MOST_TOKENS),
        ("--clients", clients, 1, MOST_CLIENTS),
        ("--synth-prefix", synth_prefix, 1, 1 << 20),
        ("--repeat", repeat, 1, MOST_REPEATS),
    ):
        check_range(name, value, low, high)
    if client_skew is not None and clients is None:
        raise WorkbenchError("--client-skew needs --clients")
    begin = None if start is None else duration("--from", start)
    finish = None if end is None else duration("--to", end)
    if finish is not None and finish <= (begin or 0.0):
        raise WorkbenchError(f"--to {end} is not after --from {start or 0}")
    scaling = Scaling(
        speed=speed,
        start=begin,
        end=finish,
        limit=limit,
        len_scale=len_scale,
        clients=clients,
        client_skew=zipf(client_skew) if client_skew is not None else 0.0,
        spread=None if spread is None else duration("--spread", spread),
        synth_prefix=synth_prefix,
        seed=running.seed,
    )
    asked = Replay(
        file,
        reading,
        scaling,
        max_prompt=max_prompt,
        over_limit=over_limit.value,
        loop={None: "file", True: "closed", False: "open"}[loop],
    )
    run = RunOptions(
        **dataclasses.asdict(running),
        knobs=knobs,
        workload=file,
        repeat=repeat,
        skip_bad=not reading.strict,
        replay=asked,
    )
    check_options(run)

    def read() -> Any:
        status = StatusLine()
        status.show(f"reading {file}")
        try:
            workload, account = prepare(asked)
        finally:
            status.clear()
        for line in account:
            say(line)
        return workload.repeated(repeat)

    if dry_run:
        read()
        return
    from workbench.serving import serve

    raise typer.Exit(serve(run, read, showing))
