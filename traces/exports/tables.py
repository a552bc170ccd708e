"""CSV and Parquet of requests and of iterations, the same columns in both.

Requests come in the order in which they end, refused ones among them; those that have not ended come last, without an
`ended_s`. Iterations are one row a record.

CSV: a header, RFC 4180 quoting, CRLF, empty for null, true and false. Text from outside that a spreadsheet would take
for a formula (it begins with = + - @, a tab or a line end) gets a ' before it.
Parquet: typed columns, `unit` and `description` in each field's metadata, zstd, row groups of ROWS.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Sequence
from typing import IO, Any

from engine.host import EngineInfo
from engine.records import Iteration
from traces.exports.columns import ITERATIONS, REQUESTS, Column, Step, Type, Value
from traces.exports.lives import Life, Lives
from traces.exports.run import Job, run_exports
from traces.exports.target import Out

ROWS = 1 << 14
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_requests_csv(info: EngineInfo, iterations: Iterable[Iteration], out: Out, *, force: bool = False) -> None:
    run_exports(info, iterations, [Job(RequestsCsv, out)], force=force)


def write_iterations_csv(info: EngineInfo, iterations: Iterable[Iteration], out: Out, *, force: bool = False) -> None:
    run_exports(info, iterations, [Job(IterationsCsv, out)], force=force)


def write_requests_parquet(info: EngineInfo, iterations: Iterable[Iteration], out: Out, *, force: bool = False) -> None:
    run_exports(info, iterations, [Job(RequestsParquet, out, binary=True)], force=force)


def write_iterations_parquet(
    info: EngineInfo, iterations: Iterable[Iteration], out: Out, *, force: bool = False
) -> None:
    run_exports(info, iterations, [Job(IterationsParquet, out, binary=True)], force=force)


class CsvTable:
    """Writes rows of values. `file` takes text and must not translate line ends."""

    def __init__(self, columns: Sequence[Column[Any]], file: IO[str]) -> None:
        self._columns = columns
        self._rows = csv.writer(file, lineterminator="\r\n")
        self._rows.writerow([column.name for column in columns])

    def add(self, row: Any) -> None:
        self._rows.writerow([_cell(column.get(row)) for column in self._columns])

    def close(self) -> None:
        """Nothing is left to write."""


def _cell(value: Value) -> Value:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() if value.startswith(FORMULA):
            return "'" + value
        case _:
            return value


class ParquetTable:
    """Writes rows of values. `file` takes bytes."""

    def __init__(self, columns: Sequence[Column[Any]], file: IO[bytes], info: EngineInfo) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {Type.INT: pa.int64(), Type.FLOAT: pa.float64(), Type.TEXT: pa.string(), Type.BOOL: pa.bool_()}
        self._columns = columns
        self._schema = pa.schema(
            [pa.field(c.name, types[c.type], metadata={"unit": c.unit, "description": c.doc}) for c in columns],
            metadata={"model": info.model, "device": info.device, "dtype": info.dtype},
        )
        self._values: list[list[Value]] = [[] for _ in columns]
        self._file = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._batch = pa.record_batch

    def add(self, row: Any) -> None:
        for column, values in zip(self._columns, self._values, strict=True):
            value = column.get(row)
            values.append(_whole(value) if isinstance(value, str) else value)
        if len(self._values[0]) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._values[0]:
            self._file.write_batch(self._batch(self._values, schema=self._schema))
            self._values = [[] for _ in self._columns]

    def close(self) -> None:
        self._flush()
        self._file.close()


def _whole(text: str) -> str:
    """Half a surrogate pair cannot be UTF-8: as a backslash escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class _Table:
    table: CsvTable | ParquetTable

    def let_go(self) -> None:
        """See `Holding`: a Parquet writer would end its file when it is collected, long after that was closed."""
        with contextlib.suppress(OSError, ValueError):  # the failure that brought us here may come again
            self.table.close()


class _Requests(_Table):
    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        for life in lives.ended:
            self.table.add(life)

    def finish(self, lives: Lives) -> None:
        life: Life
        for life in lives.rest():
            self.table.add(life)
        self.table.close()


class _Iterations(_Table):
    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        self.table.add(Step(it, lives))

    def finish(self, lives: Lives) -> None:
        self.table.close()


class RequestsCsv(_Requests):
    def __init__(self, info: EngineInfo, file: IO[str]) -> None:
        self.table = CsvTable(REQUESTS, file)


class RequestsParquet(_Requests):
    def __init__(self, info: EngineInfo, file: IO[bytes]) -> None:
        self.table = ParquetTable(REQUESTS, file, info)


class IterationsCsv(_Iterations):
    def __init__(self, info: EngineInfo, file: IO[str]) -> None:
        self.table = CsvTable(ITERATIONS, file)


class IterationsParquet(_Iterations):
    def __init__(self, info: EngineInfo, file: IO[bytes]) -> None:
        self.table = ParquetTable(ITERATIONS, file, info)
