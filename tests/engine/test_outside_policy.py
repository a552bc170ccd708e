"""A policy of one's own: loaded by name, loaded again when its file changed, and named when it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import ConfigError, PolicyFault
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from tests.engine.harness import run

NEWEST = """
from engine.policies.fcfs import Fcfs

class Newest(Fcfs):
    name = "newest"
    exact = False

    def head(self):
        return next(reversed(self._requests.values()))

    def __iter__(self):
        return reversed(self._requests.values())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "newest_of_all.py"
    path.write_text(NEWEST)
    yield path
    sys.modules.pop("newest_of_all", None)


def order(policy: str) -> list[str]:
    engine, _ = fake_engine(max_num_seqs=1, policy=policy)
    for number in range(3):
        engine.submit(Request(f"r{number}", [1, 2], SamplingParams(max_tokens=2, ignore_eos=True)))
    return list(run(engine).token_ids)


def test_by_name(module: Path) -> None:
    assert order("newest_of_all:Newest") == ["r2", "r1", "r0"]


def test_edited_and_chosen_again(module: Path) -> None:
    assert order("newest_of_all:Newest") == ["r2", "r1", "r0"]
    module.write_text(NEWEST.replace("reversed(self", "iter(self"))
    os.utime(module, ns=(1, 1))
    assert order("newest_of_all:Newest") == ["r0", "r1", "r2"]


def test_a_failing_one_is_named(module: Path) -> None:
    module.write_text(NEWEST.replace("return next(", "return 1 / 0 * next("))
    engine, _ = fake_engine(policy="newest_of_all:Newest")
    engine.submit(Request("r0", [1]))
    with pytest.raises(PolicyFault, match=r"policy newest_of_all:Newest failed at .*newest_of_all\.py:9: ZeroDivision"):
        engine.step()


@pytest.mark.parametrize("method", ["__init__(self, env)", "add(self, request)"])
def test_one_that_cannot_take_over_is_refused(module: Path, method: str) -> None:
    module.write_text(f"{NEWEST}\n    def {method}:\n        raise RuntimeError('boom')\n")
    engine, _ = fake_engine(max_num_seqs=1)
    for number in range(3):
        engine.submit(Request(f"r{number}", [1, 2], SamplingParams(max_tokens=2, ignore_eos=True)))
    engine.step()
    with pytest.raises(ConfigError, match="newest_of_all:Newest: RuntimeError: boom"):
        engine.set_knob("policy", "newest_of_all:Newest")
    assert engine.config.policy == "fcfs" and [r.id for r in engine.scheduler.waiting] == ["r1", "r2"]
    assert len(run(engine, view=False).token_ids) == 3


@pytest.mark.parametrize("name", ["nowhere:Newest", "newest_of_all:Oldest", "os:path", "newest_of_all:Fcfs.name"])
def test_what_is_none_is_refused(module: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="policy"):
        fake_engine(policy=name)
