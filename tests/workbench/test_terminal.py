"""The terminal while a screen owns it, in a real pseudo-terminal (R-36)."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from engine.errors import WorkbenchError
from workbench.terminal import check_terminal

SCRIPT = """
import logging, os, sys, termios, time, tty, warnings
from workbench.terminal import screen_terminal
before = termios.tcgetattr(0)
print('before', flush=True)
with screen_terminal():
    tty.setraw(0)
    sys.__stderr__.write('SCREEN'); sys.__stderr__.flush()
    os.write(2, b'native noise')
    os.write(1, b'native output')
    print('printed'); print('complained', file=sys.stderr)
    logging.getLogger('lib').warning('logged')
    warnings.warn('warned')
    size = os.get_terminal_size(sys.__stdout__.fileno())
    sys.__stderr__.write(f'size {size.columns}'); sys.__stderr__.flush()
    if len(sys.argv) > 1:
        time.sleep(30)
print('after', termios.tcgetattr(0) == before, flush=True)
"""


def in_terminal(log: Path, *options: str, send: int | None = None) -> tuple[str, int]:
    """What a terminal shows of the script, and its exit status."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ["WORKBENCH_LOG"] = str(log)
        os.execv(sys.executable, [sys.executable, "-c", SCRIPT, *options])
    shown = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if send is not None and b"size" in shown:
            os.kill(pid, send)
            send = None
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(master, 4096)
        except OSError:  # Linux: the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(master)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_only_the_screen_reaches_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    shown, code = in_terminal(log)
    assert code == 0
    assert "".join(shown.split()) == "beforeSCREENsize80afterTrue" or "size 0" in shown
    text = log.read_text()
    for line in ("native noise", "native output", "printed", "complained", "WARNING lib: logged", "warned"):
        assert line in text, line


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_restore_the_terminal(tmp_path: Path, signum: int) -> None:
    shown, code = in_terminal(tmp_path / "log.txt", "wait", send=signum)
    assert code == 128 + signum
    assert "\x1b[?1049l" in shown and "\x1b[?25h" in shown


def test_where_no_screen_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda number: True)
    check_terminal({"TERM": "xterm"})
    for env in ({}, {"TERM": "dumb"}):
        with pytest.raises(WorkbenchError, match="--headless"):
            check_terminal(env)
    monkeypatch.setattr(os, "isatty", lambda number: number != 2)
    with pytest.raises(WorkbenchError, match="standard error is not one"):
        check_terminal({"TERM": "xterm"})
