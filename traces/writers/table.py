"""A CSV table of everything in a workload that fits a cell, under the names of the project's own format."""

from __future__ import annotations

import csv
import io

from traces.workload import RequestSpec
from traces.writers.base import LENGTHS, Writer, seconds

COLUMNS = (
    "id", "arrival", "prompt_len", "output_len", "client", "priority", "session", "turn", "after", "delay", "deadline",
)  # fmt: skip


class TableWriter(Writer):
    name = "csv"
    title = f"CSV table: {', '.join(COLUMNS)}"
    fields = LENGTHS | frozenset(COLUMNS)
    has_id = True

    def header(self) -> str:
        return ",".join(COLUMNS) + "\n"

    def row(self, spec: RequestSpec) -> str:
        cells = {name: getattr(spec, name) for name in COLUMNS}
        cells |= {"prompt_len": self.prompt_len(spec), "output_len": self.output_len(spec)}
        cells["arrival"] = seconds(self.at_ns(spec))
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(["" if cell is None else cell for cell in cells.values()])
        return line.getvalue()
