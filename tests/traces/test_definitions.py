"""Every figure has one definition, and documentation and summary use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine.records import Kind
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.definitions import DEFINITIONS, as_dict, markdown
from traces.metrics import LATENCIES, Metrics
from traces.slo import LIMITS_MS, Slo

METRICS = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
ELSEWHERE = {"percentiles", "clients.service", "clients.demand", "deadlines"}
"""Keys that are not a path from the top: in every distribution, in every client."""
PLAIN = {"iterations", "preemptions", "slot_steps", "kv", "knobs", "model", "device", "dtype", "good"}
"""Keys of a summary whose name says it, or that another key's definition explains."""


def test_documentation_has_the_table() -> None:
    assert markdown() in METRICS.read_text()


def test_documentation_has_the_presets() -> None:
    rows = [f"| `{name}` | {ttft:,} | {tpot:,} |" for name, (ttft, tpot) in LIMITS_MS.items()]
    assert "\n".join(rows) in METRICS.read_text()


def test_the_table_is_printed_by_the_module() -> None:
    done = subprocess.run([sys.executable, "-m", "traces.definitions"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == markdown()


def test_every_key_is_in_the_summary_and_the_other_way_round() -> None:
    metrics = Metrics(info(), slo=Slo.preset("chat"))
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),),
                       tokens=(token("a"),), finished=(finished("a"),)))  # fmt: skip
    summary = metrics.summary()
    for key in set(DEFINITIONS) - ELSEWHERE:
        at = summary
        for part in key.split("."):
            assert part in at, key
            at = at[part]
    assert {"service", "demand", "deadlines"} <= set(summary["clients"]["default"])
    told = {key.partition(".")[0] for key in DEFINITIONS}
    assert set(summary) - told == PLAIN
    assert {*LATENCIES, "itl_s"} <= set(DEFINITIONS)


def test_the_first_sentence_stands_for_itself() -> None:
    for key, definition in DEFINITIONS.items():
        assert definition.text.startswith(definition.short) and definition.text.endswith("."), key
        assert len(definition.short) <= 120 and definition.name, key
    assert DEFINITIONS["ttft_s"].short == "First sampled token - planned arrival"
    assert as_dict()["e2e_s"] == {"name": "E2E", "unit": "s", "text": "Last token - planned arrival."}
