"""The knobs: one row each.

`KNOBS` is the only place a knob is described. Command-line options, the knobs panel, validation messages and
exported flags are all made from these rows.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from engine.errors import ConfigError

KnobValue = int | float | bool | str | None
POLICY_NAMES = (
    "fcfs", "priority", "fair", "drr", "sjf", "srpt", "mlfq", "edf", "slack", "lpm", "lcf", "rpm",
)  # fmt: skip
VICTIM_NAMES = ("auto", "last", "priority", "latest", "cheapest", "largest", "greediest", "lowest")


class Knob(NamedTuple):
    """One knob. `low`/`high` are inclusive; `live` ones may change between two iterations."""

    name: str
    type: type
    default: KnobValue
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """Text that is allowed too (a regular expression); without choices: the only text that is allowed."""
    hint: str = ""
    """What such text looks like, for people."""
    live: bool = False
    label: str = ""
    """A shorter name where a panel is narrow."""
    optional: bool = False
    """None is a value: "decide for me" or "same as its parent knob"."""
    vllm: str = ""
    sglang: str = ""
    trtllm: str = ""

    @property
    def short(self) -> str:
        return self.label or self.name

    @property
    def range_text(self) -> str:
        if self.choices or self.hint:
            return " | ".join([*self.choices, self.hint] if self.hint else self.choices)
        if self.type is bool:
            return "on | off"
        high = "" if self.high is None else f"{self.high:.15g}"
        return f"{self.low:.15g}..{high}"


_ROWS = (
    Knob(
        "max_num_seqs",
        int,
        16,
        "Most requests running at once (slots of the batch).",
        1,
        4096,
        live=True,
        vllm="--max-num-seqs",
        sglang="--max-running-requests",
        trtllm="max_batch_size",
    ),
    Knob(
        "max_num_batched_tokens",
        int,
        256,
        "Token budget of one iteration, prefill and decode together.",
        1,
        1 << 20,
        live=True,
        vllm="--max-num-batched-tokens",
        sglang="--chunked-prefill-size",
        trtllm="max_num_tokens",
        label="max_batch_tokens",
    ),
    Knob(
        "num_blocks",
        int,
        512,
        "KV blocks in the pool, the reserved null block 0 included; live up to what was allocated at start.",
        2,
        1 << 24,
        live=True,
        vllm="--num-gpu-blocks-override",
        sglang="--max-total-tokens",
        trtllm="kv_cache_config.max_tokens",
    ),
    Knob(
        "block_size",
        int,
        16,
        "Tokens in one KV block.",
        1,
        4096,
        vllm="--block-size",
        sglang="--page-size",
        trtllm="kv_cache_config.tokens_per_block",
    ),
    Knob(
        "max_model_len",
        int,
        None,
        "Longest prompt + output of one request (default: what model and KV pool allow).",
        2,
        1 << 24,
        optional=True,
        vllm="--max-model-len",
        sglang="--context-length",
        trtllm="max_seq_len",
    ),
    Knob(
        "enable_chunked_prefill",
        bool,
        True,
        "Split long prompts over iterations instead of running them whole.",
        live=True,
        vllm="--enable-chunked-prefill",
        sglang="--chunked-prefill-size (-1 = off)",
        trtllm="enable_chunked_prefill",
        label="chunked_prefill",
    ),
    Knob(
        "enable_prefix_caching",
        bool,
        True,
        "Reuse KV blocks of equal prompt beginnings.",
        vllm="--enable-prefix-caching",
        sglang="--disable-radix-cache (inverted)",
        trtllm="kv_cache_config.enable_block_reuse",
        label="prefix_caching",
    ),
    Knob(
        "batching",
        str,
        "continuous",
        "Refill slots every iteration, or run each batch until its longest member ends.",
        choices=("continuous", "static"),
        live=True,
        trtllm="batching_type",
    ),
    Knob(
        "policy",
        str,
        "fcfs",
        "Who is served next: the order of the waiting queue.",
        choices=POLICY_NAMES,
        pattern=r"[A-Za-z_][\w.]*:[A-Za-z_]\w*",
        hint="module:Class",
        live=True,
        vllm="--scheduling-policy",
        sglang="--schedule-policy",
        trtllm="capacity_scheduler_policy",
    ),
    Knob(
        "victim",
        str,
        "auto",
        "Who is preempted when blocks are short (auto: the policy's own choice).",
        choices=VICTIM_NAMES,
        live=True,
    ),
    Knob(
        "preemption_mode",
        str,
        "recompute",
        "What becomes of a preempted request's KV: computed again, or copied to CPU memory and back (vLLM before V1).",
        choices=("recompute", "swap"),
        live=True,
    ),
    Knob(
        "swap_space",
        float,
        4.0,
        "GiB of CPU memory for KV that is swapped out.",
        0.0,
        4096.0,
    ),
    Knob(
        "num_cpu_blocks",
        int,
        None,
        "KV blocks of the swap pool (default: what swap_space holds).",
        0,
        1 << 24,
        optional=True,
    ),
    Knob(
        "aging",
        float,
        None,
        "Seconds of waiting that lift a request by one priority level, halve its length under sjf and srpt, or put it "
        "first under the others that can starve somebody (0 = never; default: the policy's own).",
        0.0,
        1e6,
        optional=True,
        live=True,
    ),
    Knob(
        "client_weights",
        str,
        "",
        "Shares of the clients under fair and drr; who is not named has 1.",
        hint="NAME=WEIGHT,NAME=WEIGHT",
        live=True,
    ),
    Knob(
        "client_token_budget",
        int,
        0,
        "Most tokens of one client in an iteration (0 = off).",
        0,
        1 << 20,
        live=True,
        label="client_budget",
    ),
    Knob(
        "requests_per_minute",
        int,
        60,
        "Admissions a minute that policy rpm allows each client.",
        1,
        1 << 20,
        live=True,
        label="rpm",
    ),
    Knob(
        "count_cached_tokens",
        bool,
        False,
        "Charge a client for prompt tokens found in the prefix cache (fair, drr, lcf).",
        live=True,
        label="count_cached",
    ),
    Knob(
        "prediction_noise",
        float,
        0.0,
        "Error of predicted output lengths: sigma of a log-normal factor (0 = oracle).",
        0.0,
        5.0,
        live=True,
        label="predict_noise",
    ),
    Knob(
        "drr_quantum",
        int,
        None,
        "Tokens a client may get in a round of drr (default: a twentieth of the KV pool).",
        1,
        1 << 24,
        optional=True,
        live=True,
    ),
    Knob(
        "mlfq_quantum",
        int,
        64,
        "Tokens of service in the first level of mlfq; each further level has twice as many.",
        1,
        1 << 20,
        live=True,
    ),
    Knob(
        "reserve_output",
        bool,
        False,
        "Admit a request only if prompts and longest outputs of all running ones fit: nobody is preempted.",
        live=True,
        trtllm="capacity_scheduler_policy GUARANTEED_NO_EVICT",
    ),
    Knob(
        "long_prefill_token_threshold",
        int,
        0,
        "Most prompt tokens of one request in an iteration (0 = off).",
        0,
        1 << 24,
        live=True,
        vllm="--long-prefill-token-threshold",
        label="prefill_thresh",
    ),
    Knob(
        "long_prefill_token_threshold_adaptive",
        bool,
        False,
        "Raise the threshold to budget / requests when few requests are there.",
        live=True,
        label="adaptive_thresh",
    ),
    Knob(
        "scheduler_reserve_full_isl",
        bool,
        True,
        "Admit a request only if all its known tokens fit now, not just its first chunk.",
        live=True,
        vllm="--scheduler-reserve-full-isl",
        label="reserve_full_isl",
    ),
    Knob(
        "watermark",
        float,
        0.0,
        "Share of the pool kept free when a request is admitted.",
        0.0,
        0.9,
        live=True,
    ),
    Knob(
        "max_num_active_seqs",
        int,
        None,
        "Tighter limit than max_num_seqs on admission.",
        1,
        4096,
        live=True,
        optional=True,
        label="max_active_seqs",
    ),
    Knob(
        "max_num_scheduled_tokens",
        int,
        None,
        "Tighter token budget than max_num_batched_tokens.",
        1,
        1 << 20,
        live=True,
        optional=True,
        label="max_sched_tokens",
    ),
    Knob(
        "prefill_schedule_interval",
        int,
        1,
        "Start or continue prompts only every N-th executed iteration.",
        1,
        1 << 16,
        live=True,
        label="prefill_interval",
    ),
)
KNOBS: dict[str, Knob] = {knob.name: knob for knob in _ROWS}


def check_value(name: str, value: Any) -> KnobValue:
    """`value` as the knob's type, or ConfigError naming knob and range. Strings are read as a person types them."""
    knob = KNOBS.get(name)
    if knob is None:
        raise ConfigError(name, f"no such knob; there are {', '.join(KNOBS)}")
    word = value.strip().lower() if isinstance(value, str) else value
    if value is None or (word in ("none", "auto") and word not in knob.choices):
        if knob.optional:
            return None
        raise ConfigError(name, f"needs a value, allowed: {knob.range_text}")
    if knob.type is bool:
        return _read_bool(knob, value)
    if knob.type is str:
        return _read_text(knob, value)
    return _read_number(knob, value)


