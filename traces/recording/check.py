"""Looking at every byte of a recording: does it say the same everywhere, and is it what was written?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from engine.view import EngineView
from traces.errors import RecordingError
from traces.recording.reader import Recording

Progress = Callable[[str, int, int], None]
_COMPARED = (
    "num_blocks", "block_size", "knobs", "knob_version", "running", "swapped", "batch", "waiting_head", "num_waiting",
    "owners", "refs", "cached", "free_blocks", "off_blocks", "free_cpu_blocks", "planned", "paused", "pace", "storm",
    "preemptions", "rejected", "finished",
)  # fmt: skip


def check(recording: Recording, progress: Progress | None = None) -> list[str]:
    """What is wrong, one line each; empty when all of it can be read, agrees with itself and with its check sum."""
    tell = progress or (lambda stage, done, total: None)
    problems: list[str] = []
    view: EngineView | None = None
    seen = 0
    for index, group in enumerate(recording.groups):
        if not group.records:  # what was there before a recording that begins in the middle of a run
            continue
        try:
            begun, _ = recording.before_group(index)
        except RecordingError as problem:
            problems.append(str(problem))
            view = None
            continue
        if view is not None:
            problems += differences(view, begun, group.seq)
        records = recording.records_of(index)
        for it in records:
            begun.apply(it)
        seen += len(records)
        view = begun if len(records) == group.records else None
        tell("checking records", seen, recording.num_records)
    problems += [note for note in recording.notes if note not in problems]
    if seen != recording.num_records:
        problems.append(f"{seen} of {recording.num_records} records can be read")
    if recording.closed:
        problems += _check_sum(recording, tell)
    return problems


def differences(folded: EngineView, keyframe: EngineView, seq: int) -> list[str]:
    """Where a keyframe says something else than the records before it."""
    found = [name for name in _COMPARED if getattr(folded, name) != getattr(keyframe, name)]
    if list(folded.queued) != list(keyframe.queued):
        found.append("the queue")
    for id in keyframe.running:
        a, b = folded.requests.get(id), keyframe.requests.get(id)
        if a is None or b is None or (a.computed, a.blocks, len(a.token_ids)) != (
            b.computed, b.blocks, len(b.token_ids),
        ):  # fmt: skip
            found.append(f"request {id}")
    return [f"the keyframe before record {seq} differs from the records before it: {', '.join(found)}"] if found else []


def _check_sum(recording: Recording, tell: Progress) -> list[str]:
    told, size = recording.end.get("sha256"), recording.end.get("bytes")
    if not isinstance(size, int) or not 0 <= size <= recording.size:
        return ["its end does not say how many bytes come before it"]
    sha = hashlib.sha256()
    for at in range(0, size, 1 << 20):
        sha.update(recording.plain(at, min(size, at + (1 << 20))))
        tell("adding up", at, size)
    return [] if sha.hexdigest() == told else ["the check sum of its bytes is not the one it was closed with"]
