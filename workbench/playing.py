"""A recording opened for a person: on the screen, or as the summary of its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import WorkbenchError
from workbench.say import StatusLine, say

if TYPE_CHECKING:
    from traces.recording import Recording
    from workbench.commands.options import Showing
    from workbench.model.session import Session

Progress = Callable[[str, int, int], None]


def play(path: Path, showing: Showing, *, speed: float = 1.0) -> int:
    """The exit code. speed: of the playback at its start, 1 is as recorded."""
    if showing.headless:
        return _sum_up(path, showing)
    for name, given in (("--pace", showing.pace is not None),):
        if given:
            raise WorkbenchError(
                f"{name} is for a running engine; a recording takes --speed, and + and - on the screen"
            )
    from workbench.screen import run_screen
    from workbench.terminal import check_terminal

    check_terminal()
    return run_screen(
        lambda progress: recorded_session(path, progress), fps=showing.fps, glyphs=showing.glyphs, speed=speed
    )


def recorded_session(path: Path, progress: Progress) -> Session:
    from traces.recording import Recording

    return session_of(Recording.open(path, progress))


def session_of(recording: Recording) -> Session:
    """What the screen needs of an opened recording. WorkbenchError when there is no iteration in it."""
    from engine.collector import keep_collector_quiet
    from workbench.model.recorded_host import RecordedHost
    from workbench.model.session import Session

    if recording.last_step < recording.first_step:
        raise WorkbenchError(f"{recording.name} holds no iteration: there is nothing to show")
    keep_collector_quiet()  # a jump makes ten thousands of objects at once
    return Session(
        RecordedHost(recording.info), lambda text: [], recording=recording, virtual=recording.header.clock == "virtual"
    )


def _sum_up(path: Path, showing: Showing) -> int:
    """The summary of the recorded run, as if it had ended now."""
    from traces.metrics import Metrics
    from traces.recording import Recording
    from workbench.headless import out_file, print_summary

    line = StatusLine()
    try:
        recording = Recording.open(path, line.progress)
        for note in recording.notes:
            say(f"note: {note}")
        if recording.header.clock == "virtual":
            say("note: virtual clock: times are made of iterations and tokens, not measured")
        if recording.header.first_seq:
            raise WorkbenchError(f"{path} was begun in the middle of a run: it can be played, not summed up")
        metrics = Metrics(recording.info, slo=showing.slo)
        with out_file(showing.out) as out:
            for it in recording.iterations():
                for row in metrics.add(it):
                    if out is not None:
                        out.write(row)
                if line.due:
                    line.show(f"{it.step} of {recording.last_step} iterations")
            if out is not None:
                out.commit()
    finally:
        line.clear()
    print_summary(metrics.summary(), as_json=showing.as_json, definitions=showing.definitions)
    return 0
