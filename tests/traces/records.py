"""A few records by hand, as an engine would publish them."""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from engine.host import EngineInfo
from engine.records import Arrived, Finished, Iteration, Kind, Phase, Scheduled, Token
from engine.request import FinishReason


def info(**knobs: Any) -> EngineInfo:
    config = EngineConfig.resolve({"num_blocks": 8, "block_size": 4, **knobs})
    return EngineInfo("tiny", "cpu", "float32", 1, config, 100, 0, 0)


def arrived(
    id: str,
    arrival: float,
    prompt_len: int = 4,
    *,
    client: str = "default",
    priority: int = 0,
    max_tokens: int = 8,
    **more: Any,
) -> Arrived:
    """more: deadline, expected_output."""
    return Arrived(id, client, priority, arrival, tuple(range(prompt_len)), None, max_tokens, "greedy", **more)


def scheduled(
    id: str, tokens: int = 1, *, before: int = 0, recomputed: int = 0, kind: Kind = Kind.RUNNING
) -> Scheduled:
    return Scheduled(id, tokens, kind, Phase.DECODE, before, recomputed, ())


def finished(id: str, reason: FinishReason = FinishReason.LENGTH, client: str = "default", **values: Any) -> Finished:
    row: dict[str, Any] = {
        "detail": "",
        "tail": "",
        "prompt_len": 4,
        "output_len": 1,
        "arrival": 0.0,
        "cached_tokens": 0,
        "preemptions": 0,
        "recomputed_tokens": 0,
    }
    return Finished(id, client, reason, **{**row, **values})


def record(seq: int, start: float, end: float, **parts: Any) -> Iteration:
    free = parts.pop("free", 7)
    return Iteration(seq=seq, step=seq, t_start=start, t_end=end, free_blocks=free, free_blocks_mid=free, **parts)


def token(id: str, token_id: int = 5, text: str = "x") -> Token:
    return Token(id, token_id, text)