def read_weights(text: str) -> dict[str, float]:
    """`client_weights` as a table. ConfigError names the part that cannot be read."""
    weights: dict[str, float] = {}
    if text.strip() and not text.strip(" ,"):
        raise ConfigError("client_weights", f"{text!r} names no client, allowed: NAME=WEIGHT,NAME=WEIGHT")
    for part in filter(None, (part.strip() for part in text.split(","))):
        client, _, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not client.strip() or not 0.001 <= weight <= 1000:
            raise ConfigError("client_weights", f"{part!r} is not NAME=WEIGHT with a weight of 0.001..1000")
        if client.strip() in weights:
            raise ConfigError("client_weights", f"{client.strip()!r} has two weights")
        weights[client.strip()] = weight
    return weights


def _read_text(knob: Knob, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(knob.name, f"{value!r} is not text, allowed: {knob.range_text}")
    if knob.name == "client_weights":
        read_weights(value)
    elif value not in knob.choices and not (knob.pattern and re.fullmatch(knob.pattern, value)):
        raise ConfigError(
            knob.name, f"{value!r} is not one of {', '.join([*knob.choices, *filter(None, [knob.hint])])}"
        )
    return value


def _read_bool(knob: Knob, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("on", "true", "yes", "1"):
        return True
    if word in ("off", "false", "no", "0"):
        return False
    raise ConfigError(knob.name, f"{value!r} is not on or off")


def _read_number(knob: Knob, value: Any) -> int | float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = knob.type(value)
        if not isinstance(value, str) and number != value:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        kind = "a whole number" if knob.type is int else "a number"
        raise ConfigError(knob.name, f"{value!r} is not {kind}, allowed: {knob.range_text}") from None
    low = knob.low if knob.low is not None else float("-inf")
    high = knob.high if knob.high is not None else float("inf")
    if not low <= number <= high:
        raise ConfigError(knob.name, f"{number} is out of range, allowed: {knob.range_text}")
    assert isinstance(number, int | float)
    return number
