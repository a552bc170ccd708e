"""docs/exports.md tells what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from traces.exports.columns import ITERATIONS, REQUESTS, markdown
from traces.exports.lives import Doing
from traces.exports.perfetto import PARTS
from workbench.commands.export import export

TEXT = (Path(__file__).parents[3] / "docs" / "exports.md").read_text("utf-8")


def test_columns() -> None:
    assert markdown(REQUESTS) in TEXT and markdown(ITERATIONS) in TEXT
    for columns in (REQUESTS, ITERATIONS):
        names = [column.name for column in columns]
        assert len(names) == len(set(names))


def test_options() -> None:
    """All that are told exist, and all that make a file are told."""
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(export).parameters}
    told = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", TEXT))
    assert told <= options
    assert options - told <= {"--recording", "--slo-ttft", "--slo-tpot", "--slo-scale"}


def test_parts_and_phases() -> None:
    assert all(f"`{name}`" in TEXT for name in (*PARTS, *Doing))
