"""The broken files against the readers: each row ends as the rules for malformed input say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import WorkbenchError
from traces.readers.loading import read_workload
from traces.rows import ReadOptions
from traces.synthetic import write_preset
from traces.synthetic.dirty import EXPECTED, HEADLESS_COLUMNS, LONGEST

HEADLESS = ReadOptions(columns=HEADLESS_COLUMNS)
FORMATS = {"dirty.csv": "burstgpt", "dirty.jsonl": "mooncake", "headless.csv": "azure"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert write_preset("dirty", tmp_path, seed=1) == tuple(tmp_path / name for name in EXPECTED)
    return tmp_path


def options(name: str) -> ReadOptions:
    return HEADLESS if name == "headless.csv" else ReadOptions()


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("seed", range(5))
def test_the_account_is_as_told(tmp_path: Path, name: str, seed: int) -> None:
    write_preset("dirty", tmp_path, seed=seed)
    workload = read_workload(tmp_path / name, options(name))
    report, expected = workload.report, EXPECTED[name]
    assert report is not None and workload.origin is not None
    assert workload.origin.format == FORMATS[name]
    dropped = sum(report.dropped.values())
    assert (report.read, report.kept, report.failed, dropped, report.inversions) == expected
    assert not report.clamped


def test_names_of_files(tmp_path: Path) -> None:
    assert write_preset("dirty", tmp_path / "x.csv", len_scale=1.0) == (tmp_path / "x.csv",)
    assert b"Session ID" in (tmp_path / "x.csv").read_bytes()
    assert write_preset("dirty", tmp_path / "y") == (tmp_path / "y",)
    assert b"hash_ids" in (tmp_path / "y").read_bytes()


def test_what_is_in_them(folder: Path) -> None:
    """Row numbers of the table of malformed inputs, found in the bytes."""
    csv, jsonl, headless = ((folder / name).read_bytes() for name in EXPECTED)
    for raw in (csv, jsonl):
        assert raw.startswith(b"\xef\xbb\xbf")  # 15
        assert raw.count(b"\n") == raw.count(b"\r\n") > 30  # 14
        assert b"\r\n\r\n" in raw and not raw.endswith(b"\n")  # 16
        assert "\u2028".encode() in raw and b"NaN" in raw and b"-5" in raw and b"12.5" in raw  # 18, 11
        assert str(LONGEST).encode() in raw  # 12
    header, first = csv.decode("utf-8-sig").splitlines()[:2]
    assert header.split(",")[1:3] == ["Session ID", "Elapsed time"] and len(first.split(",")) == 8  # 1
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(jsonl.splitlines()[-1])  # the cut line
    assert headless[:4] == b"2024"  # 13
    assert b":06+00:00," in headless and b"." in headless.splitlines()[0]  # 4


def test_readers_name_the_rows(folder: Path) -> None:
    said = read_workload(folder / "dirty.jsonl").skipped
    assert len(said) == 6
    for text, line in zip(("-5", "nan", "12.5", "2 ids of 512", "1 ids of 512", "not JSON"), said, strict=True):
        assert text in line
    specs = read_workload(folder / "dirty.jsonl").specs
    assert sum(spec.failed for spec in specs) == 2
    assert (431, 27) in {(spec.prompt_len, spec.output_len) for spec in specs}
    sessions = {spec.session for spec in read_workload(folder / "dirty.csv").specs}
    assert sessions == {None, "s-0", "s-1", "s-2", "s-3", "s-4", "s\u20281"}


def test_without_names_of_columns_the_headless_file_is_refused(folder: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"has no header.*--columns"):
        read_workload(folder / "headless.csv")


def test_dates_with_and_without_fraction_are_in_one_order(folder: Path) -> None:
    arrivals = [spec.arrival for spec in read_workload(folder / "headless.csv", HEADLESS).specs]
    assert arrivals == sorted(arrivals)
    assert all(abs(arrival - 2 * number) < 1 for number, arrival in enumerate(arrivals))
