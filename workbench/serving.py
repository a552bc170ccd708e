"""From options to an exit code, with a screen or without: what `run` and `replay` have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.errors import WorkbenchError
from workbench.say import StatusLine, say
from workbench.session import RunOptions, build_session

if TYPE_CHECKING:
    from traces.workload import Workload
    from workbench.commands.options import Showing


def serve(options: RunOptions, read: Callable[[], Workload | None], showing: Showing) -> int:
    """read: the workload, or WorkbenchError; called before anything slow is done."""
    if showing.headless:
        return _headless(options, read, showing)
    from workbench.terminal import check_terminal

    workload = read()
    check_terminal()
    from workbench.screen import run_screen

    return run_screen(
        lambda progress: build_session(options, workload, progress),
        pace=showing.pace,
        fps=showing.fps,
        glyphs=showing.glyphs,
    )


def _headless(options: RunOptions, read: Callable[[], Workload | None], showing: Showing) -> int:
    from workbench.headless import out_file, run_headless
    from workbench.session import load, recorder
    from workbench.terminal import quiet_libraries

    quiet_libraries()
    out = showing.out
    if out is not None and options.workload is not None and out.exists() and out.samefile(options.workload):
        raise WorkbenchError(f"--out: {out} is the workload itself; give another file")
    workload = read()
    with out_file(out) as file:
        line = StatusLine()
        try:
            loaded = load(options, workload, line.progress)
        finally:
            line.clear()
        for note in loaded.notes:
            say(f"note: {note}")
        return run_headless(
            loaded.engine,
            loaded.info,
            loaded.requests,
            as_json=showing.as_json,
            out=file,
            slo=showing.slo,
            definitions=showing.definitions,
            recorder=recorder(options, loaded),
        )
