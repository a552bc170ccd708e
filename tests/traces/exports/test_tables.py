"""CSV and Parquet: the same table twice, with the values the records have."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine.records import Kind, Limit, Phase, Rejected, Waiting
from engine.records import Reason as Why
from tests.traces.exports.runs import Run, random_run
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.exports import tables
from traces.metrics import Metrics

REQUEST_COLUMNS = (
    "id", "client", "priority", "session", "arrival_s", "first_scheduled_s", "first_token_s", "last_token_s",
    "ended_s", "prompt_len", "output_len", "cached_tokens", "preemptions", "recomputed", "swapped", "finish_reason",
    "detail", "queue_s", "ttft_s", "tpot_s", "e2e_s", "itl_max_s", "deadline_s",
)  # fmt: skip
ITERATION_COLUMNS = (
    "seq", "step", "t_start_s", "t_end_s", "schedule_s", "build_s", "forward_s", "sample_s", "commit_s", "swap_s",
    "budget", "tokens", "prefill_tokens", "decode_tokens", "recompute_tokens", "running", "waiting", "swapped",
    "used_blocks", "free_blocks", "preempted", "finished", "limit", "knob_version", "slots",
)  # fmt: skip


def read_csv(write: Callable[..., None], run: Run) -> list[dict[str, str]]:
    out = io.StringIO()
    write(run.info, iter(run.records), out)
    return list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))


def read_parquet(write: Callable[..., None], run: Run, path: Path) -> Any:
    write(run.info, iter(run.records), path, force=True)
    return pq.read_table(path)


def as_csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("what", ["requests", "iterations"])
def test_both_formats_hold_the_same(what: str, seed: int, tmp_path: Path) -> None:
    run = random_run(seed, steps=90)
    table = read_parquet(getattr(tables, f"write_{what}_parquet"), run, tmp_path / "t.parquet")
    rows = read_csv(getattr(tables, f"write_{what}_csv"), run)
    assert list(rows[0]) == table.column_names
    wanted = REQUEST_COLUMNS if what == "requests" else ITERATION_COLUMNS
    assert set(wanted) <= set(table.column_names)
    assert [{name: as_csv(value) for name, value in row.items()} for row in table.to_pylist()] == rows
    came = sum(len(it.arrived) + len(it.rejected) for it in run.records)
    assert len(rows) == (len(run.records) if what == "iterations" else came) > 20


def test_parquet_tells_units(tmp_path: Path) -> None:
    schema = read_parquet(tables.write_requests_parquet, random_run(1, count=3), tmp_path / "t").schema
    for field in schema:
        assert field.metadata[b"description"]
        assert field.name.endswith("_s") == (field.metadata[b"unit"] == b"s"), field.name
        if field.name.endswith("_s"):
            assert field.type == "double"
    assert schema.field("prompt_len").type == "int64" and schema.field("prompt_len").metadata[b"unit"] == b"token"
    assert schema.field("id").type == "string" and schema.field("deadline_met").type == "bool"
    assert schema.metadata[b"model"] == b"fake"


def test_a_request_by_hand() -> None:
    """Planned for 0.25 s, admitted at 1, tokens at 2, 3 and 5; another one refused, a third still waiting."""
    records = [
        record(0, 0.5, 1.0, arrived=(arrived("r", 0.25, 6, client="c", priority=2, deadline=1.0),),
               rejected=(Rejected("bad", "d", "too long"),)),
        record(1, 1.0, 2.0, scheduled=(scheduled("r", 4, before=2, kind=Kind.NEW),), tokens=(token("r"),),
               arrived=(arrived("w", 0.75),)),
        record(2, 2.0, 3.0, scheduled=(scheduled("r"),), tokens=(token("r"),)),
        record(3, 3.0, 5.0, scheduled=(scheduled("r"),), tokens=(token("r"),),
               finished=(finished("r", prompt_len=6, output_len=3, cached_tokens=2, client="c"),)),
    ]  # fmt: skip
    bad, row, waits = read_csv(tables.write_requests_csv, Run(info(), records))
    assert (bad["id"], bad["finish_reason"], bad["detail"], bad["ended_s"]) == ("bad", "rejected", "too long", "0.5")
    assert not any(bad[name] for name in ("arrival_s", "ttft_s", "prompt_len", "requeue_s", "prefill_s", "priority"))
    expected = {
        "arrival_s": 0.25, "first_scheduled_s": 1.0, "first_token_s": 2.0, "last_token_s": 5.0, "ended_s": 5.0,
        "queue_s": 0.75, "ttft_s": 1.75, "tpot_s": 1.5, "e2e_s": 4.75, "itl_max_s": 2.0, "lag_s": 0.25,
        "prefill_s": 1.0, "decode_s": 3.0, "requeue_s": 0.0, "deadline_s": 1.0,
    }  # fmt: skip
    assert {name: float(row[name]) for name in expected} == expected
    assert (row["deadline_met"], row["prompt_len"], row["output_len"], row["cached_tokens"]) == ("false", "6", "3", "2")
    assert (row["client"], row["priority"]) == ("c", "2")
    assert (waits["id"], waits["finish_reason"], waits["ended_s"], waits["queue_s"]) == ("w", "", "", "")


def test_an_iteration_by_hand() -> None:
    prefill = scheduled("r", 5, kind=Kind.NEW)._replace(phase=Phase.PREFILL)
    it = record(
        7, 1.0, 1.5, free=3, arrived=(arrived("r", 0.9), arrived("d", 0.9)), scheduled=(prefill, scheduled("d")),
        tokens=(token("d"),), running=("r", "d"), num_waiting=4, limit=Limit.KV_PRESSURE, budget=64,
        blocked=Waiting("w", Why.BLOCKS, "needs 4, 3 free"),
    )  # fmt: skip
    (row,) = read_csv(tables.write_iterations_csv, Run(info(num_blocks=8), [it]))
    expected = {
        "seq": "7", "tokens": "6", "prefill_tokens": "5", "decode_tokens": "1", "recompute_tokens": "0",
        "running": "2", "waiting": "4", "used_blocks": "4", "free_blocks": "3", "limit": "KV_PRESSURE",
        "blocked_id": "w", "blocked_reason": "blocks", "budget": "64", "sampled": "1", "t_start_s": "1.0",
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_totals_are_those_of_the_metrics() -> None:
    run = random_run(3)
    metrics = Metrics(run.info)
    ended = {row.id: row for it in run.records for row in metrics.add(it)}
    summary = metrics.summary()
    rows = {row["id"]: row for row in read_csv(tables.write_requests_csv, run)}
    assert rows.keys() == ended.keys()
    for id, row in rows.items():
        for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s", "itl_max_s", "norm_s", "lag_s", "ttft_admit_s"):
            value = getattr(ended[id], name)
            assert row[name] == ("" if value is None else str(round(value, 9))), (id, name)
        if row["finish_reason"] == "length":
            assert float(row["requeue_s"]) == pytest.approx(ended[id].requeue_s, abs=1e-9)
    assert sum(int(row["output_len"]) for row in rows.values()) == summary["tokens"]["output"]
    assert sum(int(row["preemptions"]) for row in rows.values()) == summary["preemptions"]
    assert sum(int(row["swapped"]) for row in rows.values()) == summary["preemption"]["swap"]["count"]
    steps = read_csv(tables.write_iterations_csv, run)
    assert sum(int(row["sampled"]) for row in steps) == summary["tokens"]["output"]
    assert sum(int(row["recomputed"]) for row in steps) == summary["tokens"]["recomputed"]
    assert max(int(row["used_blocks_mid"]) for row in steps) == summary["kv"]["peak_used"]
    assert sum(int(row["tokens"]) > 0 for row in steps) == summary["iterations"]


def test_the_phases_of_a_request_add_up() -> None:
    for row in read_csv(tables.write_requests_csv, random_run(1)):
        if row["finish_reason"] == "length":
            parts = ("queue_s", "prefill_s", "decode_s", "recompute_s", "requeue_s")
            whole = float(row["ended_s"]) - float(row["arrival_s"])
            assert sum(float(row[name]) for name in parts) == pytest.approx(whole, abs=1e-7)


def test_no_cell_is_a_formula_and_numbers_stay_numbers() -> None:
    names = ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", 'quote",=1', "line\n=1", "ok"]
    records = [
        record(0, 0.0, 1.0, arrived=tuple(arrived(name, 0.0, client=name, priority=-3) for name in names)),
    ]
    rows = read_csv(tables.write_requests_csv, Run(info(), records))
    assert [row["client"] for row in rows] == [
        "'=1+1", "'+1", "'-2", "'@SUM(A1)", "'\t=1", "'\r=1", 'quote",=1', "line\n=1", "ok",
    ]  # fmt: skip
    assert {row["priority"] for row in rows} == {"-3"}


def test_text_that_is_no_unicode(tmp_path: Path) -> None:
    records = [record(0, 0.0, 1.0, arrived=(arrived("\ud800x", 0.0, client="ü"),))]
    run = Run(info(), records)
    path = tmp_path / "t.csv"
    tables.write_requests_csv(run.info, run.records, path)
    assert "\\ud800x" in path.read_text("utf-8")
    table = read_parquet(tables.write_requests_parquet, run, tmp_path / "t.parquet")
    assert table.column("id").to_pylist() == ["\\ud800x"] and table.column("client").to_pylist() == ["ü"]


def test_parquet_has_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 10)

    def idle() -> Iterator[Any]:
        return (record(n, float(n), n + 0.5) for n in itertools.count())

    tables.write_iterations_parquet(info(), itertools.islice(idle(), 25), tmp_path / "t")
    file = pq.ParquetFile(tmp_path / "t")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [10, 10, 5]
    assert file.read().column("seq").to_pylist() == list(range(25))
