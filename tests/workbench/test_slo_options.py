"""The options of an SLO, alone and on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.errors import WorkbenchError
from traces.slo import Slo
from workbench.cli import app
from workbench.commands.slo_options import slo_from


@pytest.mark.parametrize(
    ("options", "slo"),
    [
        ({}, Slo(2.0, 0.2, 1.0, "chat")),
        ({"scale": 3.0}, Slo(2.0, 0.2, 3.0, "chat")),
        ({"name": "interactive", "scale": 4.0}, Slo(0.45, 0.04, 4.0, "interactive")),
        ({"ttft_ms": 500.0}, Slo(0.5, None)),
        ({"tpot_ms": 50.0, "scale": 2.0}, Slo(None, 0.05, 2.0)),
        ({"ttft_ms": 500.0, "tpot_ms": 50.0}, Slo(0.5, 0.05)),
        ({"name": "llama3.1-8b", "tpot_ms": 150.0}, Slo(2.0, 0.15, 1.0, "llama3.1-8b, changed")),
        ({"name": "none"}, None),
    ],
)
def test_what_options_ask_for(options: dict[str, Any], slo: Slo | None) -> None:
    assert slo_from(**options) == slo


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"name": "fast"}, "--slo: there is no 'fast'; choose one of chat, interactive, llama2-70b"),
        ({"name": "none", "scale": 2.0}, "--slo-scale with --slo none"),
        ({"ttft_ms": 0.0}, "--slo-ttft: 0 is out of range"),
        ({"tpot_ms": -1.0}, "--slo-tpot: -1 is out of range"),
        ({"scale": float("nan")}, "--slo-scale: nan is out of range"),
        ({"scale": float("inf")}, "--slo-scale: inf is out of range"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], part: str) -> None:
    with pytest.raises(WorkbenchError) as problem:
        slo_from(**options)
    assert part in str(problem.value) and "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "option", [("--slo", "chat"), ("--slo-ttft", "5"), ("--slo-tpot", "5"), ("--slo-scale", "2"), ("--definitions",)]
)
def test_the_screen_has_no_summary(option: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["run", "--model", "tiny", *option])
    assert isinstance(done.exception, WorkbenchError) and str(done.exception) == f"{option[0]} needs --headless"


def test_a_mistake_is_told_before_a_model_is_loaded() -> None:
    done = CliRunner().invoke(app, ["run", "--headless", "--model", "no/such-model", "--slo", "fast"])
    assert isinstance(done.exception, WorkbenchError) and "--slo: there is no 'fast'" in str(done.exception)


def test_every_option_is_in_the_help() -> None:
    text = CliRunner().invoke(app, ["run", "--help"]).stdout
    assert all(
        name in text for name in ("--slo NAME", "--slo-ttft MS", "--slo-tpot MS", "--slo-scale X", "interactive")
    )


def test_documented_options_exist() -> None:
    text = CliRunner().invoke(app, ["run", "--help"]).stdout
    documented = set(re.findall(r"--[a-z][a-z-]+", (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()))
    assert {"--definitions", "--slo-scale"} <= documented
    assert not {option for option in documented if option not in text}
