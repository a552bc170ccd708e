"""Bookmarks of a recording, kept in a small file beside it: the recording itself is sealed.

One JSON object a line: the step and a note. A file that cannot be read or written is told and otherwise ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from engine.errors import WorkbenchError

SUFFIX = ".marks"


def read_bookmarks(recording: Path) -> dict[int, str] | None:
    """None: there is no such file. WorkbenchError when it is not one of ours."""
    path = _beside(recording)
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"{path} cannot be read: {error}") from None
    try:
        rows = [json.loads(line) for line in lines if line.strip()]
        return {int(row["step"]): str(row["text"]) for row in rows}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise WorkbenchError(f"{path} holds no bookmarks; remove it or name it otherwise") from None


def write_bookmarks(recording: Path, bookmarks: Mapping[int, str]) -> None:
    """WorkbenchError when it cannot be written; the old file is then as it was."""
    path = _beside(recording)
    part = path.with_name(f".{path.name}.part")
    rows = [json.dumps({"step": step, "text": text}) + "\n" for step, text in sorted(bookmarks.items())]
    try:
        part.write_text("".join(rows), "utf-8")
        part.replace(path)
    except OSError as error:
        raise WorkbenchError(f"{path} cannot be written: {error.strerror or error}") from None


def _beside(recording: Path) -> Path:
    return recording.with_name(recording.name + SUFFIX)
