"""What the documentation shows runs as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from engine.knobs import KNOBS, POLICY_NAMES, VICTIM_NAMES
from tests.engine.fakes import fake_engine

LABORATORY = Path(__file__).parent.parent / "docs" / "laboratory.md"


def example(first: str) -> str:
    """The indented block that begins with this line."""
    lines = LABORATORY.read_text().splitlines()
    at = lines.index(f"    {first}")
    block = []
    for line in lines[at:]:
        if line and not line.startswith("    "):
            break
        block.append(line[4:])
    return "\n".join(block)


def test_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example("from engine.build import build_engine"), "laboratory.md", "exec"), {})
    assert capsys.readouterr().out.count("makespan_s=") == 2


def test_own_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = example("# newest.py").partition("workbench run")[0]
    (tmp_path / "newest.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    engine, _ = fake_engine(policy="newest:Newest")
    assert engine.scheduler.policy.name == "newest"
    sys.modules.pop("newest")


def test_every_policy_and_victim_is_told() -> None:
    text = LABORATORY.read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(POLICY_NAMES)
    assert all(f"`{name}`" in text for name in VICTIM_NAMES)


def test_every_option_exists() -> None:
    options = {f"--{name.replace('_', '-')}" for name in KNOBS}
    used = re.findall(r"--(?:no-)?([a-z][a-z-]+)", LABORATORY.read_text())
    own = {"headless", "json", "model", "workload", "dtype"}
    assert not {f"--{name}" for name in used if name not in own} - options


def test_every_option_of_replay_is_told_or_shared() -> None:
    from typer.main import get_command

    from workbench.cli import app

    text = (LABORATORY.parent / "replay.md").read_text()
    options = {
        option for parameter in get_command(app).commands["replay"].params for option in parameter.opts  # type: ignore[attr-defined]
    }  # fmt: skip
    used = set(re.findall(r"--[a-z][a-z-]+", text))
    assert used <= options | {"--open-loop"}
    assert {"--from", "--to", "--limit", "--clients", "--spread", "--speed", "--len-scale", "--clock"} <= used
