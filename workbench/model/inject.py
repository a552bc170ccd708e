"""What a person types to inject requests: the fields, the checks, the requests, and whether they will fit."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, fields

from engine.commands import Submit
from engine.errors import RequestError, WorkbenchError
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView

MOST_COUNT = 1000
MOST_TOKENS = 1 << 23
LABELS = {
    "prompt": "prompt",
    "length": "random",
    "client": "client",
    "max_tokens": "max_tokens",
    "priority": "priority",
    "count": "count",
    "temperature": "temp",
    "deadline": "due",
    "seed": "seed",
}
"""What the fields are called where they are typed."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
Encode = Callable[[str], list[int]]


@dataclass(slots=True)
class Values:
    """The fields as typed. They outlive the form, so nothing typed is lost."""

    prompt: str = "Explain paged attention in one sentence."
    length: str = ""
    """Random tokens instead of the prompt."""
    client: str = "me"
    max_tokens: str = "64"
    priority: str = "0"
    count: str = "1"
    temperature: str = "0"
    deadline: str = ""
    """Seconds until the first token should be there."""
    seed: str = ""

    def copy(self) -> Values:
        return Values(*(getattr(self, field.name) for field in fields(self)))


class FieldError(WorkbenchError):
    """One field cannot be used."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{LABELS[field]}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class Order:
    """Checked values."""

    prompt: str
    length: int
    """0: use the prompt."""
    client: str
    priority: int
    count: int
    params: SamplingParams
    deadline: float | None = None


def check(values: Values) -> Order:
    """FieldError names the first field that is wrong."""
    length = _whole(values, "length", 1, MOST_TOKENS, empty=0)
    if not length and not values.prompt:
        raise FieldError("prompt", "type a prompt, or a number of random tokens")
    seed = _whole(values, "seed", -(2**63), 2**64 - 1, empty=None)
    temperature = _number(values, "temperature", "0 (greedy) and above") or 0.0
    deadline = _number(values, "deadline", "0 and above, in seconds")
    most = _whole(values, "max_tokens", 1, MOST_TOKENS, empty=None)
    params = SamplingParams(max_tokens=most, temperature=temperature, seed=seed)
    count = _whole(values, "count", 1, MOST_COUNT)
    priority = _whole(values, "priority", -1000, 1000, empty=0)
    assert count is not None and priority is not None and length is not None
    return Order(values.prompt, length, values.client.strip() or "me", priority, count, params, deadline)


def _number(values: Values, name: str, allowed: str) -> float | None:
    text = getattr(values, name).strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise FieldError(name, f"{text!r} is not a number")
    number = float(text)
    if number < 0 or math.isinf(number):
        raise FieldError(name, f"{text} is out of range, allowed: {allowed}")
    return number


def _whole(values: Values, name: str, low: int, high: int, empty: int | None = -1) -> int | None:
    text = getattr(values, name).strip()
    if not text:
        if empty == -1:
            raise FieldError(name, "needs a number")
        return empty
    if not _WHOLE.fullmatch(text):
        raise FieldError(name, f"{text!r} is not a whole number")
    if len(text) > 40:  # more than Python turns into a number, and than anything allows
        raise FieldError(name, f"{len(text)} digits are out of range, allowed: {low}..{high}")
    number = int(text)
    if not low <= number <= high:
        raise FieldError(name, f"{number} is out of range, allowed: {low}..{high}")
    return number


def requests_of(order: Order, number: int, encode: Encode, vocab_size: int, model_len: int) -> Submit:
    """The requests of an order, arriving now. `number` counts what was injected before.

    RequestError when the prompt cannot run at all. Random prompts differ from each other and repeat from run to run.
    """
    seed = order.params.seed
    ids = [] if order.length else encode(order.prompt)
    length = order.length or len(ids)
    if length == 0:
        raise RequestError("the prompt has no tokens")
    if length >= model_len:
        raise RequestError(f"a prompt of {length} tokens is too long: max_model_len is {model_len}, output included")
    requests = []
    for n in range(order.count):
        if order.length:
            chance = random.Random(f"{seed} {number + n}")
            ids = [chance.randrange(vocab_size) for _ in range(order.length)]
        params = order.params
        if seed is not None and n:
            params = SamplingParams(params.max_tokens, params.temperature, seed=seed + n)
        requests.append(
            Request(
                f"ui-{number + n}",
                ids,
                params,
                client=order.client,
                priority=order.priority,
                deadline=order.deadline,
                prompt_text=None if order.length else order.prompt,
            )
        )
    return Submit(tuple(requests))


def model_len(view: EngineView) -> int:
    """Longest prompt + output, as the engine has resolved it."""
    value = view.knobs["max_model_len"]
    assert isinstance(value, int)
    return value


def fits(order: Order, num_tokens: int, view: EngineView) -> tuple[bool, str]:
    """Whether the pool can take it now, with blocks at admission and at the end against the free ones."""
    longest = model_len(view)
    if num_tokens >= longest:
        return False, f"{num_tokens} tokens: too long, max_model_len is {longest} with the output"
    size = view.block_size
    most = longest - num_tokens
    output = min(order.params.max_tokens or most, most)
    first = -(-num_tokens // size) * order.count
    # the last token is sampled but never computed, so it needs no slot
    last = -(-(num_tokens + output - 1) // size) * order.count
    free = view.free_blocks
    text = f"{num_tokens} tok: {first} blocks at admission, {last} at the end; {free} free"
    if order.params.max_tokens is not None and order.params.max_tokens > most:
        text += f"; max_tokens will be cut to {most}"
    if last <= free:
        return True, f"{text}: fits"
    if first <= free:
        return True, f"{text}: starts, may preempt later"
    return True, f"{text}: will wait"
