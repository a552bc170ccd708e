"""What was encoded decodes to the same records, whatever was asked of the engine."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Search
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from engine.records import Arrived, Iteration, Kind, Phase, Rejected, Scheduled, Token
from engine.sampling_params import SamplingParams
from engine.whatif.journal import Journal
from tests.engine.test_machine import EngineMachine
from tests.traces.recording.runs import assert_same_view, fresh_view, header_of, random_run, record
from traces.recording import Recorder, Recording
from traces.recording.ints import flag_ranges, from_ranges, from_short, pack, splice, to_ranges, to_short, unpack
from traces.recording.keyframe import runs
from traces.recording.lines import dump, load
from traces.recording.strip import without_text
from traces.recording.times import to_seconds, to_units


class RecordedMachine(EngineMachine):
    """Everything that may be asked of an engine, recorded."""

    def take(self, it: Iteration | None, *, ran: bool) -> None:
        super().take(it, ran=ran)
        if it is not None:
            self.records.append(it)

    @invariant()
    def begun(self) -> None:
        if hasattr(self, "engine") and not hasattr(self, "records"):
            self.records: list[Iteration] = []
            self.start = self.engine.config

    def teardown(self) -> None:
        super().teardown()
        if not getattr(self, "records", None):
            return
        rng = random.Random(len(self.records))
        begin = rng.choice([0, 0, rng.randrange(len(self.records))])
        tokens = rng.random() < 0.7
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.wbrec.jsonl"
            view = record(path, self.start, self.records, start=begin, close=rng.random() < 0.5, tokens=tokens)
            expected = self.records[begin:] if tokens else [without_text(it) for it in self.records[begin:]]
            recording = Recording.open(path)
            assert list(recording.iterations()) == expected
            assert not [note for note in recording.notes if "not ended" not in note]
            if tokens:
                looked = set(rng.sample(range(len(expected)), min(4, len(expected))))
                for at, it in enumerate(expected):
                    view.apply(it)
                    if at in looked:
                        assert_same_view(recording.view_after(it.seq), view)


TestRecorded = RecordedMachine.TestCase
TestRecorded.settings = settings(
    max_examples=int(os.environ.get("WORKBENCH_EXAMPLES", "30")),
    stateful_step_count=40,
    phases=[Search.generate, *([Search.shrink] if "WORKBENCH_EXAMPLES" in os.environ else [])],
    deadline=None,
    derandomize="WORKBENCH_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed", range(6))
def test_long_runs(seed: int, tmp_path: Path) -> None:
    """Over several keyframes."""
    config, records = random_run(seed)
    record(tmp_path / "run", config, records)
    recording = Recording.open(tmp_path / "run")
    assert recording.closed and not recording.notes
    assert list(recording.iterations()) == records
    assert list(recording.iterations(130, 140)) == records[130:140]


def test_a_journal_of_the_recording_is_the_journal_of_the_run(tmp_path: Path) -> None:
    config, records = random_run(3)
    record(tmp_path / "run", config, records)
    written, read = Journal(config), Journal(config)
    for it in records:
        written.add(it)
    for it in Recording.open(tmp_path / "run").iterations():
        read.add(it)
    assert read.broken is written.broken is None
    for name in ("starts", "ends", "forwards", "asked", "flows", "sums", "step_seqs", "work", "vocabulary"):
        assert getattr(read, name) == getattr(written, name), name
    assert [list(one.in_order()) and one.order for one in read.commands.values()] == [
        list(one.in_order()) and one.order for one in written.commands.values()
    ]
    assert [(life.arrived, life.tokens, life.reason) for life in read.lives] == [
        (life.arrived, life.tokens, life.reason) for life in written.lives
    ]


def test_one_iteration_by_hand(tmp_path: Path) -> None:
    """A prompt of five tokens in blocks of four, read at once: what the line has to say is countable."""
    from engine.config import EngineConfig
    from engine.records import BlockChange, Limit, PrefixStats, Slots, Timings

    config = EngineConfig.resolve({"num_blocks": 8, "block_size": 4, "max_num_seqs": 2})
    it = Iteration(
        seq=0, step=1, t_start=0.5, t_end=0.75, timings=Timings(0.001, 0.0, 0.2), budget=256, order="a",
        arrived=(
            Arrived("x", "c", 0, 0.25, (1, 2, 3, 4, 65535), "hi", 3, "greedy", params=SamplingParams(max_tokens=3)),
        ),
        scheduled=(Scheduled("x", 5, Kind.NEW, Phase.PREFILL, 0, 0, (1, 2)),), tokens=(Token("x", 7, " seven"),),
        running=("x",), free_blocks_mid=5, free_blocks=5, free_cpu_blocks=8,
        blocks=(BlockChange(1, "x", 1, True), BlockChange(2, "x", 1, False)), slots=Slots(2, 1),
        prefix=PrefixStats(5, 0), limit=Limit.UNDERLOADED,
    )  # fmt: skip
    with Recorder(tmp_path / "one", header_of(config)) as recorder:
        recorder.add(it)
    lines = [json.loads(line) for line in (tmp_path / "one").read_bytes().splitlines()]
    assert [line["k"] for line in lines] == ["hdr", "kf", "req", "pid", "voc", "it", "ix", "end"]
    _, _, req, pid, voc, told, ix, end = lines
    assert (req["id"], req["t"], req["pl"], req["client"]) == ("x", 250_000_000, 5, "c")
    assert pid["ids"][0] == "2" and base64.b64decode(pid["ids"][1:]) == bytes([1, 0, 2, 0, 3, 0, 4, 0, 255, 255])
    assert voc["v"] == [[7, " seven"]]
    assert (told["t"], told["d"], told["tm"]) == (500_000_000, 250_000_000, [1_000_000, 0, 200_000_000])
    assert told["adm"] == [[0, 5, "new", "prefill"]] and told["blk"] == [1, -1]
    assert told["n"] == [0, 1, 2, 1, 5]  # two blocks used, the full one of them cached, five tokens
    assert "bl" not in told and "run" not in told  # as expected of an admission
    assert (ix["n"], ix["st"], ix["ids"]) == (1, 1, ["x"])
    assert (end["n"], end["s"], end["requests"]) == (1, 1, 1)
    assert list(Recording.open(tmp_path / "one").iterations()) == [it]


def test_odd_values_come_back(tmp_path: Path) -> None:
    config, _ = random_run(0, 1)
    text = "half \ud800 of a pair, \u2028, \x00 and \x1b[31m"
    it = Iteration(
        seq=0, step=0, t_start=1e-12, t_end=1 / 3, notices=(text,), pace=float("inf"), fault="line 1\nline 2",
        rejected=(Rejected("", "c\n", text),), order="r", free_blocks=config.num_blocks - 1,
        arrived=(
            Arrived(
                "7", "", -5, -0.1, (1, 1 << 40), text, 3, "T 0.5", 1e300, None,
                SamplingParams(temperature=0.5, stop=("é",)), "s", "7", 1e-9,
            ),
        ),
    )  # fmt: skip
    it = dataclasses.replace(it, free_blocks_mid=config.num_blocks - 1, num_waiting=1, waiting=("7",))
    with Recorder(tmp_path / "odd", header_of(config)) as recorder:
        recorder.add(it)
    assert list(Recording.open(tmp_path / "odd").iterations()) == [it]


@given(st.lists(st.integers(-3, 1 << 30)))
def test_packed_integers(values: list[int]) -> None:
    assert unpack(json.loads(json.dumps(pack(values)))) == values


@given(st.lists(st.integers(0, 60)))
def test_ranges(values: list[int]) -> None:
    assert from_ranges(to_ranges(values)) == values == from_short(to_short(values))
    flags = [n in values for n in range(61)]
    assert from_ranges(flag_ranges(flags)) == sorted(set(values))
    steps = sorted(set(values))
    assert runs(steps) == to_ranges(steps)


def test_ranges_by_hand() -> None:
    assert to_ranges([5, 6, 7, 9, 8, 9]) == [5, -2, 9, 8, -1]
    assert flag_ranges([0, 1, 1, 0, 1]) == [1, -1, 4]
    for bad in ([-2], [1, -(1 << 40)]):
        with pytest.raises(ValueError):
            from_ranges(bad)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_splices(before: list[int], after: list[int]) -> None:
    change = splice(before, after)
    assert (change is None) == (before == after)
    if change is not None:
        start, gone, new = change
        assert [*before[:start], *new, *before[start + gone :]] == after


@given(st.floats(allow_nan=False))
def test_times(seconds: float) -> None:
    assert to_seconds(json.loads(json.dumps(to_units(seconds)))) == seconds


def test_times_by_hand() -> None:
    assert to_units(1.5) == 1_500_000_000 and to_units(0.1) == 100_000_000
    assert to_units(1 / 3) == 1 / 3 and to_units(float("inf")) == "inf"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_lines(value: Any) -> None:
    raw = dump({"k": "x", "v": value})
    assert raw.endswith(b"\n") and raw.count(b"\n") == 1 and load(raw)["v"] == value


def test_without_tokens_no_text_is_in_the_file(tmp_path: Path) -> None:
    config, records = random_run(5, 200, num_blocks=60)
    assert any(token.text for it in records for token in it.tokens)
    record(tmp_path / "run", config, records, tokens=False)
    data = (tmp_path / "run").read_bytes()
    kinds = {json.loads(line)["k"] for line in data.splitlines()}
    assert not kinds & {"pid", "voc"} and b"ask" not in data and b'"AB"' not in data and b'"tok"' not in data
    recording = Recording.open(tmp_path / "run")
    assert list(recording.iterations()) == [without_text(it) for it in records] and not recording.notes
    found = {one.id: len(one.prompt_ids) for one in recording.arrivals()}
    assert found == {one.id: len(one.prompt_ids) for it in records for one in it.arrived}
    view = fresh_view(config)
    for it in records:
        view.apply(it)
    again = recording.view_at(recording.last_step)
    for id in view.running:
        assert again.requests[id].output_len == view.requests[id].output_len
