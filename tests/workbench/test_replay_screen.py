"""A replay on the live screen: how far it is, and that what has ended is let go."""

from __future__ import annotations

import gc
import time
from pathlib import Path

from engine.request import FinishReason, Request
from tests.workbench.driving import SMALL, WIDE, live_screen
from traces.scaling import Scaling
from traces.workload import RequestSpec, Workload
from workbench.app import Options, WorkbenchApp
from workbench.replaying import Replay
from workbench.session import RunOptions, build_session, load
from workbench.widgets.header import Header


def options() -> RunOptions:
    replay = Replay(Path("w.jsonl"), scaling=Scaling())
    return RunOptions(model="tiny", knobs={"num_blocks": 24}, costs=(10_000_000, 50_000), replay=replay)


def workload() -> Workload:
    specs = [RequestSpec(f"r{n}", arrival=100.0 * n, prompt_len=20, output_len=3) for n in range(5)]
    specs.append(RequestSpec("last", after="r4", delay=1000.0, prompt_len=20, output_len=3))
    return Workload("w", tuple(specs))


def text_of(header: Header, width: int) -> str:
    return "".join(span[0] for span in header.content(width, 1)[0])


async def test_the_header_tells_how_far_it_is_and_requests_are_let_go():
    asked = options()
    app = WorkbenchApp(lambda progress: build_session(asked, workload(), progress), Options(fps=15))
    begun = time.monotonic()
    async with app.run_test(size=WIDE) as pilot:
        live = await live_screen(app, pilot)
        view = live.history.live
        while view.finished[FinishReason.LENGTH] < 6:
            assert time.monotonic() < begun + 30
            await pilot.pause(0.02)
        await pilot.pause(0.2)
        header = live.query_one(Header)
        assert "replayed 6/6 done" in text_of(header, 160)
        assert " 6/6 done " in text_of(header, SMALL[0])
        assert view.requests["last"].arrival > 1400.0, "23 minutes of the trace's time"
        assert live.session.workload_requests == ()
        gc.unfreeze()  # what loading left is out of the collector's sight otherwise
        gc.collect()
        assert not [thing for thing in gc.get_objects() if type(thing) is Request], "their prompts stay in memory"
    app.stopping.join(2)
    assert time.monotonic() - begun < 60


def test_a_rebuild_keeps_the_virtual_clock_and_another_model_makes_other_prompts():
    loaded = load(options(), workload(), lambda *_: None)
    engine, clock = loaded.engine, loaded.engine.clock
    for request in loaded.requests:
        engine.submit(request)
    first = engine.step()
    assert first is not None and first.arrived[0].id == "r0"
    assert loaded.maker is not None
    before = loaded.maker.make(workload().specs[1], 20)
    fresh = load(options(), None, lambda *_: None, clock)
    engine.rebuild(fresh.engine, "tiny", "float32")
    loaded.maker.switch(loaded.tokenizer, 100)
    while engine.has_work():
        it = engine.step()
        if it is None:
            clock.advance_to(engine.next_event())
            continue
        assert it.timings.forward in (
            0.0, (10_000_000 + 50_000 * it.total_tokens) / 1e9
        )  # fmt: skip
        for new in it.arrived:
            assert len(new.prompt_ids) == 20 and max(new.prompt_ids) < 100
            assert new.id != "r1" or list(new.prompt_ids) != before
