"""Records that begin in the middle of a run: the engine as it was then."""

from __future__ import annotations

import dataclasses

from engine.host import EngineInfo
from engine.view import EngineView


def info_at(info: EngineInfo, view: EngineView) -> EngineInfo:
    """`info` with the knobs and the pool of `view`, the state before the first record."""
    knobs = {name: value for name, value in view.knobs.items() if hasattr(info.config, name)}
    config = dataclasses.replace(info.config, **knobs, allocated_blocks=view.num_blocks)  # type: ignore[arg-type]
    return dataclasses.replace(info, config=config)
