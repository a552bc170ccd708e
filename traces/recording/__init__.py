"""Recordings `*.wbrec.jsonl`: all that a run told, written while it goes on, opened at any iteration.

`Recorder` writes one, `Recording` reads one, `Header` is its first line. `docs/recordings.md` describes the format.
"""

from traces.recording.header import Header
from traces.recording.marks import Mark, Marks
from traces.recording.reader import Recording
from traces.recording.writer import SUFFIX, Recorder

__all__ = ["SUFFIX", "Header", "Mark", "Marks", "Recorder", "Recording"]
