"""What is written is read back as it was, every field of it."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.readers.loading import read_workload
from traces.readers.native import FIELDS
from traces.workload import RequestSpec
from traces.writers.native import write_native


def text(specs: list[RequestSpec]) -> str:
    file = io.StringIO()
    assert write_native(specs, file) == len(specs)
    return file.getvalue()


def back(path: Path, specs: list[RequestSpec]) -> list[RequestSpec]:
    path.write_text(text(specs), encoding="utf-8", newline="\n")
    return [dataclasses.replace(spec, where="") for spec in read_workload(path).specs]


def test_only_what_is_given() -> None:
    specs = [
        RequestSpec("a", prompt="hi", where="x:1"),
        RequestSpec("b", 1.5, prompt_len=7, output_len=3, after="a", delay=0.25),
    ]
    assert text(specs) == (
        '{"id": "a", "arrival": 0.0, "prompt": "hi"}\n'
        '{"id": "b", "arrival": 1.5, "prompt_len": 7, "output_len": 3, "after": "a", "delay": 0.25}\n'
    )


def test_every_field_of_a_request_has_a_name_in_the_format() -> None:
    names = {field.name for field in dataclasses.fields(RequestSpec)} - {"where"}
    assert names == set(FIELDS) - {"t_ns"}


def test_nothing_that_the_reader_refuses() -> None:
    orphan = RequestSpec("a", prompt="hi", output_len=3, max_tokens=9, ignore_eos=True, delay=4.0)
    assert json.loads(text([orphan])) == {"id": "a", "arrival": 0.0, "prompt": "hi", "output_len": 3}


WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
NAMES = WORDS.filter(lambda name: name.strip())
IDS = st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=6).map(tuple)


@st.composite
def request_fields(draw: st.DrawFn) -> dict[str, Any]:
    given: dict[str, Any] = {}

    def maybe(name: str, values: st.SearchStrategy[Any]) -> None:
        if draw(st.booleans()):
            given[name] = draw(values)

    form = draw(st.sampled_from(("prompt", "messages", "prompt_ids", "prompt_len")))
    if form == "prompt_len":
        given["prompt_len"] = draw(st.integers(1, 5000))
        if draw(st.booleans()):
            lens = draw(st.lists(st.integers(1, 900), min_size=1, max_size=5))
            while sum(lens[:-1]) >= given["prompt_len"]:
                lens.pop()
            given["prefix_ids"] = tuple(draw(st.integers(0, (1 << 64) - 1)) for _ in lens)
            given["prefix_lens"] = tuple(lens)
    else:
        turns = st.lists(st.tuples(WORDS, st.text(st.characters(exclude_categories=("Cs",)))), min_size=1, max_size=3)
        given[form] = draw({"prompt": WORDS, "messages": turns.map(tuple), "prompt_ids": IDS}[form])
    if draw(st.booleans()):
        given["output_len"] = draw(st.integers(1, 1 << 24))
    else:
        maybe("max_tokens", st.integers(1, 1 << 24))
        maybe("stop", st.lists(WORDS, min_size=1, max_size=2).map(tuple))
        maybe("stop_token_ids", IDS)
        maybe("ignore_eos", st.booleans())
    maybe("expected_output", st.integers(1, 1 << 24))
    maybe("client", NAMES)
    maybe("priority", st.integers(-(1 << 31), (1 << 31) - 1))
    maybe("deadline", st.floats(1e-6, 1e7))
    maybe("temperature", st.floats(0, 100))
    maybe("top_p", st.floats(0.01, 1))
    maybe("top_k", st.integers(0, 1000))
    maybe("min_p", st.floats(0, 1))
    maybe("seed", st.integers(-(1 << 63), (1 << 64) - 1))
    maybe("session", NAMES)
    maybe("turn", st.integers(0, 1000))
    return given


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(request_fields(), st.integers(0, 10**12), NAMES, st.floats(0, 1e6)), min_size=1, max_size=4))
def test_there_and_back(tmp_path: Path, rows: list[tuple[dict[str, Any], int, str, float]]) -> None:
    """Arrivals are whole microseconds, as generated ones are; each row but the first follows the one before."""
    rows.sort(key=lambda row: row[1])
    specs: list[RequestSpec] = []
    for number, (fields, microseconds, name, delay) in enumerate(rows):
        if specs:
            fields |= {"after": specs[-1].id, "delay": delay}
        specs.append(RequestSpec(f"{number} {name}", microseconds / 1e6, **fields))
    assert back(tmp_path / "x.jsonl", specs) == specs


@pytest.mark.parametrize("lengths", [(0, 0), (7, 0)])
def test_failed_ones(tmp_path: Path, lengths: tuple[int, int]) -> None:
    specs = [
        RequestSpec("bad", prompt_len=lengths[0], output_len=lengths[1], failed=True),
        RequestSpec("good", 1.0, prompt_len=3, output_len=2),
    ]
    assert back(tmp_path / "x.jsonl", specs) == specs
