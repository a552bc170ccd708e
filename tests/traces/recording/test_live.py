"""Recording a running engine: begun in the middle from what the caller has folded, without a gap."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.commands import RunSteps
from engine.loop import EngineThread
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView
from tests.engine.fakes import fake_engine
from tests.traces.recording.runs import assert_same_view, fresh_view, header_of, info_of
from traces.recording import Recorder, Recording
from traces.recording.check import check


@pytest.mark.parametrize("tokens", [True, False])
def test_begun_and_ended_while_it_runs(tokens: bool, tmp_path: Path) -> None:
    engine, executor = fake_engine(num_blocks=60, block_size=4, max_num_seqs=6, scheduler_reserve_full_isl=False)
    executor.reads = False
    executor.hook = lambda plan: time.sleep(0.0004)
    for n in range(60):
        engine.submit(Request(f"r{n}", [n, 2, 3], SamplingParams(max_tokens=30, ignore_eos=True)))
    host = EngineThread(engine, info_of(engine.config))
    view = fresh_view(engine.config)
    drained: list[Iteration] = []

    def drain() -> None:
        for it in host.drain():
            drained.append(it)
            view.apply(it)

    def until(step: int) -> None:
        limit = time.monotonic() + 20
        while view.step < step:
            assert time.monotonic() < limit
            drain()

    host.start()
    until(60)
    before = view.copy()
    recorder = Recorder(tmp_path / "late", header_of(engine.config), view=view.copy(), tokens=tokens)
    host.observe(recorder)
    until(130)
    recorder.mark(view.step, "here")
    until(220)
    host.observe(None)
    host.post(RunSteps(3))
    assert host.stop(10)
    drain()
    assert recorder.closed and recorder.fault is None
    recording = Recording.open(tmp_path / "late")
    assert check(recording) == []
    first = before.seq + 1
    assert (recording.first_seq, recording.header.first_seq) == (first, first) and not recording.header.complete
    assert recording.first_step == before.step + 1 <= 220 <= recording.last_step
    assert [text for _, text in recording.bookmarks] == ["here"]
    if not tokens:
        return
    assert list(recording.iterations()) == drained[first : first + recording.num_records]
    state: EngineView = before
    for it in drained[first : first + recording.num_records]:
        state.apply(it)
        if it.step % 37 == 0:  # with what requests had said before the recording began
            assert_same_view(recording.view_at(it.step), state)
