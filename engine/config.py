"""The configuration of one engine.

`EngineConfig.resolve` turns what a person asked for into what the engine runs with, and says in `notes`
whatever it decided by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError
from engine.knobs import KNOBS, KnobValue, check_value, read_weights


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Scheduling and memory settings of one engine. Field by field the rows of KNOBS."""

    max_num_seqs: int = 16
    max_num_batched_tokens: int = 256
    num_blocks: int = 512
    block_size: int = 16
    max_model_len: int | None = None
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    batching: str = "continuous"
    policy: str = "fcfs"
    victim: str = "auto"
    preemption_mode: str = "recompute"
    swap_space: float = 4.0
    num_cpu_blocks: int | None = None
    aging: float | None = None
    client_weights: str = ""
    client_token_budget: int = 0
    requests_per_minute: int = 60
    count_cached_tokens: bool = False
    prediction_noise: float = 0.0
    drr_quantum: int | None = None
    mlfq_quantum: int = 64
    reserve_output: bool = False
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    max_num_active_seqs: int | None = None
    max_num_scheduled_tokens: int | None = None
    prefill_schedule_interval: int = 1
    allocated_blocks: int = 0
    """Blocks there is memory for: num_blocks at start. Live, num_blocks moves below it."""
    notes: tuple[str, ...] = ()
    """What `resolve` decided by itself, for the person to read."""

    @property
    def usable_blocks(self) -> int:
        return self.num_blocks - 1

    @property
    def weights(self) -> dict[str, float]:
        """client_weights as a table; clients that are not in it have 1."""
        return read_weights(self.client_weights)

    @property
    def cpu_blocks(self) -> int:
        """num_cpu_blocks of a resolved configuration."""
        return self.num_cpu_blocks or 0

    @property
    def model_len(self) -> int:
        """max_model_len of a resolved configuration."""
        assert self.max_model_len is not None, "resolve() first"
        return self.max_model_len

    def values(self) -> dict[str, KnobValue]:
        """Every knob with its value, in the table's order."""
        return {name: getattr(self, name) for name in KNOBS}

    def change(self, name: str, value: Any) -> EngineConfig:
        """This configuration with one live knob changed, checked as a whole. ConfigError leaves nothing changed."""
        changed: dict[str, Any] = {name: check_value(name, value)}
        if not KNOBS[name].live:
            raise ConfigError(name, "cannot change while the engine runs: the engine must be built anew")
        if name == "num_blocks" and changed[name] > self.allocated_blocks:
            raise ConfigError(
                name, f"{changed[name]} is above the {self.allocated_blocks} blocks that are allocated; the engine "
                "must be built anew for more",
            )  # fmt: skip
        config = dataclasses.replace(self, **changed)
        config._check_together(live=True)
        config.check_live()
        return config

    def check_live(self) -> None:
        """Refuse what is legal for a scheduler but would let a prompt wait for ever."""
        cap = self.max_num_scheduled_tokens
        if not self.enable_chunked_prefill and cap is not None and cap < self.model_len:
            raise ConfigError(
                "max_num_scheduled_tokens",
                f"{cap} is below max_model_len {self.model_len}, which chunked prefill off needs; raise it, "
                "lower max_model_len or turn chunked prefill on",
            )

    @classmethod
    def resolve(
        cls,
        asked: dict[str, Any] | None = None,
        model_max_len: int | None = None,
        block_bytes: Callable[[int], int] | None = None,
    ) -> EngineConfig:
        """A checked configuration from the values a person gave; the rest are defaults.

        model_max_len: the longest sequence the model's positions allow (None: no limit known).
        block_bytes: bytes of a KV block of a given block_size, to make blocks of swap_space (None: the swap pool has
        as many blocks as the KV pool).
        Raises ConfigError naming the knob and its range.
        """
        given = {name: check_value(name, value) for name, value in (asked or {}).items()}
        values: dict[str, Any] = {name: given.get(name, knob.default) for name, knob in KNOBS.items()}
        notes: list[str] = []
        pool_tokens = (values["num_blocks"] - 1) * values["block_size"]
        budget_given = given.get("max_num_batched_tokens") is not None
        if values["max_model_len"] is None:
            limits = [(pool_tokens, f"the KV pool ({values['num_blocks'] - 1} blocks of {values['block_size']})")]
            if model_max_len is not None:
                limits.append((model_max_len, "the model"))
            if budget_given and not values["enable_chunked_prefill"]:
                limits.append((values["max_num_batched_tokens"], "max_num_batched_tokens with chunked prefill off"))
            length, why = min(limits)
            if length < 2:
                raise ConfigError("num_blocks", f"a pool of {pool_tokens} tokens cannot hold any request; raise it")
            values["max_model_len"] = length
            notes.append(f"max_model_len {length}: limited by {why}")
        elif model_max_len is not None and values["max_model_len"] > model_max_len:
            raise ConfigError("max_model_len", f"{values['max_model_len']} is above the model's own {model_max_len}")
        if not values["enable_chunked_prefill"] and not budget_given:
            values["max_num_batched_tokens"] = max(values["max_num_batched_tokens"], values["max_model_len"])
            notes.append(
                f"max_num_batched_tokens {values['max_num_batched_tokens']}: with chunked prefill off it must hold "
                "the longest prompt"
            )
        if given.get("max_num_seqs") is None and values["max_num_seqs"] > values["max_num_batched_tokens"]:
            values["max_num_seqs"] = values["max_num_batched_tokens"]
            notes.append(f"max_num_seqs {values['max_num_seqs']}: cannot exceed max_num_batched_tokens")
        if not budget_given and values["max_num_seqs"] > values["max_num_batched_tokens"]:
            values["max_num_batched_tokens"] = values["max_num_seqs"]
            notes.append(f"max_num_batched_tokens {values['max_num_seqs']}: raised to max_num_seqs")
        if values["num_cpu_blocks"] is None:
            room = int(values["swap_space"] * (1 << 30))
            values["num_cpu_blocks"] = (
                values["num_blocks"] if block_bytes is None else room // block_bytes(values["block_size"])
            )
        if values["preemption_mode"] == "swap" and not values["num_cpu_blocks"]:
            notes.append("the swap pool has no blocks: preempted requests are computed again")
        config = cls(**values, allocated_blocks=values["num_blocks"], notes=tuple(notes))
        config._check_together(live=False)
        return config

    def _check_together(self, *, live: bool) -> None:
        """Checks between knobs (SCHEDULER: "config checks made before start")."""
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                "max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is below max_num_seqs {self.max_num_seqs}; "
                "raise it or lower max_num_seqs first",
            )
        if self.max_num_active_seqs is not None and self.max_num_active_seqs > self.max_num_seqs:
            raise ConfigError(
                "max_num_active_seqs", f"{self.max_num_active_seqs} is above max_num_seqs {self.max_num_seqs}"
            )
        if self.max_num_scheduled_tokens is not None and self.max_num_scheduled_tokens > self.max_num_batched_tokens:
            raise ConfigError(
                "max_num_scheduled_tokens",
                f"{self.max_num_scheduled_tokens} is above max_num_batched_tokens {self.max_num_batched_tokens}",
            )
        if self.long_prefill_token_threshold > self.model_len:
            raise ConfigError(
                "long_prefill_token_threshold",
                f"{self.long_prefill_token_threshold} is above max_model_len {self.model_len}",
            )
        need = -(-self.model_len // self.block_size)
        # Live, a pool may shrink below that: requests that outgrow it end, with the reason.
        if not live and need > self.usable_blocks:
            raise ConfigError(
                "max_model_len",
                f"{self.model_len} needs {need} blocks of {self.block_size}, the pool has {self.usable_blocks} "
                "usable; raise num_blocks or lower max_model_len",
            )
        # Live, a prompt above the budget runs whole and alone instead (see Scheduler), so nothing can get stuck.
        if not live and not self.enable_chunked_prefill and self.max_num_batched_tokens < self.model_len:
            raise ConfigError(
                "max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is below max_model_len {self.model_len}, which chunked prefill off "
                "needs; raise it, lower max_model_len or turn chunked prefill on",
            )
