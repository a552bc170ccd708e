"""Any iteration, from anywhere: the state is the one that folding all records gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.records import Iteration
from engine.request import RequestStatus
from tests.traces.recording.runs import assert_same_view, fresh_view, header_of, living, random_run, record
from traces.recording import Mark, Marks, Recorder, Recording
from traces.recording.keyframe import RestoredView


@pytest.mark.parametrize("seed", [1, 2, 11])
@pytest.mark.parametrize("start", [0, 60])
def test_every_step(seed: int, start: int, tmp_path: Path) -> None:
    config, records = random_run(seed, 330)
    view = record(tmp_path / "run", config, records, start=start)
    recording = Recording.open(tmp_path / "run")
    assert (recording.first_seq, recording.num_records) == (start, len(records) - start)
    assert recording.first_step == view.step + 1 and recording.last_step == records[-1].step
    rng = random.Random(seed)
    views = {}
    for it in records[start:]:
        view.apply(it)
        if it.executed:
            assert recording.seq_of(it.step) == it.seq
            assert recording.ends[it.step - recording.first_step] == it.t_end
            assert recording.durations[it.step - recording.first_step] == pytest.approx(it.duration, abs=1e-9)
            views[it.step] = view.copy()
    steps = list(views)
    rng.shuffle(steps)
    for step in steps:
        assert_same_view(recording.view_at(step), views[step])


def test_windows_and_groups(tmp_path: Path) -> None:
    config, records = random_run(4, 330)
    record(tmp_path / "run", config, records)
    recording = Recording.open(tmp_path / "run")
    view, inside = recording.window(140, 150)
    first, last = recording.seq_of(140), recording.seq_of(150)
    assert inside == records[first : last + 1]
    expected = fresh_view(config)
    for it in records[:first]:
        expected.apply(it)
    assert_same_view(view, expected)
    view, at = recording.before(first)
    assert at <= first and view.seq == at - 1 and first - at < 128
    for it in records[at:]:
        view.apply(it)
    for it in records[first:]:
        expected.apply(it)
    assert living(view) == living(expected)


def test_a_restored_view_and_its_copy_go_on_by_themselves(tmp_path: Path) -> None:
    config, records = random_run(7, 330)
    record(tmp_path / "run", config, records)
    recording = Recording.open(tmp_path / "run")
    view = recording.view_at(200)
    assert isinstance(view, RestoredView)
    copy = view.copy()
    seq = view.seq
    for it in records[seq + 1 : seq + 60]:
        copy.apply(it)
    expected = fresh_view(config)
    for it in records[: seq + 1]:
        expected.apply(it)
    assert_same_view(view, expected)
    for it in records[seq + 1 : seq + 60]:
        expected.apply(it)
    assert_same_view(copy, expected)


def test_what_is_not_read_is_known_by_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view is restored without reading a prompt or an answer of the requests in it."""
    config, records = random_run(12, 330, num_blocks=30, batching="continuous", policy="fcfs")
    record(tmp_path / "run", config, records)
    recording = Recording.open(tmp_path / "run")
    group = next(group for group in recording.groups[2:] if group.records)
    expected = fresh_view(config)
    for it in records[: group.seq]:
        expected.apply(it)
    view, _ = recording.before(group.seq)
    lengths = {id: (len(r.prompt_ids), r.output_len) for id, r in expected.requests.items() if id in living(expected)}
    for name in ("_prompt_ids", "records"):
        monkeypatch.setattr(recording._store, name, lambda *_: pytest.fail("was read"))
    assert {id: (view.requests[id].prompt_len, view.requests[id].output_len) for id in lengths} == lengths


def test_tokens_of(tmp_path: Path) -> None:
    config, records = random_run(9, 330, num_blocks=39, block_size=4)
    record(tmp_path / "run", config, records)
    recording = Recording.open(tmp_path / "run")
    view = recording.view_at(recording.last_step)
    told = {
        id: ([token.token_id for it in records for token in it.tokens if token.id == id], "".join(
            token.text for it in records for token in it.tokens if token.id == id
        ))
        for id in view.running
    }  # fmt: skip
    assert told and {id: recording.tokens_of(view, id) for id in view.running} == told


