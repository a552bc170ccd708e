"""A recording given as a workload asks for the same again: prompts, times, lengths, clients, sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clock import ManualClock
from engine.engine import Engine
from engine.host import EngineInfo
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from traces.readers import read_workload
from traces.readers.recorded import NOT_ENDED
from traces.recording import Header, Recorder

REQUESTS = [
    Request("a", [5, 6, 7], SamplingParams(max_tokens=4), client="ann", arrival=2.5, session="s"),
    Request("b", [8] * 9, SamplingParams(max_tokens=2, temperature=0.5, seed=3), priority=2, arrival=3.0),
    Request("c", [9] * 5, SamplingParams(max_tokens=30, stop=("no such text",)), arrival=3.25, deadline=1.5),
    Request("d", [4] * 4, SamplingParams(max_tokens=3), arrival=3.5, expected_output=7),
]


def record(path: Path, *, steps: int = 100, tokens: bool = True) -> Engine:
    """Runs REQUESTS; `c` is aborted after three tokens."""
    clock = ManualClock()
    engine, _ = fake_engine(clock, num_blocks=32, block_size=4, max_model_len=64, max_num_batched_tokens=64)
    info = EngineInfo("tiny", "cpu", "float32", 1, engine.config, 258, 0, 0)
    recorder = Recorder(path, Header.of(info, now=0.0), tokens=tokens)
    clock.advance(4.0)
    for request in REQUESTS:
        engine.submit(
            Request(
                request.id, request.token_ids, request.params, client=request.client, priority=request.priority,
                arrival=request.arrival, deadline=request.deadline, expected_output=request.expected_output,
                session=request.session,
            )
        )  # fmt: skip
    done = 0
    while engine.has_work() and done < steps:
        it = engine.step()
        assert it is not None
        recorder.add(it)
        done += 1
        if done == 3:
            engine.abort("c")
    recorder.close()
    return engine


def test_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "run.wbrec.jsonl"
    record(path)
    workload = read_workload(path)
    a, b, c, d = workload.specs
    assert workload.origin is not None and workload.origin.format == "recording"
    assert [spec.id for spec in workload.specs] == ["a", "b", "c", "d"]
    assert [spec.arrival for spec in workload.specs] == [0.0, 0.5, 0.75, 1.0]
    assert [spec.prompt_ids for spec in workload.specs] == [(5, 6, 7), (8,) * 9, (9,) * 5, (4,) * 4]
    assert [spec.output_len for spec in workload.specs] == [4, 2, 3, 3]
    assert (a.client, a.session, b.priority, c.deadline, d.expected_output) == ("ann", "s", 2, 1.5, 7)
    assert (b.temperature, b.seed, b.sampling().max_tokens) == (0.5, 3, 2)
    assert c.stop == () and not any(spec.failed for spec in workload.specs)


def test_a_recording_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.wbrec.jsonl"
    record(path, steps=2)
    workload = read_workload(path)
    a, b, c, d = workload.specs
    assert (b.output_len, b.max_tokens) == (2, None)
    assert [(spec.output_len, spec.max_tokens) for spec in (a, c, d)] == [(None, 4), (None, 30), (None, 3)]
    assert workload.report is not None and workload.report.clamped == {NOT_ENDED: 3}


def test_a_recording_without_prompts(tmp_path: Path) -> None:
    path = tmp_path / "run.wbrec.jsonl"
    record(path, tokens=False)
    workload = read_workload(path)
    assert [(spec.prompt_ids, spec.prompt_len) for spec in workload.specs] == [(None, n) for n in (3, 9, 5, 4)]
    assert any("made up" in note for note in workload.notes)


@pytest.mark.parametrize("lost", [1, 40])
def test_a_recording_whose_writer_was_killed(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "run.wbrec.jsonl"
    record(path)
    raw = path.read_bytes()
    last = raw.rindex(b"\n", 0, len(raw) - 1)
    path.write_bytes(raw[: last - lost])
    assert len(read_workload(path).specs) == 4
