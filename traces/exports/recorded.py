"""Exports of a recording, also of one that begins in the middle of a run, or is being written at this moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from engine.host import EngineInfo
from engine.records import Iteration
from engine.view import EngineView
from traces.exports.lives import Lives
from traces.exports.run import Job, run_exports
from traces.recording import Recording


def export_recording(
    recording: Recording,
    jobs: Sequence[Job],
    *,
    force: bool = False,
    watch: Callable[[Iteration], None] | None = None,
) -> Lives:
    """As `run_exports`. What turns out to be wrong with the recording is in its `notes` afterwards.

    `strangers` of what is returned: requests that were there before it began, and are left out.
    """
    info = recording.info
    if recording.first_seq and recording.num_records:
        view, _ = recording.before(recording.first_seq)
        info = info_at(info, view)
    return run_exports(info, recording.iterations(), jobs, force=force, watch=watch)


def info_at(info: EngineInfo, view: EngineView) -> EngineInfo:
    """`info` with the knobs and the pool of `view`, the state before the first record."""
    knobs = {name: value for name, value in view.knobs.items() if hasattr(info.config, name)}
    config = dataclasses.replace(info.config, **knobs, allocated_blocks=view.num_blocks)  # type: ignore[arg-type]
    return dataclasses.replace(info, config=config)
