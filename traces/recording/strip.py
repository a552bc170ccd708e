"""A recording without tokens: what people wrote and what the model answered is left out, every length stays."""

from __future__ import annotations

import dataclasses

from engine.records import Arrived, Iteration, Token
from engine.request import FinishReason

UNKNOWN = -1
"""In place of a token id that was not recorded."""


def without_text(it: Iteration) -> Iteration:
    """The same record with no prompt, no token, no text and no stop string."""
    arrived = tuple([strip_arrived(one) for one in it.arrived])
    finished = tuple(
        [
            one._replace(tail="", detail="" if one.reason is FinishReason.STOP else one.detail) if _says(one) else one
            for one in it.finished
        ]
    )
    new = tuple.__new__
    tokens = tuple([new(Token, (token[0], UNKNOWN, "")) for token in it.tokens])
    rebuilt = it.rebuilt
    if rebuilt is not None and rebuilt.prompts:
        rebuilt = rebuilt._replace(prompts=tuple([(id, (UNKNOWN,) * len(ids)) for id, ids in rebuilt.prompts]))
    return dataclasses.replace(it, arrived=arrived, finished=finished, tokens=tokens, rebuilt=rebuilt)


def strip_arrived(one: Arrived) -> Arrived:
    params = one.params
    if params.stop or params.stop_token_ids:
        params = dataclasses.replace(params, stop=(), stop_token_ids=())
    return one._replace(prompt_ids=(UNKNOWN,) * len(one.prompt_ids), prompt_text=None, params=params)


def _says(one: object) -> bool:
    return bool(getattr(one, "tail", "") or getattr(one, "detail", ""))
