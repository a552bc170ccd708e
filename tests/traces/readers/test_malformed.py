"""Malformed and surprising CSV and native files, one test a kind, by the numbers of the reference list. Kinds of JSON
formats alone (23, 25, 27, 30) are in the tests of those; 5 and 19 also in `test_times` and `test_jsontext`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from engine.errors import WorkbenchError
from tests.traces.readers.help import AZURE, DATA, refusal, rows_of, write
from traces.errors import WorkloadError
from traces.readers import READERS, open_trace, read_workload
from traces.rows import EXAMPLES, ReadOptions

D = "2024-05-10 00:00:0"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens"


def lengths(path: Path, **options: object) -> list[tuple[int, int]]:
    return [(prompt, output) for _, _, prompt, output, *_ in rows_of(path, **options)[0]]


@pytest.mark.parametrize(
    "columns", ["Response tokens,Model,Timestamp,Extra,Request tokens", "Timestamp,Request tokens,Response tokens"]
)
def test_kind_01_columns_in_any_order(tmp_path: Path, columns: str) -> None:
    names = columns.split(",")
    values = {"Timestamp": "5", "Request tokens": "10", "Response tokens": "3", "Model": "GPT-4", "Extra": "9"}
    path = write(tmp_path / "a", columns, ",".join(values[name] for name in names))
    rows, report = rows_of(path)
    assert rows[0][1:4] == (5 * 10**9, 10, 3)
    assert report.notes == (["columns that are not used: Extra"] if "Extra" in names else [])


def test_kind_02_azure_2025_has_a_column_before_the_lengths() -> None:
    assert lengths(DATA / "azure2025_multimodal_10rows.csv")[0] == (770, 491)  # by position it would be (0, 770)


def test_kind_03_first_row_bad(tmp_path: Path) -> None:
    path = write(tmp_path / "a", AZURE, "rubbish,1,1", f"{D}5,10,2", f"{D}7,10,2")
    workload = read_workload(path)
    assert [spec.arrival for spec in workload.specs] == [0.0, 2.0]
    assert workload.report is not None and workload.report.dropped == {"time that cannot be read": 1}


def test_kind_04_dates_with_any_fraction_and_zone(tmp_path: Path) -> None:
    dates = [
        f"{D}0+00:00", f"{D}0.5+00:00", "2024-05-10T00:00:01Z", "2024-05-10 02:00:01.25+02:00",
        "2024-05-10 00:00:01.123456789Z",
    ]  # fmt: skip
    path = write(tmp_path / "a", AZURE, *(f"{date},1,1" for date in dates))
    rows, report = rows_of(path)
    base = rows[0][1]
    assert [t - base for _, t, *_ in rows] == [0, 500_000_000, 10**9, 1_250_000_000, 1_123_456_789]
    assert not report.notes
    mixed, report = rows_of(write(tmp_path / "b", AZURE, f"{D}0+00:00,1,1", f"{D}1,1,1"))
    assert mixed[1][1] - mixed[0][1] == 10**9 and "some dates say their zone" in report.notes[0]


def test_kind_05_no_digit_of_a_fraction_is_lost(tmp_path: Path) -> None:
    path = write(tmp_path / "a", AZURE, *(f"{D}0.{ms:03},1,1" for ms in (1, 2, 9, 11)))
    assert [t % 10**9 // 10**6 for _, t, *_ in rows_of(path)[0]] == [1, 2, 9, 11]


def test_kind_06_unsorted_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a", VIDUR, "5,1,1", "3,2,1", "9,3,1", "3,4,1", "1,5,1")
    workload = read_workload(path)
    assert [(spec.arrival, spec.prompt_len) for spec in workload.specs] == [(0, 5), (2, 2), (2, 4), (4, 1), (8, 3)]
    assert [spec.where.rpartition(":")[2] for spec in workload.specs] == ["6", "3", "5", "2", "4"]
    assert workload.report is not None and workload.report.inversions == 3
    assert any("not in order of arrival (3 steps back)" in note for note in workload.notes)


def test_kind_07_unit_mix_up_is_shown_and_can_be_mended(tmp_path: Path) -> None:
    slow = write(tmp_path / "slow", VIDUR, *(f"{row * 523_890},1,1" for row in range(10)))
    assert any(
        "2.12e-06 requests/s over 54d13h is unusual: are the times in s?" in n for n in read_workload(slow).notes
    )
    right = read_workload(slow, ReadOptions(time_unit="ms"))
    assert right.specs[-1].arrival == 4715.01 and not any("unusual" in note for note in right.notes)
    fast = write(tmp_path / "fast", VIDUR, *(f"0.{row:06},1,1" for row in range(100)))
    assert any("requests/s over" in note and "unusual" in note for note in read_workload(fast).notes)
    with pytest.raises(WorkbenchError, match="--time-unit"):
        open_trace(slow, ReadOptions(time_unit="minutes"))


def test_kind_08_not_starting_at_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "a", VIDUR, "19440110.0,1,1", "19440112.5,1,1")
    workload = read_workload(path)
    assert [spec.arrival for spec in workload.specs] == [0.0, 2.5]
    assert workload.origin is not None
    assert workload.origin.line == "time unit: s (vidur), span 2.5s, 0.8 requests/s, rebased from 19440110"


def test_kind_09_equal_stamps_keep_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a", VIDUR, *(f"{row // 40},{row + 1},1" for row in range(400)))
    assert [spec.prompt_len for spec in read_workload(path).specs] == list(range(1, 401))


def test_kind_10_zero_lengths_failed_at_their_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a", VIDUR, "0,5,5", "1,5,0", "2,0,0", "3,0,5")
    rows, report = rows_of(path)
    assert [failed for *_, failed, _ in rows] == [False, True, True, True] and report.failed == 3
    assert lengths(path, failed="min1") == [(5, 5), (5, 1), (1, 1), (1, 5)]
    assert rows_of(path, failed="min1")[1].clamped == {"failed at its source, sent with 1 token": 3}
    assert lengths(path, failed="drop") == [(5, 5)]
    assert rows_of(path, failed="drop")[1].dropped == {"failed at its source": 3}
    assert len(read_workload(path, ReadOptions(failed="drop", strict=True)).specs) == 1  # as asked: no bad rows
    only = write(tmp_path / "b", VIDUR, "0,5,0")
    assert "holds no good rows: 1 failed at its source" in refusal(only, failed="drop")
    assert "holds no rows to send: 1 failed at their source (--failed min1 sends them)" in refusal(only)


def test_kind_11_numbers_that_are_no_lengths(tmp_path: Path) -> None:
    bad = ["-5", "NaN", "Infinity", "5.5", "", "x", "1e400", "99999999999"]
    path = write(tmp_path / "a", VIDUR, "0,5.0,5", *(f"1,{value},5" for value in bad), *(f"1,5,{v}" for v in bad))
    rows, report = rows_of(path)
    assert [row[2:4] for row in rows] == [(5, 5)]
    assert report.dropped == {
        "bad num_prefill_tokens": 7, "no num_prefill_tokens": 1, "bad num_decode_tokens": 7, "no num_decode_tokens": 1,
    }  # fmt: skip
    assert report.examples["bad num_prefill_tokens"][0] == f"{path}:3: num_prefill_tokens -5 is negative"
    assert len(report.examples["bad num_prefill_tokens"]) == EXAMPLES


def test_kind_12_lengths_above_any_context_stay_for_the_run_to_judge(tmp_path: Path) -> None:
    assert lengths(write(tmp_path / "a", VIDUR, "0,191378,2000")) == [(191378, 2000)]


def test_kind_13_header_missing(tmp_path: Path) -> None:
    lines = (DATA / "azure2023_conv_2000.csv").read_bytes().split(b"\r\n")[1:]
    path = write(tmp_path / "tail.csv", *lines)
    said = refusal(path)
    assert (
        "has no header: its first line is data (2023-11-16 18:15:46.6805900, 374, 44)" in said and "--columns" in said
    )
    named = rows_of(path, columns=tuple(AZURE.split(",")))
    assert len(named[0]) == 2000 and named[0][0][0] == 1 and named[0][0][2:4] == (374, 44)
    assert "columns of 3" not in refusal(path, columns=("a", "b"))


def test_kind_13_names_for_a_file_with_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "when,in,out", "0,5,6")
    rows, report = rows_of(path, columns=tuple(VIDUR.split(",")))
    assert [row[2:4] for row in rows] == [(5, 6)] and "a header of its own" in report.notes[0]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_kinds_14_15_16_17_line_ends_marks_blank_lines_and_packing(
    tmp_path: Path, end: bytes, mark: bytes, pack: type[bytes]
) -> None:
    lines = ["", VIDUR, "0,5,6", "", "   ", "1.5,7,8"]
    text = mark + end.join(line.encode() for line in lines)
    for tail in (b"", end, end + end):
        path = tmp_path / "trace.parquet"
        path.write_bytes(pack(text + tail))
        rows, report = rows_of(path)
        assert [row[:4] for row in rows] == [(3, 0, 5, 6), (6, 1_500_000_000, 7, 8)]
        assert report.read == 2


def test_kind_15_utf_16_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(f"{VIDUR}\n0,1,1\n".encode("utf-16"))
    assert "is UTF-16 text; save it as UTF-8" in refusal(path)


@pytest.mark.parametrize("last", ["2,7", "2,", "2", '2,"7'])
def test_kind_16_a_cut_last_line_is_one_dropped_row(tmp_path: Path, last: str) -> None:
    path = tmp_path / "a"
    path.write_text(f"{VIDUR}\n0,5,6\n1,5,6\n{last}")
    rows, report = rows_of(path)
    assert len(rows) == 2 and sum(report.dropped.values()) == 1
    assert next(iter(report.examples.values()))[0].startswith(f"{path}:4: ")


def test_kind_16_a_cut_last_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text('{"prompt_len": 1}\n{"prompt_len": 2}\n{"prompt_le')
    rows, report = rows_of(path)
    assert len(rows) == 2 and report.dropped == {"not JSON": 1}
    assert "column" in report.examples["not JSON"][0]


def test_kind_18_line_separators_in_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a", json.dumps({"prompt": "a\u2028b\u2029c\x85d"}, ensure_ascii=False))
    (spec,) = read_workload(path).specs
    assert spec.prompt == "a\u2028b\u2029c\x85d"


def test_kind_19_prompts_of_digits(tmp_path: Path) -> None:
    assert read_workload(write(tmp_path / "a", '{"prompt": "007"}')).specs[0].prompt == "007"


NATIVE = ['{"id": "a", "prompt_len": 3}', '{"id": "b", "prompt_len": 4}']


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv"])
@pytest.mark.parametrize(
    "text",
    [
        "\n".join(NATIVE),
        "[" + ",".join(NATIVE) + "]",
        "[\n" + ",\n".join(NATIVE) + "\n]\n",
        json.dumps([json.loads(row) for row in NATIVE], indent=2),
        "\n".join(json.dumps(json.loads(row), indent=2) for row in NATIVE),
    ],
)
def test_kind_20_containers_are_found_by_content(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    workload = read_workload(path)
    assert [(spec.id, spec.prompt_len) for spec in workload.specs] == [("a", 3), ("b", 4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("\ufeff", "is empty"),
        (VIDUR + "\n", "holds no requests"),
        ("[]", "is an empty JSON array: it holds no requests"),
        ("{}", "JSON lines without any field"),
        ("hello world\n", "text that is neither CSV nor JSON"),
        ("a,b\n1,2\n", "is CSV with the columns a, b: no format that is read here. Read are: azure, burstgpt"),
        ('{"foo": 1, "bar": 2}\n', "JSON lines with the fields foo, bar"),
        ('[{"foo": 1}]', "a JSON array with the fields foo"),
        ("1\n2\n3\n", "is"),
        ("time,time,num_prefill_tokens,num_decode_tokens\n1,1,1,1\n", "the column 'time' is there twice"),
    ],
)
def test_kind_20_what_is_no_trace_is_described(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    message = refusal(path)
    assert said in message and str(path) in message and len(message) < 600


def test_kind_21_no_usable_rows_says_why(tmp_path: Path) -> None:
    path = write(tmp_path / "a", VIDUR, "x,1,1", "1,-1,1", "1,1,1.5", "1,-2,1")
    said = refusal(path)
    assert "holds no good rows: 2 bad num_prefill_tokens, 1 time that cannot be read, 1 bad num_decode_tokens" in said
    assert f"{path}:2: " in said


def test_kind_22_and_24_prefix_ids_of_native_rows(tmp_path: Path) -> None:
    """A prompt may be longer than its ids reach; the rest is its own. Ids are 64 bits wide."""
    big = 2**64 - 1
    path = write(
        tmp_path / "a",
        f'{{"prompt_len": 1000, "prefix_ids": [1, {big}]}}',
        '{"prompt_len": 100, "prefix_ids": [1, 2, 3, 4], "prefix_lens": 32}',
        '{"prompt_len": 100, "prefix_ids": [1, 2, 3], "prefix_lens": [60, 60, 60]}',
        '{"prompt_len": 100, "prefix_ids": [1], "prefix_lens": [10, 20]}',
        f'{{"prompt_len": 100, "prefix_ids": [{big + 1}]}}',
        '{"prompt_len": 100, "prefix_ids": [true]}',
        '{"prompt_len": 100, "prefix_lens": 5}',
        '{"prompt": "x", "prefix_ids": [1]}',
    )
    workload = read_workload(path)
    assert [(spec.prefix_ids, spec.prefix_lens) for spec in workload.specs] == [
        ((1, big), (512,)), ((1, 2, 3, 4), (32,)), ((1, 2), (60, 60))
    ]  # fmt: skip
    assert workload.report is not None
    assert workload.report.clamped == {"more prefix ids than the prompt holds": 1}
    assert sum(workload.report.dropped.values()) == 5


def test_kind_26_sessions_with_missing_parents_and_cycles(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        '{"id": "a", "prompt_len": 1, "after": "c"}',
        '{"id": "b", "prompt_len": 1, "after": "a", "delay": 0.5, "session": "s", "turn": 2}',
        '{"id": "c", "prompt_len": 1, "after": "b"}',
        '{"id": "d", "prompt_len": 1, "after": "gone"}',
        '{"id": "e", "prompt_len": 1, "after": "e"}',
    )
    workload = read_workload(path)
    assert {spec.id: spec.after for spec in workload.specs} == {"a": None, "b": "a", "c": "b", "d": None, "e": None}
    assert workload.specs[1].delay == 0.5 and (workload.specs[1].session, workload.specs[1].turn) == ("s", 2)
    assert any(note.startswith("rows that follow a request which is not in the file: 1") for note in workload.notes)
    assert any(note.startswith("circles of rows that follow each other: 2") for note in workload.notes)


def test_kind_28_absent_is_not_zero(tmp_path: Path) -> None:
    said = rows_of(write(tmp_path / "a", VIDUR, ",5,5", "1,5,5"))[1]
    assert said.dropped == {"no time stamp": 1}
    path = write(tmp_path / "b", '{"prompt_len": 1, "deadline": null, "turn": null}', '{"prompt_len": 1, "turn": 0}')
    one, two = read_workload(path).specs
    assert (one.deadline, one.turn, two.turn) == (None, None, 0)


def test_kind_29_an_invented_file_is_seen_by_its_rate(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "Timestamp,Request tokens,Response tokens", *(f"{s},8,8" for s in range(100)))
    workload = read_workload(path)
    assert workload.origin is not None and "span 1m39s, 1.01 requests/s" in workload.origin.line
    assert any(workload.origin.line in note for note in workload.notes)


def test_every_bad_row_is_named_when_strict(tmp_path: Path) -> None:
    path = write(tmp_path / "a", VIDUR, "0,5,6", *["1,x,6"] * 30, "1,2")
    with pytest.raises(WorkloadError) as caught:
        read_workload(path, ReadOptions(strict=True))
    assert len(caught.value.problems) == 31 and caught.value.problems[0].startswith(f"{path}:3: ")
    assert "31 bad rows" in str(caught.value) and "--skip-bad" in str(caught.value)
    workload = read_workload(path)
    assert len(workload.specs) == 1 and any("31 bad rows skipped, 1 left" in note for note in workload.notes)


def test_names_of_formats_are_for_ever() -> None:
    names = [reader.name for reader in READERS]
    assert len(set(names)) == len(names)
    assert {"azure", "burstgpt", "vidur", "splitwise-sim", "vtc", "servegen", "blis", "tracelab", "csv"} <= set(names)
    assert all(reader.title and reader.containers for reader in READERS)
