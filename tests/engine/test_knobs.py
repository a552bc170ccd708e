"""The knob table: every row is whole, and values are read as a person types them."""

from __future__ import annotations

import dataclasses
import random
from decimal import Decimal

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.knobs import KNOBS, Knob, check_value


def test_table_and_config_are_the_same_fields() -> None:
    fields = {
        f.name: f.default for f in dataclasses.fields(EngineConfig) if f.name not in ("notes", "allocated_blocks")
    }
    assert fields == {name: knob.default for name, knob in KNOBS.items()}


@pytest.mark.parametrize("knob", KNOBS.values(), ids=list(KNOBS))
def test_row_is_whole(knob: Knob) -> None:
    assert knob.help.endswith(".") and knob.range_text
    if knob.default is None:
        assert knob.optional
    else:
        assert check_value(knob.name, knob.default) == knob.default
    if knob.type in (int, float):
        assert knob.low is not None and knob.high is not None
        assert check_value(knob.name, knob.low) == knob.low
        assert check_value(knob.name, knob.high) == knob.high
        for beyond in (knob.low - 1, knob.high + 1):
            with pytest.raises(ConfigError, match=knob.name):
                check_value(knob.name, beyond)


def test_vllm_spelling_follows_from_the_name() -> None:
    """vLLM's flags are its field names with dashes; `num_blocks` and `policy` are the two it calls otherwise."""
    for name, knob in KNOBS.items():
        if knob.vllm and name not in ("num_blocks", "policy"):
            assert knob.vllm == "--" + name.replace("_", "-")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_num_seqs", "12", 12),
        ("max_num_seqs", " 12 ", 12),
        ("max_num_seqs", 12.0, 12),
        ("max_num_seqs", np.int64(12), 12),
        ("watermark", "0.5", 0.5),
        ("watermark", 0, 0.0),
        ("enable_chunked_prefill", "off", False),
        ("enable_chunked_prefill", "True", True),
        ("enable_chunked_prefill", 0, False),
        ("max_num_active_seqs", "none", None),
        ("max_model_len", "auto", None),
    ],
)
def test_read(name: str, text: object, value: object) -> None:
    got = check_value(name, text)
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize("value", [2.5, Decimal("2.5"), np.float32(2.5), "2.5", "", "NaN", float("inf"), True, [3], {}])
def test_not_a_whole_number(value: object) -> None:
    """Never rounded silently, whatever kind of number it is."""
    with pytest.raises(ConfigError, match="max_num_seqs"):
        check_value("max_num_seqs", value)


def test_random_text_is_refused_or_read() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        name = rng.choice(list(KNOBS))
        text = "".join(rng.choice("0123456789-+.eE_ nofrulxa") for _ in range(rng.randrange(6)))
        try:
            value = check_value(name, text)
        except ConfigError as error:
            assert error.knob == name
        else:
            assert value is None or isinstance(value, KNOBS[name].type)
