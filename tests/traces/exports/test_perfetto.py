"""The trace for Perfetto: valid by the format's rules, and it tells what the records tell."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from engine.records import Cause, Kind, KnobChange, Phase, Preempted, Timings
from engine.request import FinishReason
from tests.traces.exports.runs import Run, random_run
from tests.traces.exports.trace_format import check_trace
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.exports.perfetto import write_perfetto


def trace(run: Run) -> list[dict[str, Any]]:
    out = io.StringIO()
    write_perfetto(run.info, iter(run.records), out)
    return check_trace(out.getvalue())


def phases(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, float]]]:
    """Of each request, by the name of its outer event: (phase, start, end) in microseconds."""
    names = {}
    begun: dict[str, float] = {}
    told: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for event in events:
        id = event.get("id")
        if event["ph"] == "b" and id not in names:
            names[id] = event["name"]
        elif event["ph"] == "b":
            begun[id] = event["ts"]
        elif event["ph"] == "e" and id in begun:
            told[names[id]].append((event["name"], begun.pop(id), event["ts"]))
    return told


def test_a_life_with_everything_by_hand() -> None:
    """Arrives at 0.5 ms, waits, is read in two pieces, preempted, swapped back in, and ends."""
    records = [
        record(0, 0.001, 0.002, arrived=(arrived("r", 0.0005),), free=5,
               scheduled=(scheduled("r", 2, kind=Kind.NEW)._replace(phase=Phase.PREFILL),),
               timings=Timings(0.0001, 0.0002, 0.0004, 0.0001, 0.00005)),
        record(1, 0.003, 0.004, scheduled=(scheduled("r", 2, before=2)._replace(phase=Phase.PREFILL),),
               tokens=(token("r"),), free=4),
        record(2, 0.005, 0.006, preempted=(Preempted("r", "other", 3, 1, 0, 2, Cause.DISPLACED, 2),)),
        record(3, 0.007, 0.008, scheduled=(scheduled("r", 1, before=4, kind=Kind.SWAPPED_IN),), tokens=(token("r"),),
               timings=Timings(0.0001, 0, 0.0004, 0, 0, 0.0002),
               finished=(finished("r", output_len=2, preemptions=1),)),
    ]  # fmt: skip
    events = trace(Run(info(), records))
    assert phases(events) == {
        "r": [
            ("queued", 500, 1000), ("prefill", 1000, 4000), ("decode", 4000, 5000), ("swapped", 5000, 7000),
            ("decode", 7000, 8000),
        ]
    }  # fmt: skip
    outer = [e for e in events if e["name"] == "r"]
    assert [(e["ph"], e["ts"]) for e in outer] == [("b", 500), ("e", 8000)]
    assert outer[1]["args"]["finish_reason"] == "length" and outer[1]["args"]["preemptions"] == 1
    instants = [(e["name"], e["ts"]) for e in events if e["ph"] == "n"]
    assert instants == [("first token", 4000), ("preempted", 5000)]
    told = next(e for e in events if e["ph"] == "n" and e["name"] == "preempted")["args"]
    assert (told["by"], told["cause"], told["need"], told["free"], told["swapped_blocks"]) == (
        "other", "displaced", 3, 1, 2,
    )  # fmt: skip
    steps = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["name"].startswith("step")]
    assert steps == [("step 0", 1000, 1000), ("step 1", 3000, 1000), ("step 3", 7000, 1000)]
    parts = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and "step" not in e["name"]]
    assert parts == [
        ("schedule", 1000, 100), ("build", 1100, 200), ("forward", 1300, 400), ("sample", 1700, 100),
        ("commit", 1800, 50), ("schedule", 7000, 100), ("swap", 7100, 200), ("forward", 7300, 400),
    ]  # fmt: skip
    blocks = [(e["ts"], e["args"]["blocks"]) for e in events if e["name"] == "kv_blocks_used"]
    assert blocks == [(1000, 2), (3000, 3), (6000, 0)], "a counter that did not move tells nothing"


def test_a_knob_change_and_idle_time_between_steps() -> None:
    records = [
        record(0, 0.0, 0.001, arrived=(arrived("r", 0.0),), scheduled=(scheduled("r", 4, kind=Kind.NEW),)),
        record(1, 0.1, 0.1, knobs=(KnobChange("max_num_seqs", 8, 2, 1),)),
        record(2, 0.5, 0.6, scheduled=(scheduled("r"),), tokens=(token("r"),)),
    ]
    events = trace(Run(info(), records))
    (change,) = [e for e in events if e["ph"] == "i"]
    assert (change["ts"], change["name"], change["s"]) == (100_000, "max_num_seqs 8 → 2", "g")
    assert (change["args"]["old"], change["args"]["new"]) == (8, 2)
    tokens = sorted((e["ts"], sum(e["args"].values())) for e in events if e["name"] == "tokens")
    assert tokens == [(0, 4), (1000, 0), (500_000, 1), (600_000, 0)]
    end = [e for e in events if e["ph"] == "e"][-1]
    assert end["args"]["unfinished"] is True and end["ts"] == 600_000


@pytest.mark.parametrize("steps", [10_000, 57])
@pytest.mark.parametrize("seed", range(6))
def test_random_runs(seed: int, steps: int) -> None:
    run = random_run(seed, steps=steps)
    events = trace(run)
    records = run.records
    count = Counter(event["ph"] for event in events)
    assert count["b"] == count["e"]
    outer: dict[str, Counter[str]] = {ph: Counter(e["name"] for e in events if e["ph"] == ph) for ph in "be"}
    for it in records:
        for new in it.arrived:
            assert outer["b"][new.id] == outer["e"][new.id] == 1
    steps_told = [e for e in events if e["ph"] == "X" and e["name"].startswith("step ")]
    assert [e["name"] for e in steps_told] == [f"step {it.step}" for it in records if it.executed]
    assert [e["args"]["tokens"] for e in steps_told] == [it.total_tokens for it in records if it.executed]
    assert [round(e["dur"] * 1000) for e in steps_told] == [
        round(it.t_end * 1e9) - round(it.t_start * 1e9) for it in records if it.executed
    ]
    preempted = [e for e in events if e["ph"] == "n" and e["name"] == "preempted"]
    victims = [victim for it in records for victim in it.preempted]
    assert [(e["args"]["id"], e["args"]["by"], e["args"]["cause"]) for e in preempted] == [
        (victim.id, victim.by, victim.cause) for victim in victims
    ]
    changes = [e["args"]["name"] for e in events if e["ph"] == "i" and "version" in e["args"]]
    assert changes == [change.name for it in records for change in it.knobs]
    ended = {e["name"]: e["args"] for e in events if e["ph"] == "e" and "finish_reason" in e["args"]}
    assert {id: args["finish_reason"] for id, args in ended.items()} == {
        done.id: done.reason for it in records for done in it.finished
    }
    firsts = [e for e in events if e["ph"] == "n" and e["name"] == "first token"]
    assert len(firsts) == len({sampled.id for it in records for sampled in it.tokens})
    for id, spans in phases(events).items():
        for (_, _, end), (_, start, _) in pairwise(spans):
            assert end == start, f"{id} has a gap between two phases"


def test_the_random_runs_have_what_is_to_be_shown() -> None:
    """Or the test above would show nothing."""
    seen: Counter[str] = Counter()
    for seed in range(6):
        for it in random_run(seed).records:
            seen.update({f"preempted: {victim.cause}": 1 for victim in it.preempted})
            seen["swapped"] += sum(victim.swapped_blocks > 0 for victim in it.preempted)
            seen["rebuilt"] += it.rebuilt is not None
            seen["knobs"] += len(it.knobs)
            seen["rejected"] += len(it.rejected)
            seen["aborted"] += sum(done.reason is FinishReason.ABORT for done in it.finished)
            seen["recompute"] += it.tokens_in(Phase.RECOMPUTE)
    for what in ("preempted: blocks", "preempted: displaced", "preempted: rebuild", "swapped", "rebuilt", "knobs",
                 "rejected", "aborted", "recompute"):  # fmt: skip
        assert seen[what] > 3, f"{what}: {seen}"


def test_an_id_used_again_has_a_track_of_its_own() -> None:
    records = [
        record(n, n, n + 0.5, arrived=(arrived("r", float(n)),), scheduled=(scheduled("r", 4, kind=Kind.NEW),),
               tokens=(token("r"),), finished=(finished("r", arrival=float(n)),))
        for n in range(2)
    ]  # fmt: skip
    events = trace(Run(info(), records))
    assert len({e["id"] for e in events if e["ph"] == "b"}) == 2


def test_names_from_outside_stay_text() -> None:
    id = 'a"\\\n</script>\ud800\u2028'
    records = [record(0, 0.0, 0.1, arrived=(arrived(id, 0.0, client=id),))]
    events = trace(Run(info(), records))
    assert next(e for e in events if e["ph"] == "b")["args"]["client"] == id


def test_a_run_without_records_and_a_compressed_one(tmp_path) -> None:
    assert all(event["ph"] == "M" for event in trace(Run(info(), [])))
    path = tmp_path / "trace.json.gz"
    run = random_run(1)
    write_perfetto(run.info, run.records, path)
    assert json.dumps(check_trace(gzip.decompress(path.read_bytes()).decode())) == json.dumps(trace(run))
