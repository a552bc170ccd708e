"""Whole blocks at once give the rows that one line after the other gives, on files as dirty as they get."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.readers.help import AZURE, rows_of, write
from traces.readers import table_blocks
from traces.readers.columns import Lines, to_lengths, to_times


class NoneClean(Lines):
    """Lines of which none can be read at once."""

    def __init__(self, block: bytes, delimiter: str, width: int) -> None:
        super().__init__(block, delimiter, width)
        self.clean[:] = False


TIMES = st.one_of(
    st.sampled_from(
        ["", " ", "0", "5", "5.0", "4.314579", "1e3", "-1", "+5", "NaN", "inf", "x", "12.", ".5", "1.1234567891",
         "99999999999", "123456789012345678", "1.2.3", "2024-05-10 00:00:00", "2024-05-10 00:00:00+00:00",
         "2024-05-10T00:00:00.269Z", "2023-11-16 18:15:46.6805900", "2024-02-30 00:00:00", "2024-05-10 24:00:00",
         "2024-05-10 00:00:60", "2024-05-10 00:00:00.", "2024-05-10 00:00:00.1234567891", "0001-01-01 00:00:00",
         "2024-05-10 00:00:00-05:30", "2024-05-10 00:00:00+0000", "2024-05-10", "2024-05-10X00:00:00",
         "1850-01-01 00:00:00", "2150-01-01 00:00:00", "2024-00-10 00:00:00", "2024-5-10 00:00:00 "]
    ),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.isoformat(" ")),
)  # fmt: skip
COUNTS = st.one_of(
    st.sampled_from(
        ["", "0", "00", "7", "5.0", "5.5", "5.", "0.0", "-1", "NaN", "1e2", " 8", "9 ", "16777216", "16777217", "x",
         "1234567890123456", "0x10", "1_0", "5.00", "5.05"]
    ),
    st.integers(0, 20_000).map(str),
)  # fmt: skip
LINES = st.one_of(
    st.tuples(TIMES, COUNTS, COUNTS).map(",".join),
    st.sampled_from(
        ["", "   ", "\t", "1,2", "1,2,3,4", '"5",6,7', '5,"6",7', '"5,6,7', ",,", "5,6,7\r", "5\u00e9,6,7"]
    ),
)


def both(path: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    at_once = rows_of(path, **options)
    with monkeypatch.context() as patch:
        patch.setattr(table_blocks, "Lines", NoneClean)
        one_by_one = rows_of(path, **options)
    assert at_once == one_by_one


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(LINES, max_size=30),
    end=st.sampled_from([b"\n", b"\r\n"]),
    unit=st.sampled_from([None, "ms", "ns"]),
    failed=st.sampled_from(["keep", "drop", "min1"]),
    final=st.booleans(),
)
def test_dirty_files(
    lines: list[str],
    end: bytes,
    unit: str | None,
    failed: str,
    final: bool,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "dirty.csv", AZURE, *lines, end=end)
    if not final:
        path.write_bytes(path.read_bytes()[: -len(end)])
    both(path, monkeypatch, time_unit=unit, failed=failed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(["5", "45.5", "x"]), st.sampled_from(["", " s1", "s2 ", '"s,3"', "é"]), COUNTS, COUNTS
        ).map(",".join),
        max_size=20,
    ),
    failed=st.sampled_from(["keep", "drop", "min1"]),
    client=st.sampled_from([None, "session"]),
)
def test_columns_of_text(
    lines: list[str],
    failed: str,
    client: str | None,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = "Timestamp,Session ID,Request tokens,Response tokens"
    path = write(tmp_path_factory.getbasetemp() / "burst.csv", header, *lines)
    both(path, monkeypatch, failed=failed, client_from=client)


def test_rows_of_several_blocks_keep_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    at = datetime(2024, 5, 10, tzinfo=UTC)
    lines = [AZURE]
    for _ in range(60_000):
        at += timedelta(microseconds=draw.randrange(10**6))
        bad = draw.random() < 0.001
        lines.append(f"{at.isoformat(' ')},{draw.randrange(5000)},{'x' if bad else draw.randrange(500)}")
    path = write(tmp_path / "a.csv", *lines)
    assert path.stat().st_size > 2 << 20
    both(path, monkeypatch)
    rows, report = rows_of(path)
    assert report.read == 60_000 and 20 < report.dropped["bad GeneratedTokens"] < 120
    assert all(int(lines[line - 1].split(",")[1]) == prompt for line, _, prompt, *_ in rows)


def test_a_block_is_converted_as_its_cells_say() -> None:
    block = b"5,7\r\n12.5,5.0\n2024-05-10 00:00:00Z,x\n"
    lines = Lines(block, ",", 2)
    assert lines.clean.all()
    every = np.arange(3)
    times, good = to_times(lines.bytes, *lines.cells(every, 0), "s")
    assert times.tolist() == [5 * 10**9, 12_500_000_000, 1_715_299_200 * 10**9] and good.all()
    lengths, good = to_lengths(lines.bytes, *lines.cells(every, 1))
    assert lengths[:2].tolist() == [7, 5] and good.tolist() == [True, True, False]
