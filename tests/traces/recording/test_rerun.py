"""A recording run again for real gives the same iterations, and whatever was changed in it is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.build import build_engine
from engine.clock import Clock
from engine.engine import Engine
from engine.host import EngineInfo
from engine.request import Request
from engine.sampling_params import SamplingParams
from traces.errors import RecordingError
from traces.recording import Header, Recorder, Recording
from traces.recording.rerun import compare, rerun_recording

KNOBS = {
    "num_blocks": 24, "block_size": 4, "max_num_seqs": 6, "max_num_batched_tokens": 32, "max_model_len": 60,
    "scheduler_reserve_full_isl": False,
}  # fmt: skip


def factory(knobs: dict[str, Any], clock: Clock) -> Engine:
    return build_engine(None, knobs, model_name="tiny", clock=clock, seed=5).engine


def play(path: Path, *, tokens: bool = True, dtype: str = "float32", **asked: Any) -> EngineInfo:
    """Preemptions, knob changes, an abort, sampling: all on the tiny model."""
    built = build_engine(None, KNOBS | asked, model_name="tiny", seed=5)
    engine, info = built.engine, built.info
    info = EngineInfo(**{name: getattr(info, name) for name in info.__slots__} | {"dtype": dtype})
    recorder = Recorder(path, Header.of(info, now=engine.clock.now(), seed=5), tokens=tokens)
    for n in range(9):
        prompt = [(7 * n + k) % 250 for k in range(10 + n)]
        params = SamplingParams(max_tokens=14, temperature=0.8 * (n % 2), ignore_eos=True)
        engine.submit(Request(f"r{n}", prompt, params, priority=n % 3))
    steps = preempted = 0
    while engine.has_work():
        if steps == 6:
            engine.set_knob("max_num_seqs", 3)
        if steps == 9:
            engine.abort("r2")
            engine.try_knob("num_blocks", 14)
        if steps == 14:
            engine.set_knob("policy", "sjf")
        it = engine.step()
        assert it is not None
        recorder.add(it)
        steps += it.executed
        preempted += len(it.preempted)
    assert preempted
    recorder.close()
    return info


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_the_same_again(mode: str, tmp_path: Path) -> None:
    play(tmp_path / "run", preemption_mode=mode)
    recording = Recording.open(tmp_path / "run")
    result = rerun_recording(recording, factory)
    assert result.difference is None and result.steps == result.total == recording.last_step > 20
    assert not result.notes


def test_another_seed_is_found(tmp_path: Path) -> None:
    play(tmp_path / "run")
    recording = Recording.open(tmp_path / "run")
    result = rerun_recording(
        recording, lambda knobs, clock: build_engine(None, knobs, model_name="tiny", clock=clock, seed=6).engine
    )
    assert result.difference is not None and result.difference.field == "tokens"
    first = next(it for it in recording.iterations() if it.seq == result.difference.seq)
    assert first.step == result.difference.step and result.difference.recorded in first.tokens
    assert "tokens: recorded" in str(result.difference)


def test_a_changed_record_is_found(tmp_path: Path) -> None:
    play(tmp_path / "run")
    recording = Recording.open(tmp_path / "run")
    lines = (tmp_path / "run").read_bytes().splitlines()
    for at, raw in enumerate(lines):
        line = json.loads(raw)
        if line["k"] == "it" and line["n"][0] and "wait" not in line and line["i"] > 10:
            line["wait"] = [0, 1, []]  # the head of the queue is gone
            lines[at] = json.dumps(line, separators=(",", ":")).encode()
            seq = line["i"]
            break
    kept = [line for line in lines if not line.startswith((b'{"k":"ix"', b'{"k":"end"'))]
    (tmp_path / "changed").write_bytes(b"\n".join(kept) + b"\n")
    difference = rerun_recording(Recording.open(tmp_path / "changed"), factory).difference
    assert difference is not None and (difference.seq, difference.field) == (seq, "waiting")
    records = list(recording.iterations())
    assert all(compare(it, it) is None for it in records)


def test_what_cannot_be_run_again(tmp_path: Path) -> None:
    play(tmp_path / "short", tokens=False)
    with pytest.raises(RecordingError, match="no prompts"):
        rerun_recording(Recording.open(tmp_path / "short"), factory)
    play(tmp_path / "run", dtype="bfloat16")
    recording = Recording.open(tmp_path / "run")
    assert any("tokens may differ" in note for note in rerun_recording(recording, factory).notes)
    view, _ = recording.before(0)
    records = list(recording.iterations())
    for it in records[:5]:
        view.apply(it)
    late = Recorder(tmp_path / "late", recording.header, view=view.copy())
    for it in records[5:]:
        late.add(it)
    late.close()
    with pytest.raises(RecordingError, match="in the middle of a run"):
        rerun_recording(Recording.open(tmp_path / "late"), factory)
