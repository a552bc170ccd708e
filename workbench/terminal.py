"""The terminal while a screen owns it.

`screen_terminal()` gives Textual the real terminal and everybody else (logging, warnings, native code writing to
descriptors 1 and 2) the log file. Textual draws on `sys.__stderr__` and asks `sys.__stdout__` for the size, so these
two become duplicates of the real descriptors.
Invariant: however the block is left (return, exception, SIGTERM, SIGHUP, a stuck shutdown) the terminal is as it was.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from engine.errors import WorkbenchError
from workbench.log import open_log

PATIENCE = 2.0
"""Seconds a screen has to end by itself after SIGTERM or SIGHUP."""

# cursor on, mouse and bracketed paste and focus reports off, kitty keys off, main screen, attributes off
_RESTORE = (
    b"\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?1049l\x1b[0m"
)


def check_terminal(env: Mapping[str, str] | None = None) -> None:
    """Raises WorkbenchError when no screen can be shown here."""
    env = os.environ if env is None else env
    for name, number in (("standard input", 0), ("standard output", 1), ("standard error", 2)):
        if not os.isatty(number):
            raise WorkbenchError(f"the live screen needs a terminal, and {name} is not one; --headless runs without it")
    if env.get("TERM", "dumb") in ("dumb", ""):
        raise WorkbenchError(
            "the live screen needs a terminal that can draw, and TERM is dumb; --headless runs without it"
        )


def quiet_libraries() -> None:
    """No progress bars and no chatter of libraries; before they are imported."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


@contextlib.contextmanager
def screen_terminal(stop: Callable[[], None] | None = None) -> Iterator[None]:
    """Route all but the screen's own output to the log. `stop` asks the screen to end (from a signal handler)."""
    quiet_libraries()
    with open_log() as log, contextlib.ExitStack() as undo:
        saved = _terminal_state()
        real_out, real_err = os.dup(1), os.dup(2)
        undo.callback(_restore, real_out, real_err, saved, sys.__stdout__, sys.__stderr__)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        encoding = sys.stderr.encoding
        sys.__stdout__ = os.fdopen(os.dup(real_out), "w", encoding=encoding, errors="replace")  # type: ignore[misc]
        sys.__stderr__ = os.fdopen(os.dup(real_err), "w", encoding=encoding, errors="replace")  # type: ignore[misc]
        undo.callback(sys.__stdout__.close)
        undo.callback(sys.__stderr__.close)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        _log_to(log, undo)
        faulthandler.enable(log)
        undo.callback(faulthandler.disable)
        undo.enter_context(_signals(stop, real_err, saved))
        yield


def _log_to(log: Any, undo: contextlib.ExitStack) -> None:
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    others = root.handlers[:]
    root.handlers = [handler]
    undo.callback(setattr, root, "handlers", others)
    logging.captureWarnings(True)
    undo.callback(logging.captureWarnings, False)


@contextlib.contextmanager
def _signals(stop: Callable[[], None] | None, real_err: int, saved: Any) -> Iterator[None]:
    """SIGINT (sent, not typed), SIGTERM, SIGHUP: ask the screen to end; end the process if it has not in PATIENCE s."""
    caught: list[int] = []

    def end_hard(signum: int) -> None:
        _reset_screen(real_err, saved)
        os._exit(128 + signum)

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if stop is None or caught:
            end_hard(signum)
        caught.append(signum)
        timer = threading.Timer(PATIENCE, end_hard, (signum,))
        timer.daemon = True
        timer.start()
        assert stop is not None
        stop()

    numbers = [
        number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
    ]
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise SystemExit(128 + caught[0])


def _terminal_state() -> Any:
    try:
        import termios

        return termios.tcgetattr(0)
    except (ImportError, OSError, termios.error):
        return None


def _reset_screen(real_err: int, saved: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(real_err, _RESTORE)
    if saved is not None:
        import termios

        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSANOW, saved)


def _restore(real_out: int, real_err: int, saved: Any, old_out: Any, old_err: Any) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os.dup2(real_out, 1)
    os.dup2(real_err, 2)
    sys.__stdout__, sys.__stderr__ = old_out, old_err  # type: ignore[misc]
    if saved is not None:
        import termios

        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSANOW, saved)
    os.close(real_out)
    os.close(real_err)
