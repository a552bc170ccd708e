"""`workbench run` with a screen: the terminal made safe, then the app."""

from __future__ import annotations

from collections.abc import Callable

from traces.workload import Workload
from workbench.model.session import Session
from workbench.session import RunOptions, build_session
from workbench.terminal import screen_terminal

Progress = Callable[[str, int, int], None]


def run_screen(options: RunOptions, workload: Workload | None, *, pace: float | None, fps: float | None) -> int:
    """Show the app until it is left; returns its exit code. Loading happens behind its progress screen."""

    def load(progress: Progress) -> Session:
        return build_session(options, workload, progress)

    with screen_terminal():
        from workbench.app import run_app

        return run_app(load, pace=pace, fps=fps)
