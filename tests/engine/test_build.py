"""From knobs to a running engine, and refusals that name what is wrong before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.build import build_engine
from engine.clock import ManualClock, RealClock
from engine.errors import ConfigError, ModelError
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.harness import run


def test_info_is_what_was_built() -> None:
    stages = []
    built = build_engine(
        None, {"num_blocks": 33, "block_size": 8}, model_name="tiny", threads=1,
        progress=lambda stage, done, total: stages.append((stage, done <= total)),
    )  # fmt: skip
    info, config = built.info, built.engine.config
    assert (info.model, info.device, info.dtype, info.threads, info.vocab_size) == ("tiny", "cpu", "float32", 1, 259)
    assert info.config is config and config.num_blocks == 33 and config.model_len == 256
    assert info.notes == config.notes and any("256" in note for note in info.notes)
    assert info.kv_bytes == 2 * 2 * 2 * 33 * 8 * 16 * 4
    assert info.parameters == 2 * 259 * 64 + 2 * (2 * 64 + 64 * (64 + 64) + 64 * 64 + 3 * 64 * 128) + 64
    assert stages[-1][0] == "ready" and all(ok for _, ok in stages)


def test_bfloat16_runs() -> None:
    """Greedy, repeatable, and with as many tokens as asked for; equal tokens are promised for float32 only."""

    def tokens() -> dict[str, list[int]]:
        engine = build_engine(None, {"num_blocks": 30}, model_name="tiny", dtype="bfloat16").engine
        assert engine.executor.kv.k.dtype is torch.bfloat16  # type: ignore[attr-defined]
        for n in range(3):
            params = SamplingParams(max_tokens=9, ignore_eos=True, temperature=float(n))
            engine.submit(Request(f"r{n}", [n, 5, 9], params))
        return run(engine).token_ids

    first = tokens()
    assert [len(ids) for ids in first.values()] == [9, 9, 9]
    assert tokens() == first


@pytest.mark.parametrize(
    ("knob", "how"),
    [
        ("dtype", {"dtype": "int4"}),
        ("device", {"device": "toaster"}),
        ("threads", {"threads": 0}),
        ("num_blocks", {"asked": {"num_blocks": 1 << 24, "block_size": 4096}}),
        ("max_model_len", {"asked": {"max_model_len": 5000, "num_blocks": 1000}}),
        ("block_size", {"asked": {"block_size": -1}}),
    ],
)
def test_refused_by_name(knob: str, how: dict[str, Any]) -> None:
    how = dict(how)
    asked = how.pop("asked", {})
    with pytest.raises(ConfigError) as error:
        build_engine(None, asked, model_name="tiny", **how)
    assert error.value.knob == knob and "\n" not in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_no_gpu() -> None:
    with pytest.raises(ConfigError, match="no GPU"):
        build_engine(None, {}, model_name="tiny", device="cuda")


def test_missing_model_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        build_engine(tmp_path, {}, model_name="x")


def test_clocks() -> None:
    clock = ManualClock(5.0)
    clock.advance(0.5)
    assert clock.now() == 5.5
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
    real = RealClock()
    assert 0 <= real.now() <= real.now() < 60 and real.wall_zero > 1e9
