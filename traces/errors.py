"""Mistakes in a workload file, said so that they can be mended."""

from __future__ import annotations

from engine.errors import WorkbenchError

SHOWN = 10
"""How many bad rows a message lists."""


class WorkloadError(WorkbenchError):
    """A workload that cannot be used. `problems` names every bad row found: `FILE:LINE: field 'x': what is wrong`."""

    def __init__(self, name: str, problems: list[str], hint: str = "") -> None:
        self.problems = problems
        if len(problems) == 1:
            text = problems[0]
        else:
            lines = [f"{name} has {len(problems)} bad rows; nothing was run", *problems[:SHOWN]]
            if len(problems) > SHOWN:
                lines.append(f"... and {len(problems) - SHOWN} more")
            text = "\n  ".join(lines)
        super().__init__(f"{text}{hint}")


class RecordingError(WorkbenchError):
    """A recording that cannot be opened, read or written."""
