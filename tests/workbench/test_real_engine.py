"""The live screen over the real engine thread with the tiny model."""

from __future__ import annotations

import time

from engine.request import FinishReason
from tests.workbench.driving import SMALL, live_screen
from workbench.app import Options, WorkbenchApp
from workbench.session import RunOptions, build_session


async def test_inject_watch_and_quit():
    options = RunOptions(model="tiny", knobs={"num_blocks": 24, "max_num_batched_tokens": 64}, no_workload=True)
    app = WorkbenchApp(lambda progress: build_session(options, None, progress), Options(fps=15))
    async with app.run_test(size=SMALL) as pilot:
        live = await live_screen(app, pilot)
        live.values.max_tokens, live.values.count = "12", "3"
        await pilot.press("i", "enter")
        view = live.history.live
        deadline = time.monotonic() + 30
        while view.finished[FinishReason.LENGTH] + view.finished[FinishReason.STOP] < 3:
            assert time.monotonic() < deadline, view.finished
            await pilot.pause(0.02)
        await pilot.press("comma")
        await pilot.pause(0.1)
        assert live.cursor is not None and live.scene.view.step == live.cursor
        await pilot.press("end", "k", "right_square_bracket", "enter")
        while live.history.live.knob_version == 0:
            assert time.monotonic() < deadline
            await pilot.pause(0.02)
        assert "applied" in live.knobs.answer
        begun = time.monotonic()
        await pilot.press("q")
    app.stopping.join(2)
    assert not app.host.alive and time.monotonic() - begun < 2


def test_what_the_engine_decided_by_itself_reaches_the_screen():
    session = build_session(RunOptions(model="tiny", no_workload=True), None, lambda stage, done, total: None)
    session.host.start()
    try:
        for _ in range(200):
            records = session.host.drain()
            if records:
                break
            time.sleep(0.02)
        assert any("max_model_len 4096: limited by the model" in notice for notice in records[0].notices)
    finally:
        assert session.host.stop(2.0)
