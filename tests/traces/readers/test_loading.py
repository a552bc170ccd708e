"""Rows to requests: ids, order, who waits for whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.traces.readers.help import DATA, write
from traces.readers import read_workload
from traces.readers.links import Link, resolve
from traces.readers.origin import Origin, account
from traces.rows import ReadOptions, Report


def after(*links: Link, closed_loop: bool = False) -> tuple[list[int | None], list[str]]:
    resolved = resolve(links, {link.id: at for at, link in reversed(list(enumerate(links)))}, closed_loop=closed_loop)
    return resolved.after, resolved.notes


def test_turns_of_a_session_follow_each_other() -> None:
    links = [Link("a", "s", 2), Link("b", "t", 0), Link("c", "s", 1), Link("d", None), Link("e", "s", 3)]
    assert after(*links) == ([None] * 5, [])
    found, notes = after(*links, closed_loop=True)
    assert found == [2, None, None, None, 0]
    assert notes == ["rows earlier than the turn that they follow: 1 (the order of turns holds)"]


def test_without_turns_a_session_follows_in_order_of_time() -> None:
    assert after(Link("a", "s"), Link("b", "s"), Link("c", "s", after="a"), closed_loop=True)[0] == [None, 0, 0]


def test_failed_rows_are_stepped_over() -> None:
    found, notes = after(Link("a"), Link("b", after="a", failed=True), Link("c", after="b"), Link("d", after="c"))
    assert found == [None, 0, 0, 2]
    assert notes == ["rows that follow one which failed at its source: 1 (they follow the one before it)"]


@given(st.lists(st.integers(-1, 9), min_size=1, max_size=10), st.lists(st.booleans(), min_size=10, max_size=10))
def test_nobody_waits_for_itself_however_far_round(parents: list[int], failed: list[bool]) -> None:
    links = [
        Link(str(at), after=None if parent < 0 else str(parent), failed=failed[at]) for at, parent in enumerate(parents)
    ]
    found, _ = after(*links)
    for at in range(len(found)):
        seen, here = set(), found[at]
        while here is not None:
            assert here not in seen and here != at and not links[here].failed
            seen.add(here)
            here = found[here]


def test_ids_are_unique_and_those_of_the_source_where_there_are_some(tmp_path: Path) -> None:
    rows = ["0,2,0,0,1,5,5", "0,2,0,1,1,6,5", "0#2,2,0,2,1,7,5", ",2,0,3,1,8,5"]
    header = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
    workload = read_workload(write(tmp_path / "a", header, *rows))
    assert [spec.id for spec in workload.specs] == ["0", "0#3", "0#2", "line-5"]
    assert any("rows with an id that another row has: 1" in note for note in workload.notes)


def test_rows_without_a_time_come_at_the_start(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt_len": 1, "arrival": 4},
        {"prompt_len": 2},
        {"prompt_len": 3, "after": "line-1"},
    ]
    workload = read_workload(write(tmp_path / "a", *map(json.dumps, rows)))
    assert [(spec.prompt_len, spec.arrival) for spec in workload.specs] == [(2, 0.0), (3, 0.0), (1, 4.0)]
    assert any("1 of 3 rows have no arrival and come at 0 s" in note for note in workload.notes)


def test_native_times_count_from_the_start_of_the_run(tmp_path: Path) -> None:
    """They are not rebased: a run that begins with a pause is what the file says."""
    workload = read_workload(write(tmp_path / "a", '{"prompt_len": 1, "arrival": 3}', '{"prompt_len": 1, "t_ns": 4}'))
    assert [spec.arrival for spec in workload.specs] == [4e-9, 3.0]
    assert workload.origin is not None and workload.origin.base_ns is None


def test_only_the_first_rows(tmp_path: Path) -> None:
    workload = read_workload(DATA / "azure2023_conv_2000.csv", limit=7)
    assert len(workload.specs) == 7 and any("only the first 7 rows were used" in note for note in workload.notes)


def test_texts_have_no_length_before_a_tokenizer_has_seen_them(tmp_path: Path) -> None:
    (spec,) = read_workload(write(tmp_path / "a", '{"prompt": "hi", "max_tokens": 3}')).specs
    assert (spec.prompt, spec.prompt_len, spec.output_len, spec.max_tokens) == ("hi", None, None, 3)


def test_failed_native_rows_may_have_no_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "a", '{"prompt_len": 0, "output_len": 0, "failed": true}', '{"prompt_len": 1}')
    workload = read_workload(path, ReadOptions(strict=True))
    assert [spec.failed for spec in workload.specs] == [True, False]


def test_what_is_told_before_a_run() -> None:
    origin = Origin("mooncake", "", "ms", 1_178_625 * 10**6, 3537 * 10**9, 12_031)
    assert origin.line == "time unit: ms (mooncake), span 58m57s, 3.4 requests/s, rebased from 1178625"
    assert origin.warning is None
    report = Report(read=12, kept=9, failed=2)
    report.dropped.update({"bad prompt": 2, "not JSON": 1})
    report.clamped["x"] = 4
    assert account(report) == (
        "read 12 rows: 9 kept (2 failed at their source, not sent), 4 values changed (4 x), "
        "3 dropped (2 bad prompt, 1 not JSON)"
    )
