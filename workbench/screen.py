"""A command with a screen: the terminal made safe, then the app, then whatever is left to say."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from engine.loop import THREAD_NAME as ENGINE_THREAD
from workbench.log import log_path
from workbench.model.session import Session
from workbench.say import error, say
from workbench.terminal import screen_terminal

Progress = Callable[[str, int, int], None]


def run_screen(
    build: Callable[[Progress], Session],
    *,
    fps: int | None,
    glyphs: str | None,
    pace: float | None = None,
    speed: float | None = None,
) -> int:
    """Show the app until it is left; returns its exit code. `build` runs behind its progress screen.

    An error of loading is raised here, once the terminal is back: under the app nobody would see it.
    """
    failed: list[BaseException] = []
    built: list[Session] = []

    def load(progress: Progress) -> Session:
        try:
            built.append(build(progress))
            return built[0]
        except BaseException as problem:
            failed.append(problem)
            raise

    end: list[Callable[[], None]] = []
    with screen_terminal(stop=lambda: end[0]() if end else None):
        from workbench.app import Options, run_app
        from workbench.glyphs import Mode

        given: dict[str, object] = {
            "pace": pace,
            "fps": fps,
            "glyphs": Mode(glyphs) if glyphs else None,
            "speed": speed,
        }
        code = run_app(load, Options(**{name: value for name, value in given.items() if value is not None}), end.append)  # type: ignore[arg-type]
    if failed:
        raise failed[0]
    if code:
        error(f"ended with a fault; what is known about it is in {log_path()}")
    recorder = built[0].recorder if built else None
    if recorder is not None and recorder.fault is None:
        say(f"recorded into {recorder.path}; workbench replay plays it")
    if any(thread.name == ENGINE_THREAD and thread.is_alive() for thread in threading.enumerate()):
        # Still inside an operation that cannot be interrupted: an orderly end of the interpreter would abort there.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
