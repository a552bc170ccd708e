"""A recording in memory: what `Playback` asks of one, from a list of records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.host import EngineInfo
from engine.records import Iteration
from engine.view import EngineView


class InMemory:
    name = "/nowhere/run.wbrec.jsonl"
    notes: tuple[str, ...] = ()
    bookmarks: tuple[tuple[int, str], ...] = ()

    def __init__(self, info: EngineInfo, records: list[Iteration], marks: list[int]) -> None:
        self.info = info
        self.records = records
        self.steps = {it.step: it.seq for it in records if it.executed}
        self.marks = np.array(marks, np.uint8)
        self.ends = np.array([it.t_end for it in records if it.executed])
        self.loads = 0

    @property
    def first_step(self) -> int:
        return 1

    @property
    def last_step(self) -> int:
        return len(self.steps)

    def window(self, first_step: int, last_step: int) -> tuple[EngineView, list[Iteration]]:
        self.loads += 1
        start = max(0, self.steps[first_step] - 7)
        config = self.info.config
        view = EngineView(config.num_blocks, config.block_size, config.values())
        for it in self.records[:start]:
            view.apply(it)
        return view, self.records[start : self.steps[last_step] + 1]

    def iterations(self, first_seq: int = 0, stop: int | None = None) -> Iterator[Iteration]:
        yield from self.records[first_seq:stop]

    def number_of(self, view: EngineView, id: str) -> int | None:
        return None
