"""An engine is built anew under its queue: other blocks, another dtype, another model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.build import build_engine
from engine.clock import ManualClock
from engine.commands import Pause, Rebuild, Resume, SetKnob, Submit
from engine.engine import Engine
from engine.errors import ConfigError
from engine.host import EngineInfo, Fresh
from engine.loop import EngineThread
from engine.records import Cause, Finished, Iteration
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView
from tests.engine.fakes import fake_engine, made_up
from tests.engine.harness import check_view, submit_all, tiny_engine
from traces.metrics import Metrics


def view_of(engine: Engine) -> EngineView:
    return EngineView(engine.config.num_blocks, engine.config.block_size, engine.config.values())


def follow(engine: Engine, view: EngineView, steps: int = 10_000) -> dict[str, Finished]:
    """Step and fold; the ends by id."""
    ends = {}
    while steps and engine.has_work():
        it = engine.step()
        assert it is not None
        view.apply(it)
        check_view(view, engine)
        ends.update({end.id: end for end in it.finished})
        steps -= 1
    return ends


def test_another_block_size_keeps_queue_and_tokens() -> None:
    clock = ManualClock()
    engine, _ = fake_engine(clock, num_blocks=30, block_size=4, max_num_seqs=3)
    view = view_of(engine)
    for number in range(6):
        arrival = 5.0 if number == 5 else None
        params = SamplingParams(max_tokens=9, ignore_eos=True)
        engine.submit(Request(f"r{number}", [number] * 10, params, arrival=arrival))
    ends = follow(engine, view, 4)
    assert len(engine.scheduler.running) == 3
    new, _ = fake_engine(clock, num_blocks=12, block_size=16, max_num_seqs=2)
    engine.rebuild(new, "fake", "none")
    clock.advance(5.0)
    it = engine.step()
    assert it is not None and it.rebuilt is not None and it.rebuilt.block_size == 16
    assert [victim.id for victim in it.preempted] == ["r0", "r1", "r2"]
    assert {victim.cause for victim in it.preempted} == {Cause.REBUILD}
    changed = {"num_blocks", "block_size", "max_num_seqs", "max_model_len", "num_cpu_blocks"}
    assert {change.name for change in it.knobs} == changed
    view.apply(it)
    check_view(view, engine)
    assert list(view.running) == ["r0", "r1"], "the queue keeps its order"
    ends |= follow(engine, view)
    assert {id: end.output_len for id, end in ends.items()} == {f"r{n}": 9 for n in range(6)}
    for number in range(6):
        assert view.requests[f"r{number}"].token_ids == [made_up(f"r{number}", 10 + n) for n in range(9)]


def test_who_does_not_fit_any_more_ends_with_the_reason() -> None:
    engine, _ = fake_engine(num_blocks=30, block_size=4, max_num_seqs=1)
    view = view_of(engine)
    engine.submit(Request("running", [1] * 40, SamplingParams(max_tokens=20, ignore_eos=True)))
    engine.submit(Request("waiting", [1] * 50, SamplingParams(max_tokens=20, ignore_eos=True)))
    engine.submit(Request("planned", [1] * 50, SamplingParams(max_tokens=20, ignore_eos=True), arrival=9.0))
    follow(engine, view, 3)
    new, _ = fake_engine(num_blocks=9, block_size=4)
    engine.rebuild(new, "fake", "none")
    it = engine.step()
    assert it is not None
    view.apply(it)
    ends = {end.id: end for end in it.finished}
    assert ends["running"].reason is FinishReason.LENGTH and "max_model_len is now 32" in ends["running"].detail
    assert ends["waiting"].reason is FinishReason.ERROR
    assert [refused.id for refused in it.rejected] == ["planned"]
    assert not engine.has_work()


def test_real_tokens_survive_a_change_of_blocks() -> None:
    prompts = [[(7 * n + k) % 256 for k in range(20 + n)] for n in range(5)]
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    plain = tiny_engine()
    ids = submit_all(plain, prompts, params)
    view = view_of(plain)
    follow(plain, view)
    expected = [view.requests[id].token_ids for id in ids]
    engine = tiny_engine()
    submit_all(engine, prompts, params)
    view = view_of(engine)
    follow(engine, view, 6)
    engine.rebuild(tiny_engine(block_size=4, num_blocks=64, enable_prefix_caching=False), "tiny", "float32")
    follow(engine, view)
    assert [view.requests[id].token_ids for id in ids] == expected
    assert view.block_size == 4 and view.num_blocks == 64 and view.knobs["enable_prefix_caching"] is False


def test_another_model_starts_the_waiting_ones_anew_and_ends_the_others() -> None:
    engine, _ = fake_engine(num_blocks=64, max_num_seqs=1)
    view = view_of(engine)
    for id, text in (("a", "first"), ("b", "second"), ("c", None)):
        prompt = [1, 2, 3] if text is None else list(text.encode())
        engine.submit(Request(id, prompt, SamplingParams(max_tokens=5, ignore_eos=True), prompt_text=text))
    ends = follow(engine, view, 2)
    new, _ = fake_engine(num_blocks=64)

    def reencode(request: Request) -> list[int] | None:
        return None if request.prompt_text is None else list(request.prompt_text.upper().encode())

    engine.rebuild(new, "other", "none", reencode)
    ends |= follow(engine, view)
    assert ends["a"].reason is FinishReason.ABORT and "model" in ends["a"].detail
    assert bytes(view.requests["b"].prompt_ids) == b"SECOND" and ends["b"].output_len == 5
    assert view.requests["c"].prompt_ids == (1, 2, 3) and ends["c"].output_len == 5


class Thread:
    """An EngineThread on the tiny model, with its records."""

    def __init__(self) -> None:
        built = build_engine(None, {}, model_name="tiny")
        self.asked: list[dict[str, Any]] = []
        self.thread = EngineThread(built.engine, built.info, self.rebuild)
        self.clock = built.engine.clock
        self.records: list[Iteration] = []

    def rebuild(self, changes: dict[str, Any]) -> Fresh:
        self.asked.append(changes)
        built = build_engine(None, changes, model_name="tiny", clock=self.clock)
        return Fresh(built.engine, built.info, None)

    def until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + 20
        while not condition():
            self.records += self.thread.drain()
            assert time.monotonic() < limit and self.thread.alive, self.records[-1:]
            time.sleep(0.002)


def test_through_the_thread() -> None:
    host = Thread()
    host.thread.post(Pause())
    host.thread.start()
    request = Request("r0", [1] * 20, SamplingParams(max_tokens=5, ignore_eos=True))
    host.thread.post(Submit((request,)))
    host.thread.post(SetKnob("max_num_seqs", 3))
    host.thread.post(Rebuild({"block_size": 4097}))
    host.thread.post(Rebuild({"block_size": 32}))
    host.thread.post(Resume())
    host.until(lambda: any(it.finished for it in host.records))
    assert host.asked[-1] == {"max_num_seqs": 3, "block_size": 32}, "knobs turned meanwhile are kept"
    notices = [notice for it in host.records for notice in it.notices]
    assert any(notice.startswith("refused block_size: 4097") for notice in notices)
    assert [it.rebuilt.block_size for it in host.records if it.rebuilt] == [32]
    assert host.thread.info.config.block_size == 32
    host.thread.post(SetKnob("num_blocks", 100))
    host.thread.post(Rebuild({"block_size": 8}))
    host.records.clear()
    host.until(lambda: any(it.off_blocks for it in host.records) and any(it.rebuilt for it in host.records))
    host.until(lambda: host.records[-1].off_blocks == 412)
    host.thread.post(SetKnob("num_blocks", 512))
    host.until(lambda: host.records[-1].off_blocks == 0)
    assert host.thread.stop()


def test_without_a_builder_it_is_refused() -> None:
    engine, _ = fake_engine()
    info = EngineInfo("fake", "cpu", "none", 1, engine.config, 259, 0, 0)
    thread = EngineThread(engine, info)
    thread.start()
    thread.post(Rebuild({"block_size": 8}))
    records: list[Iteration] = []
    limit = time.monotonic() + 10
    while not records and time.monotonic() < limit:
        records += thread.drain()
        time.sleep(0.002)
    assert "refused block_size" in records[0].notices[0]
    assert thread.stop()
    with pytest.raises(ConfigError, match="built anew"):
        engine.set_knob("block_size", 8)


def test_who_arrives_with_a_new_model_is_told_once() -> None:
    engine, _ = fake_engine(num_blocks=64, max_num_seqs=1)
    view = view_of(engine)
    engine.submit(Request("a", [1] * 5, SamplingParams(max_tokens=5, ignore_eos=True)))
    for length in (9, 7):  # two rebuilds before a record
        new, _ = fake_engine(num_blocks=64)
        engine.rebuild(new, "other", "none", lambda request, length=length: [7] * length)  # type: ignore[misc]
    it = engine.step()
    assert it is not None and it.rebuilt is not None and it.rebuilt.prompts == ()
    view.apply(it)
    check_view(view, engine)
    assert view.requests["a"].prompt_ids == (7,) * 7


def test_prompts_encoded_twice_before_a_record() -> None:
    engine, _ = fake_engine(num_blocks=64, max_num_seqs=1)
    view = view_of(engine)
    metrics = Metrics(EngineInfo("fake", "cpu", "none", 1, engine.config, 259, 0, 0))

    def take(it: Iteration | None) -> None:
        assert it is not None
        view.apply(it)
        metrics.add(it)
        check_view(view, engine)

    for id in ("a", "b"):
        engine.submit(Request(id, [1] * 5, SamplingParams(max_tokens=5, ignore_eos=True), client=id))
    take(engine.step())
    for length in (9, 40):
        new, _ = fake_engine(num_blocks=64)
        engine.rebuild(new, "other", "none", lambda request, length=length: [7] * length)  # type: ignore[misc]
    while engine.has_work():
        take(engine.step())
    assert len(view.requests["b"].prompt_ids) == 40
    account = metrics.summary()["clients"]["b"]
    assert account["tokens"]["prompt"] == 40 and account["service"] == 50


def test_swapped_out_ones_are_not_preempted_again() -> None:
    engine, _ = fake_engine(
        num_blocks=10, block_size=4, max_model_len=30, preemption_mode="swap", scheduler_reserve_full_isl=False
    )
    view = view_of(engine)
    for number in range(4):
        engine.submit(Request(f"r{number}", [number] * 8, SamplingParams(max_tokens=14, ignore_eos=True)))
    while not engine.scheduler.swapped:
        follow(engine, view, 1)
    before = {id: request.preemptions for id, request in view.requests.items()}
    swapped = [request.id for request in engine.scheduler.swapped]
    new, _ = fake_engine(num_blocks=64, block_size=4)
    engine.rebuild(new, "fake", "none")
    ends = follow(engine, view)
    assert all(ends[id].preemptions == before[id] for id in swapped)
    assert {end.output_len for end in ends.values()} == {14}
