"""Where a file may be put: beside its place and then renamed, or, where there is nothing to rename, directly.

A link is followed: what it leads to is replaced, never the link. `/dev/stdout` leads to a file when the shell redirects
it, and must neither be replaced itself (it is everybody's) nor be opened anew (what else is printed would lie over it).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

STREAMS = {"/dev/stdout": 1, "/dev/fd/1": 1, "/proc/self/fd/1": 1, "/dev/stderr": 2, "/dev/fd/2": 2}


def is_direct(path: Path) -> bool:
    """A pipe, a device, or one of the process's own streams."""
    if str(path) in STREAMS:
        return True
    return path.exists() and (not path.is_file() or (path.is_symlink() and path.absolute().parts[1] in ("dev", "proc")))


def open_direct(path: Path) -> IO[bytes]:
    stream = STREAMS.get(str(path))
    if stream is None:
        return path.open("wb")
    sys.stdout.flush()
    return os.fdopen(os.dup(stream), "wb")


def beside(path: Path) -> Path:
    """The file itself, at the end of all links."""
    return path.resolve() if path.is_symlink() else path
