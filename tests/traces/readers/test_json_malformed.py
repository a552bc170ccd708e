"""Malformed and surprising JSON files as they are met in the wild, and what becomes of every row of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from engine.errors import WorkbenchError
from tests.traces.readers.json_examples import TURNS, dynamo_event, lines, load, specs
from traces.readers import open_trace, read_workload
from traces.rows import ReadOptions, Report

BROKEN = b'{"timestamp": 0, "input_length": 600, "outp'


def row(t: Any = 0, tokens: Any = 600, out: Any = 9, ids: Any = (1, 2), **more: Any) -> dict[str, Any]:
    return {"timestamp": t, "input_length": tokens, "output_length": out, "hash_ids": list(ids), **more}


def report(path: Path, *records: Any, **options: Any) -> Report:
    trace = open_trace(lines(path, *records), ReadOptions(**options))
    assert sum(len(chunk) for chunk in trace.chunks()) == trace.report.kept
    assert trace.report.read == trace.report.kept + sum(trace.report.dropped.values())
    return trace.report


def said(path: Path, *records: Any, **options: Any) -> str:
    return "\n".join(load(path, *records, **options).notes)


def test_a_bad_first_row_is_not_the_base(tmp_path: Path) -> None:
    bad = row(t=5, tokens=-1)
    first, second = specs(tmp_path / "a.jsonl", bad, row(t=1_700_000), row(t=1_700_250))
    assert (first.arrival, second.arrival) == (0.0, 0.25)


def test_unsorted_rows_are_sorted_and_counted(tmp_path: Path) -> None:
    rows = [row(t=t, out=n + 1) for n, t in enumerate((30, 10, 20, 20, 5))]
    assert report(tmp_path / "a.jsonl", *rows).inversions == 2
    assert [spec.output_len for spec in specs(tmp_path / "a.jsonl", *rows)] == [5, 2, 3, 4, 1]


def test_the_unit_is_said_and_a_strange_rate_is_warned_of(tmp_path: Path) -> None:
    slow = [row(t=0), row(t=60_000_000_000)]
    text = said(tmp_path / "a.jsonl", *slow)
    assert "time unit: ms (mooncake)" in text and "--time-unit" in text
    mended = said(tmp_path / "a.jsonl", *slow, time_unit="ns")
    assert "time unit: ns (mooncake), span 1m" in mended and "unusual" not in mended


def test_a_slice_that_does_not_begin_at_zero(tmp_path: Path) -> None:
    first, second = specs(tmp_path / "a.jsonl", row(t=1_178_625), row(t=1_181_625))
    assert (first.arrival, second.arrival) == (0.0, 3.0)


def test_equal_stamps_keep_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [row(t=3000 * (n // 28), out=n + 1) for n in range(84)]
    assert [spec.output_len for spec in specs(tmp_path / "a.jsonl", *rows)] == list(range(1, 85))


@pytest.mark.parametrize(
    ("option", "kept", "failed", "dropped"), [("keep", 4, 3, 0), ("drop", 1, 0, 3), ("min1", 4, 0, 0)]
)
def test_zero_lengths_are_failures(tmp_path: Path, option: str, kept: int, failed: int, dropped: int) -> None:
    rows = [row(), row(out=0), row(tokens=0, ids=()), row(tokens=0, out=0, ids=())]
    found = report(tmp_path / "a.jsonl", *rows, failed=option)
    assert (found.read, found.kept, found.failed, found.dropped.total()) == (4, kept, failed, dropped)


@pytest.mark.parametrize("value", ["-5", "NaN", "Infinity", "5.5", "1e999", '"x"', "true", "[5]", "null", '""'])
@pytest.mark.parametrize("field", ["input_length", "output_length"])
def test_lengths_that_are_none(tmp_path: Path, field: str, value: str) -> None:
    bad = json.dumps({**row(), field: 77}).replace("77", value).encode()
    found = report(tmp_path / "a.jsonl", row(), bad)
    assert (found.kept, found.dropped.total()) == (1, 1)


def test_whole_numbers_written_as_fractions_or_text(tmp_path: Path) -> None:
    a, b = specs(tmp_path / "a.jsonl", row(tokens=600.0, out=9.0), row(tokens="600", out="9"))
    assert (a.prompt_len, a.output_len) == (b.prompt_len, b.output_len) == (600, 9)


def test_long_prompts_are_kept_whole(tmp_path: Path) -> None:
    (long,) = specs(tmp_path / "a.jsonl", row(tokens=191_378, ids=range(374)))
    assert (long.prompt_len, len(long.prefix_ids)) == (191_378, 374)
    assert report(tmp_path / "b.jsonl", row(), row(tokens=10**12)).dropped == {"bad input_length": 1}


def test_line_ends_of_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(json.dumps(row(t=n)).encode() + b"\r\n" for n in range(3)))
    assert len(read_workload(path).specs) == 3


def test_byte_order_marks(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(row()).encode() + b"\n")
    assert len(read_workload(path).specs) == 1
    path.write_text(json.dumps(row()), encoding="utf-16")
    with pytest.raises(WorkbenchError, match="UTF-16"):
        read_workload(path)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \n\n"])
def test_ends_of_files(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(row())}\n\n{json.dumps(row(t=4))}{end}")
    workload = read_workload(path)
    assert [spec.where.rsplit(":", 1)[1] for spec in workload.specs] == ["1", "3"]


def test_a_cut_last_line_is_one_dropped_row(tmp_path: Path) -> None:
    found = report(tmp_path / "a.jsonl", row(), row(), BROKEN)
    assert (found.kept, found.dropped) == (2, {"not JSON": 1})
    assert ":3:" in found.examples["not JSON"][0]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_under_any_name(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(pack(json.dumps(row()).encode() + b"\n"))
    assert len(read_workload(path).specs) == 1
    plain = lines(tmp_path / "trace.jsonl.gz", row())
    assert len(read_workload(plain).specs) == 1


def test_line_separators_inside_of_texts(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": text, "output_tokens": 2}, ensure_ascii=False) + "\n")
    (spec,) = read_workload(path).specs
    assert spec.prompt == text


def test_digits_stay_text(tmp_path: Path) -> None:
    digits, number = "007", {"prompt": 7, "output_tokens": 2}
    found = load(tmp_path / "a.jsonl", {"prompt": digits, "output_tokens": 2}, number)
    assert [spec.prompt for spec in found.specs] == [digits]
    assert found.report is not None and found.report.dropped == {"bad prompt": 1}


def test_an_array_named_jsonl_and_lines_named_json(tmp_path: Path) -> None:
    chats = [{"id": str(n), "conversations": TURNS} for n in range(3)]
    array = tmp_path / "a.jsonl"
    array.write_text(json.dumps(chats, indent=2))
    assert len(read_workload(array).specs) == 3
    assert len(specs(tmp_path / "b.json", *chats)) == 3


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n", "git-lfs pointer"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", "HTML"),
        (b"", "empty"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.", "pickle"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(WorkbenchError, match=what):
        read_workload(path)


def test_numbers_of_ids_that_do_not_fit(tmp_path: Path) -> None:
    rows = [row(), row(ids=[1]), row(ids=[1, 2, 3]), row(ids=[])]
    found = report(tmp_path / "a.jsonl", *rows)
    assert (found.kept, found.dropped.total(), found.clamped.total()) == (2, 2, 1)
    _, cut = specs(tmp_path / "a.jsonl", *rows)
    assert cut.prefix_ids == (1, 2)
    kept = specs(tmp_path / "a.jsonl", *rows, short_ids="tail")
    assert [spec.prefix_ids for spec in kept] == [(1, 2), (1,), (1, 2), ()]
    assert {spec.prompt_len for spec in kept} == {600}


def test_blocks_of_another_size_do_not_pass_silently(tmp_path: Path) -> None:
    """16-token ids taken for blocks of 512 would make nearly every prompt the same."""
    text = said(tmp_path / "a.jsonl", row(tokens=1600, ids=range(100)))
    assert "is the block size another one?" in text


def test_one_id_at_two_lengths(tmp_path: Path) -> None:
    short, long = specs(tmp_path / "a.jsonl", row(tokens=100, ids=[7]), row(tokens=300, ids=[7]))
    assert (short.prefix_ids, short.prompt_len) == ((7,), 100)
    assert (long.prefix_ids, long.prompt_len) == ((7,), 300)


def test_ids_of_64_bits_stay_apart(tmp_path: Path) -> None:
    big = (1 << 64) - 1
    ids = [big, big - (1 << 32), 1 << 70]
    (spec,) = specs(tmp_path / "a.jsonl", row(tokens=1500, ids=ids))
    assert spec.prefix_ids == tuple(ids)


def test_ids_in_objects(tmp_path: Path) -> None:
    parts = {"sys_prompt": [1], "user_input": [2]}
    (spec,) = specs(tmp_path / "a.jsonl", {**row(t="5"), "hash_ids": parts, "session_id": "s"})
    assert spec.prefix_ids == (1, 2)


def test_circles_and_missing_parents(tmp_path: Path) -> None:
    chat = {"input_length": 20, "output_length": 2, "type": "text", "turn": 1}
    workload = load(
        tmp_path / "a.jsonl",
        {**chat, "chat_id": 1, "parent_chat_id": 2, "timestamp": 0.0},
        {**chat, "chat_id": 2, "parent_chat_id": 1, "timestamp": 1.0},
        {**chat, "chat_id": 3, "parent_chat_id": 3, "timestamp": 2.0},
        {**chat, "chat_id": 4, "parent_chat_id": 99, "timestamp": 3.0},
        {**chat, "chat_id": 5, "parent_chat_id": 4, "timestamp": 4.0, "input_length": 8},
    )
    assert [spec.after for spec in workload.specs] == [None, "1", None, None, "4"]
    text = "\n".join(workload.notes)
    assert "circle" in text and "not in the file" in text


def test_turns_out_of_order(tmp_path: Path) -> None:
    turn = {"session_id": "s", "timestamp": 0, "delay": 1000, "input_length": 64, "output_length": 2, "hash_ids": [1]}
    rows = [{**turn, "turn": n} for n in (0, 2, 1, 3)]
    found = {spec.turn: spec.after for spec in specs(tmp_path / "a.jsonl", *rows)}
    assert found == {0: None, 1: "s/0", 2: "s/1", 3: "s/2"}


def test_two_clocks_are_never_subtracted(tmp_path: Path) -> None:
    wall, monotonic = 1_787_267_980.0827403, 27_536.66
    record = {"input_toks": 5, "output_toks": 2, "queued_ts": monotonic, "first_token_ts": monotonic + 1}
    first, second = specs(
        tmp_path / "a.jsonl",
        {**record, "arrival_time": wall, "last_token_ts": 0.0},
        {**record, "arrival_time": wall + 0.5, "last_token_ts": monotonic + 2},
    )
    assert (first.arrival, first.failed) == (0.0, True)
    assert second.arrival == pytest.approx(0.5, abs=1e-6) and not second.failed


def test_null_is_not_zero(tmp_path: Path) -> None:
    """An `api_time` that was not recorded must not become a call that took no time."""
    calls = [{"t": t, "type": "n", "in": 10, "out": 5, "hash_ids": [1], "api_time": None} for t in (0.0, 2.0)]
    session = {"id": "w", "block_size": 64, "hash_id_scope": "local", "requests": calls}
    assert [spec.after for spec in specs(tmp_path / "a.jsonl", session)] == [None, None]
    timed = {**session, "requests": [{**call, "api_time": 0.0} for call in calls]}
    assert [spec.after for spec in specs(tmp_path / "b.jsonl", timed)] == [None, "w/0"]


def test_span_and_rate_are_shown_so_that_made_up_data_is_noticed(tmp_path: Path) -> None:
    invented = [row(t=1000 * n) for n in range(61)]
    text = said(tmp_path / "a.jsonl", *invented)
    assert "span 1m" in text and "1.02 requests/s" in text


def test_lines_in_order_of_completion(tmp_path: Path) -> None:
    events = [dynamo_event(id, began, ended, [1, 2, 3], None) for id, began, ended in
              (("b", 5_000, 6_000), ("c", 5_500, 7_000), ("a", 1_000, 9_000))]  # fmt: skip
    assert [(spec.id, spec.arrival) for spec in specs(tmp_path / "a.jsonl", *events)] == [
        ("a", 0.0), ("b", 4.0), ("c", 4.5),
    ]  # fmt: skip


def test_all_rows_bad_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="no good rows: 2 bad output_length"):
        load(tmp_path / "a.jsonl", row(out=-1), row(out=-1))


def test_fields_given_twice(tmp_path: Path) -> None:
    twice = b'{"timestamp": 0, "input_length": 600, "output_length": 9, "output_length": 8, "hash_ids": [1, 2]}'
    assert report(tmp_path / "a.jsonl", row(), twice).dropped == Counter({"a field given twice": 1})


def test_another_block_size_is_told_by_a_person(tmp_path: Path) -> None:
    """Rows of 16-token blocks in Mooncake's form: without the size most ids would be beyond the end of their prompt."""
    path = tmp_path / "blocks-of-16.jsonl"
    rows = [
        {"timestamp": 1000 * n, "input_length": 40 + n, "output_length": 5, "hash_ids": [0, 1, 2 + (n > 8)]}
        for n in range(9)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = read_workload(path, ReadOptions(id_block=16))
    assert told.report is not None and told.report.kept == 9 and not told.report.clamped and not told.report.dropped
    assert {spec.prefix_lens for spec in told.specs} == {(16,)}
    assert all(spec.prefix_ids == (0, 1, 2) for spec in told.specs)
    untold = read_workload(path)
    assert untold.report is not None and sum(untold.report.clamped.values()) == 9
    assert any("--id-block" in note for note in untold.report.notes)


def test_a_block_size_that_nothing_needs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,5\n")
    report = read_workload(path, ReadOptions(id_block=16)).report
    assert report is not None and any(note.startswith("--id-block 16: no row has block ids") for note in report.notes)
