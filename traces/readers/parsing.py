"""What a reader's `parse` may use: the conversions of one file with its options, and notes to a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traces.readers.lengths import to_length
from traces.readers.times import check_unit, to_ns, zone_of
from traces.rows import ReadOptions, Report


class Parsing:
    """The `Context` of one file."""

    def __init__(self, path: Path, options: ReadOptions, report: Report) -> None:
        check_unit(options.time_unit)
        self.path = self.rows_in = path
        self.options = options
        self.line = 0
        self.state: dict[str, Any] = {}
        self.zoned = self.unzoned = False
        """Dates with and without a zone have been seen."""
        self._report = report
        self._noted: set[str] = set()

    @property
    def dated(self) -> bool:
        return self.zoned or self.unzoned

    def number_unit(self, unit: str) -> str:
        """The unit of times that are numbers, where the format says `unit`."""
        return self.options.time_unit or ("s" if unit in ("date", "") else unit)

    def time(self, value: Any, unit: str) -> int:
        ns = to_ns(value, self.number_unit(unit))
        if type(value) is str and (zone := zone_of(value)) is not None:
            self.see_zones(zone, not zone)
        return ns

    def see_zones(self, zoned: bool, unzoned: bool) -> None:
        self.zoned |= zoned
        self.unzoned |= unzoned

    def seconds(self, value: Any, unit: str) -> float:
        return to_ns(value, self.number_unit(unit)) / 1e9

    def length(self, name: str, value: Any) -> int:
        return to_length(name, value)

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._report.notes.append(text)
