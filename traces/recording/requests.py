"""Arrivals: a light line `req`, and beside it a line `pid` with what may be long: the prompt.

Reading who is there, with all lengths, does not parse a prompt.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from engine.errors import RequestError
from engine.records import Arrived
from engine.sampling_params import SamplingParams
from traces.recording.ints import pack, unpack
from traces.recording.lines import BadLine
from traces.recording.strip import UNKNOWN
from traces.recording.times import to_seconds, to_units

_DEFAULT = SamplingParams()
_PARAMS = tuple(field.name for field in dataclasses.fields(SamplingParams))


def request_lines(number: int, arrived: Arrived, *, tokens: bool) -> list[dict[str, Any]]:
    """What is written of an arrival. tokens: its prompt too."""
    line: dict[str, Any] = {"k": "req", "r": number, "id": arrived.id, "t": to_units(arrived.arrival)}
    line["pl"] = len(arrived.prompt_ids)
    line["max"] = arrived.max_tokens
    if arrived.client != "default":
        line["client"] = arrived.client
    if arrived.priority:
        line["prio"] = arrived.priority
    if arrived.sampling != "greedy":
        line["sam"] = arrived.sampling
    if arrived.deadline is not None:
        line["dl"] = to_units(arrived.deadline)
    if arrived.expected_output is not None:
        line["exp"] = arrived.expected_output
    if arrived.params != _DEFAULT:
        values = [(name, getattr(arrived.params, name)) for name in _PARAMS]
        line["sp"] = {name: value for name, value in values if value != getattr(_DEFAULT, name)}
    if arrived.session is not None:
        line["ses"] = arrived.session
    if arrived.after is not None:
        line["after"] = arrived.after
    if arrived.delay:
        line["delay"] = to_units(arrived.delay)
    if not tokens:
        return [line]
    prompt: dict[str, Any] = {"k": "pid", "r": number, "ids": pack(arrived.prompt_ids)}
    if arrived.prompt_text is not None:
        prompt["text"] = arrived.prompt_text
    return [line, prompt]


def arrived_of(line: dict[str, Any], prompt: dict[str, Any] | None) -> Arrived:
    """BadLine when values are missing or of the wrong kind. prompt: None where the recording holds none."""
    try:
        if prompt is None:
            ids: tuple[int, ...] = (UNKNOWN,) * line["pl"]
            text = None
        else:
            ids, text = tuple(unpack(prompt["ids"])), prompt.get("text")
        deadline = line.get("dl")
        return Arrived(
            line["id"],
            line.get("client", "default"),
            line.get("prio", 0),
            to_seconds(line["t"]),
            ids,
            text,
            line["max"],
            line.get("sam", "greedy"),
            None if deadline is None else to_seconds(deadline),
            line.get("exp"),
            params_of(line.get("sp")),
            line.get("ses"),
            line.get("after"),
            to_seconds(line.get("delay", 0)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadLine(f"tells no request: {error!r}") from None


def params_of(values: dict[str, Any] | None) -> SamplingParams:
    """The same object for the same values: there are few different ones."""
    if not values:
        return _DEFAULT
    key = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in values.items())
    return _params(key)


@functools.lru_cache(maxsize=1024, typed=True)
def _params(values: tuple[tuple[str, Any], ...]) -> SamplingParams:
    try:
        return SamplingParams(**{name: value for name, value in values if name in _PARAMS})
    except RequestError as error:
        raise BadLine(str(error)) from None
