"""The knob changes of a fork: which are possible where, and how they come into force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError
from engine.knobs import KNOBS, KnobValue, check_value


class Checked(NamedTuple):
    changes: dict[str, KnobValue]
    anew: bool
    """They need an engine that was started with them."""


def check(changes: Mapping[str, Any], config: EngineConfig, at_step: int) -> Checked:
    """Values as their knobs' types. ConfigError for what cannot be changed at that iteration."""
    wanted = {name: check_value(name, value) for name, value in changes.items()}
    for name, value in wanted.items():
        too_many = name == "num_blocks" and isinstance(value, int) and value > config.allocated_blocks
        if (KNOBS[name].live and not too_many) or value == getattr(config, name):
            continue
        if at_step == 0:
            return Checked(wanted, True)
        if too_many:
            raise ConfigError(
                name,
                f"{value} is above the {config.allocated_blocks} blocks that are allocated; fork at iteration 0 to "
                "plan the whole run with more",
            )
        raise ConfigError(name, "cannot change in the middle of a run; fork at iteration 0 to change it for all of it")
    return Checked(wanted, False)


def apply(engine: Engine, wanted: Mapping[str, KnobValue]) -> None:
    """Set knobs of a running engine that may only be legal together: in whichever order works."""
    left = {name: value for name, value in wanted.items() if value != getattr(engine.config, name)}
    while left:
        refused: dict[str, ConfigError] = {}
        for name, value in left.items():
            try:
                engine.set_knob(name, value)
            except ConfigError as error:
                refused[name] = error
        if len(refused) == len(left):
            raise next(iter(refused.values()))
        left = {name: left[name] for name in refused}


def plan_anew(config: EngineConfig, wanted: Mapping[str, KnobValue], notes: list[str]) -> EngineConfig:
    """The configuration of an engine that would have been started with other knobs; what follows goes to `notes`."""
    values: dict[str, Any] = {**config.values(), **wanted}
    room = (values["num_blocks"] - 1) * values["block_size"]
    if "max_model_len" not in wanted and room < config.model_len:
        values["max_model_len"] = room
        notes.append(f"max_model_len {room}: limited by the KV pool")
    if "swap_space" in wanted and "num_cpu_blocks" not in wanted and config.swap_space:
        values["num_cpu_blocks"] = int(config.cpu_blocks * values["swap_space"] / config.swap_space)
    return EngineConfig.resolve(values)