def test_arrivals_need_no_decoding(tmp_path: Path) -> None:
    config, records = random_run(10, 200)
    record(tmp_path / "run", config, records)
    recording = Recording.open(tmp_path / "run")
    assert list(recording.arrivals()) == [one for it in records for one in it.arrived]


@pytest.mark.parametrize("close", [True, False])
def test_marks_and_bookmarks(close: bool, tmp_path: Path) -> None:
    config, records = random_run(1, 330)
    recorder = Recorder(tmp_path / "run", header_of(config))
    expected = [0] * (records[-1].step + 1)
    marks = Marks()
    for it in records:
        recorder.add(it)
        mark = marks.add(it)
        expected[mark.step] |= mark.bits
        if it.seq in (5, 140, len(records) - 1):
            recorder.mark(it.step, f"look, {it.seq}\n")
    if close:
        recorder.close()
    recording = Recording.open(tmp_path / "run")
    assert recording.bookmarks == [(records[n].step, f"look, {n}\n") for n in (5, 140, len(records) - 1)]
    assert recording.marks.tolist() == expected[1:]
    finished = {it.step for it in records if it.finished and it.step}
    assert {step for step, bits in enumerate(expected) if bits & Mark.FINISH and step} == finished
    for step in (0, 1, 77, records[-1].step, records[-1].step + 5):
        assert recording.next_mark(step, 1, Mark.FINISH) == min((one for one in finished if one > step), default=None)
        assert recording.next_mark(step, -1, Mark.FINISH) == max((one for one in finished if one < step), default=None)
    assert recording.record_at(77) == next(it for it in records if it.step == 77 and it.executed)


def test_slow_is_three_times_the_median() -> None:
    marks = Marks()

    def took(step: int, seconds: float) -> bool:
        it = Iteration(seq=step, step=step, t_start=step, t_end=step + seconds, scheduled=("x",))  # type: ignore[arg-type]
        return bool(marks.add(it).bits & Mark.SLOW)

    assert not took(1, 9.0)  # nothing to compare with
    assert not any(took(step, 0.010) for step in range(2, 12))
    assert not took(12, 0.029) and took(13, 0.031)
    slow = [took(step, 0.1) for step in range(14, 80)]
    assert slow[0] and not slow[-1]
    assert not took(80, 0.29) and took(81, 0.31)  # by now 100 ms is usual
    quick = Marks()
    for step in range(20):
        quick.add(Iteration(seq=step, step=step, t_start=0.0, t_end=1e-5, scheduled=("x",)))  # type: ignore[arg-type]
    assert not quick.add(Iteration(seq=20, step=20, t_start=0.0, t_end=4e-4, scheduled=("x",))).bits  # type: ignore[arg-type]


def test_many_wait(tmp_path: Path) -> None:
    """Those far back in the queue are made when they are asked for, and are the same then."""
    from engine.request import Request
    from engine.sampling_params import SamplingParams
    from tests.engine.fakes import fake_engine

    engine, executor = fake_engine(num_blocks=64, block_size=4, max_num_seqs=4)
    executor.reads = False
    for n in range(1500):
        engine.submit(Request(f"q{n}", [n % 200, 1, 2], SamplingParams(max_tokens=5, ignore_eos=True), priority=n % 3))
    view = fresh_view(engine.config)
    recorder = Recorder(tmp_path / "run", header_of(engine.config))
    for _ in range(200):
        it = engine.step()
        assert it is not None
        recorder.add(it)
        view.apply(it)
    recording = Recording.open(tmp_path / "run")
    found = recording.view_at(200)
    assert found.num_waiting == view.num_waiting > 1200
    unread = dict.__len__(found.requests)
    assert unread < 300 and len(found.requests) >= len(living(view))
    assert found.waiting_ids(100) == view.waiting_ids(100)
    assert found.requests["q1499"] == view.requests["q1499"] and "q1400" in found.requests
    assert found.requests.get("nobody") is None
    assert living(found) == living(view)
    assert all(found.requests[id] == view.requests[id] for id in living(view))
    assert found.requests["q1499"].status is RequestStatus.WAITING
