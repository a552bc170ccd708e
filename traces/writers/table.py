"""A CSV table of everything in a workload that fits a cell, under the names of the project's own format."""

from __future__ import annotations

import csv
import io

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, seconds

COLUMNS = (
    "id", "arrival", "prompt_len", "output_len", "client", "priority", "session", "turn", "after", "delay", "deadline",
)  # fmt: skip

DEFAULTS = {"client": "default", "priority": 0, "delay": 0.0}
"""Written as an empty cell."""


class TableWriter(Writer):
    name = "csv"
    title = f"CSV table: {', '.join(COLUMNS)}"
    fields = LENGTHS | frozenset(COLUMNS)
    has_id = True

    def header(self) -> str:
        return ",".join(COLUMNS) + "\n"

    def row(self, spec: RequestSpec) -> str:
        cells = {name: value for name in COLUMNS if (value := getattr(spec, name)) != DEFAULTS.get(name)}
        cells |= {"prompt_len": self.prompt_len(spec), "output_len": self.output_len(spec)}
        cells["arrival"] = seconds(self.at_ns(spec))
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([cells.get(name, "") for name in COLUMNS])
        return line.getvalue()
