"""Phases of requests: without gaps, from records that begin anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.host import EngineInfo
from engine.view import EngineView
from tests.traces.exports.runs import random_run
from traces.exports.lives import Doing, Life, Lives
from traces.exports.recorded import info_at


def followed(info: EngineInfo, records: list) -> tuple[Lives, list[Life]]:
    lives, ended = Lives(info), []
    for it in records:
        assert lives.add(it) is it or it.seq > 0
        ended += lives.ended
    return lives, ended


@pytest.mark.parametrize("seed", range(6))
def test_phases_fill_a_life(seed: int) -> None:
    run = random_run(seed)
    _, ended = followed(run.info, run.records)
    view = EngineView(run.info.config.num_blocks, run.info.config.block_size, run.info.config.values())
    for it in run.records:
        view.apply(it)
    assert len(ended) == 42
    for life in ended:
        if life.arrived is None:
            continue
        seen = view.requests[life.row.id]
        assert life.spans[0].doing is Doing.QUEUED and life.spans[0].start == life.began
        assert life.spans[-1].end == life.ended
        assert all(one.end == two.start for one, two in pairwise(life.spans))
        assert all(one.doing is not two.doing for one, two in pairwise(life.spans))
        assert list(life.row.times) == seen.token_times
        assert (life.row.preemptions, life.row.recomputed_tokens, life.row.cached_tokens) == (
            seen.preemptions, seen.recomputed_tokens, seen.cached_tokens,
        )  # fmt: skip
        assert life.row.first_scheduled == seen.first_scheduled
        thrown_out = sum(span.doing in (Doing.PREEMPTED, Doing.SWAPPED) for span in life.spans)
        assert thrown_out >= seen.preemptions
        if seen.finish_reason == "length":
            assert life.ended == seen.finished_at


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first", [1, 25, 70])
def test_records_that_begin_in_the_middle(seed: int, first: int) -> None:
    """Requests that came later are told exactly as in the whole run; the others not at all."""
    run = random_run(seed, count=60)
    config = run.info.config
    view = EngineView(config.num_blocks, config.block_size, config.values())
    for it in run.records[:first]:
        view.apply(it)
    there = {request.id for request in view.requests.values() if request.finished_at is None}
    whole, all_ended = followed(run.info, run.records)
    info = info_at(run.info, view)
    assert info.config.values() == view.knobs and info.config.allocated_blocks == view.num_blocks
    lives, ended = followed(info, run.records[first:])
    came = {new.id for it in run.records[first:] for new in it.arrived}
    assert {life.row.id for life in ended if life.arrived} == came
    assert lives.strangers == len(there) > 0
    told = {life.row.id: (life.spans, life.row) for life in all_ended}
    for life in ended:
        assert (life.spans, life.row) == told[life.row.id]
    it = run.records[-1]
    assert lives.used_blocks(it) == whole.used_blocks(it)


def test_a_whole_run_has_no_strangers() -> None:
    run = random_run(1, count=5)
    lives, _ = followed(run.info, run.records)
    assert lives.strangers == 0
