"""Whatever stands in a field, a reader answers with rows, with reasons, or with one clear line, never a traceback."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine.errors import WorkbenchError
from tests.traces.json_examples import COPIED, DATA, WRITTEN, lines
from traces.readers import open_trace
from traces.readers.files import read_lines
from traces.readers.registry import READERS
from traces.rows import ReadOptions

ODD: list[Any] = [
    None, True, 0, -1, 5.5, 5.0, 1e30, 10**30, "", " ", "x", "007", "NaN", [], [None], [[]], [{}], [True], ["a"], [-1],
    [1.5], {}, {"a": 1}, {"type": "text"}, "[1, 2", '{"a":', "2024-13-45T99:00:00Z",
]  # fmt: skip


def examples() -> dict[str, list[Any]]:
    """Reader to records."""
    found = {name: list(records) for name, records in WRITTEN.items()}
    for file, name in COPIED.items():
        if file.endswith(".json"):
            records = json.loads((DATA / file).read_text())
        else:
            records = [json.loads(raw) for _, raw in read_lines(DATA / file) if raw][:4]
        found.setdefault(name, []).extend(records if isinstance(records, list) else [records])
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return ([path] if path else []) + [place for key, item in inner for place in places(item, (*path, key))]


def changed(record: Any, place: tuple[Any, ...], value: Any) -> Any:
    record = copy.deepcopy(record)
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return record


@pytest.mark.parametrize("format", sorted(examples()))
@pytest.mark.parametrize("named", [True, False])
def test_odd_values(tmp_path: Path, format: str, named: bool) -> None:
    draw = random.Random(format)
    records = examples()[format]
    mutants = [changed(record, place, value) for record in records for place in places(record) for value in (*ODD, ...)]
    draw.shuffle(mutants)
    for number, mutant in enumerate(mutants):
        for key in {"id", "custom_id"} & mutant.keys():
            if isinstance(mutant[key], str) and mutant[key].strip():  # else a row is dropped as given twice
                mutant[key] += f"~{number}"
    if named:
        path = lines(tmp_path / "a.jsonl", *records, *mutants[:600], *ODD)
        for options in (ReadOptions(format=format), ReadOptions(format=format, failed="min1", short_ids="tail")):
            trace = open_trace(path, options)
            kept = sum(len(chunk) for chunk in trace.chunks())
            assert kept == trace.report.kept >= 1
            assert trace.report.read >= min(600, len(mutants))
    else:
        for mutant in mutants[:120]:
            path = lines(tmp_path / "b.jsonl", mutant)
            try:
                trace = open_trace(path)
                list(trace.chunks())
            except WorkbenchError as error:
                assert "\n" not in str(error)


def test_every_json_reader_has_examples() -> None:
    from traces.readers.json_readers import JSON_READERS

    assert {reader.name for reader in JSON_READERS} <= set(examples()) | {"recording"}
    assert {reader.name for reader in READERS} >= {reader.name for reader in JSON_READERS}
