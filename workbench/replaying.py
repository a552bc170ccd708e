"""A trace file made ready to be replayed, with the account a person sees before anything runs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import WorkbenchError
from traces.errors import WorkloadError
from traces.loops import closed_loop, loop_told, open_loop
from traces.rows import ReadOptions
from traces.scaling import Scaling
from workbench.reading import read_trace

if TYPE_CHECKING:
    from traces.workload import Workload


RECORDING = "workbench.recording"
HEAD = 1 << 16
"""Bytes in which a recording's first line ends."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a person asked of a replay, besides the model and its knobs."""

    path: Path
    reading: ReadOptions = field(default_factory=ReadOptions)
    scaling: Scaling = field(default_factory=Scaling)
    max_prompt: int | None = None
    over_limit: str = "reject"
    loop: str = "file"
    """open: arrivals as recorded; closed: turns of a session wait for each other; file: where the rows say so."""


def prepare(replay: Replay) -> tuple[Workload, list[str]]:
    """The workload, and its account: a line each. Raises WorkbenchError."""
    scaling = replay.scaling
    window = None if scaling.start is None and scaling.end is None else (scaling.start, scaling.end)
    limit = scaling.limit if window is None else None
    try:
        workload, account, windowed = read_trace(replay.path, replay.reading, limit=limit, window=window)
    except WorkloadError as error:
        raise WorkloadError(str(replay.path), error.problems, "\n  (without --strict bad rows are left out)") from None
    if windowed:
        scaling = dataclasses.replace(scaling, start=None, end=None)
    if not workload.specs:
        raise WorkbenchError(f"{replay.path}: there is no request to send" + "".join(f"\n  {line}" for line in account))
    told: list[str] = []
    if replay.loop == "open":
        workload, told = open_loop(workload)
    elif replay.loop == "closed":
        workload, told = closed_loop(workload)
    workload, changes = scaling.apply(workload)
    failed = sum(spec.failed for spec in workload.specs)
    if failed == len(workload.specs):
        raise WorkbenchError(
            f"{replay.path}: all {failed:,} requests that are left failed at their source and are not sent; "
            "--failed min1 sends them"
        )
    return workload, [*account, *told, *changes, *loop_told(workload), *_sent(workload, failed)]


BEGINNING = f'{{"k":"hdr","fmt":"{RECORDING}"'.encode()


def is_recording(path: Path) -> bool:
    """Whether the file is a recording of a run, by its first line; packed ones too. What cannot be read is none."""
    from traces.readers.files import read_head

    try:
        head, _ = read_head(path, HEAD)
        if head.startswith(BEGINNING) and b"\n" not in head:
            return True  # cut in its first line: to be told of a recording, not of a JSON document
        first = json.loads(head.partition(b"\n")[0])
    except (WorkbenchError, ValueError):
        return False
    return isinstance(first, dict) and first.get("k") == "hdr" and first.get("fmt") == RECORDING


def _sent(workload: Workload, failed: int) -> list[str]:
    sent = [spec for spec in workload.specs if not spec.failed]
    longest = max((spec.prompt_len or 0 for spec in sent), default=0)
    output = max((spec.output_len or 0 for spec in sent), default=0)
    left = f" ({failed:,} failed at their source and are not sent)" if failed else ""
    sizes = f"; longest prompt {longest:,}" if longest else ""
    sizes += f", longest output {output:,} tokens" if longest and output else ""
    endless = sum(spec.output_len is None and spec.max_tokens is None for spec in sent)
    if endless:
        sizes += f"; {endless:,} have no output length: they go on to their own end, or to max_model_len"
    return [f"to send: {len(sent):,} requests of {len({spec.client for spec in sent}):,} clients{left}{sizes}"]
