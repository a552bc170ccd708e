"""The log file: where faults keep their traceback and where libraries talk while a screen is up.

`WORKBENCH_LOG` names another file. Invariant: writing to the log never raises; if the folder cannot be written, the
system's temporary folder takes its place.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TextIO

TOO_BIG = 4 << 20
"""Bytes after which the log starts anew, the old one kept as `.old`."""


def log_path() -> Path:
    given = os.environ.get("WORKBENCH_LOG")
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_log_dir("serving-workbench")) / "workbench.log"


def open_log() -> TextIO:
    """The log, opened for appending, one line about who writes from here on. Its `name` says where it is."""
    for path in (log_path(), Path(tempfile.gettempdir()) / f"serving-workbench-{os.getpid()}.log"):
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path.stat().st_size > TOO_BIG:
                path.replace(path.with_name(path.name + ".old"))
            file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
            file.write(f"---- {time.strftime('%Y-%m-%d %H:%M:%S')} pid {os.getpid()}: {' '.join(sys.argv)}\n")
            return file
    return open(os.devnull, "w", encoding="utf-8")


def write_fault(fault: BaseException | str) -> str:
    """Append a traceback to the log; returns the file's name for the message."""
    text = fault if isinstance(fault, str) else "".join(traceback.format_exception(fault))
    with open_log() as file:
        file.write(text.rstrip("\n") + "\n")
        return str(file.name)
