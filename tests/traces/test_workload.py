"""Rows to requests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from traces.builtin import builtin_workload
from traces.errors import WorkloadError
from traces.workload import RequestSpec, Workload, to_requests


class Codec:
    """One id a character; 0 ends, 1 and 2 are special."""

    eos_ids = frozenset({0})
    special_ids = frozenset({0, 1, 2})

    def encode(self, text: str) -> list[int]:
        return [3 + ord(char) % 90 for char in text.strip()]

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return [1, *(id for m in messages for id in self.encode(m["role"] + m["content"])), 2]


def workload(*specs: RequestSpec) -> Workload:
    return Workload("w", specs)


def test_prompt_forms() -> None:
    codec = Codec()
    specs = (
        RequestSpec("ids", prompt_ids=(4, 5)),
        RequestSpec("raw", prompt="hello"),
        RequestSpec("chat", messages=(("system", "s"), ("user", "hello"))),
        RequestSpec("random", prompt_len=50, output_len=3, client="c", priority=2, arrival=1.5),
    )
    ids, raw, chat, random = to_requests(workload(*specs), codec, 100)
    assert ids.token_ids == [4, 5]
    assert raw.token_ids == codec.encode("hello") and raw.prompt_text == "hello"
    assert chat.token_ids[0] == 1 and chat.token_ids[-1] == 2 and chat.prompt_text == "hello"
    assert len(random.token_ids) == 50 and not set(random.token_ids) & codec.special_ids
    assert max(random.token_ids) < 100
    assert (random.client, random.priority, random.arrival) == ("c", 2, 1.5)
    assert random.params.max_tokens == 3 and random.params.ignore_eos


def test_deadlines_and_expected_lengths_reach_the_request() -> None:
    specs = (
        RequestSpec("plain", prompt="x", max_tokens=7),
        RequestSpec("exact", prompt="x", output_len=7, deadline=0.5),
        RequestSpec("oracle", prompt="x", output_len=7, expected_output=3),
    )
    requests = to_requests(workload(*specs), Codec(), 100)
    assert [(request.deadline, request.expected_output) for request in requests] == [(None, None), (0.5, 7), (None, 3)]


def test_random_prompts_depend_on_seed_and_id_only() -> None:
    a, b = RequestSpec("a", prompt_len=20), RequestSpec("b", prompt_len=20)
    codec = Codec()
    first, second = to_requests(workload(a, b), codec, 100, seed=1)
    (again,) = to_requests(workload(b), codec, 100, seed=1)
    (other,) = to_requests(workload(b), codec, 100, seed=2)
    assert first.token_ids != second.token_ids
    assert again.token_ids == second.token_ids != other.token_ids


def test_random_prompts_are_the_same_in_another_process() -> None:
    script = (
        "from tests.traces.test_workload import Codec, workload\n"
        "from traces.workload import RequestSpec, to_requests\n"
        "print(to_requests(workload(RequestSpec('a', prompt_len=8)), Codec(), 100)[0].token_ids)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (here,) = to_requests(workload(RequestSpec("a", prompt_len=8)), Codec(), 100)
    assert done.stdout.strip() == str(here.token_ids)


def test_rows_this_model_cannot_take_are_named_or_skipped() -> None:
    specs = (
        RequestSpec("big", prompt_ids=(4, 100), where="f:1"),
        RequestSpec("blank", prompt="  ", where="f:2"),
        RequestSpec("talk", messages=(("user", "x"),), where="f:3"),
        RequestSpec("good", prompt="x", where="f:4"),
    )
    with pytest.raises(WorkloadError) as caught:
        to_requests(workload(*specs), Codec(), 100, chat=False)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["f:1", "f:2", "f:3"]
    assert "prompt_ids holds 100, this model's ids are 0..99" in str(caught.value)
    skipped: list[str] = []
    (good,) = to_requests(workload(*specs), Codec(), 100, chat=False, skipped=skipped)
    assert good.id == "good" and len(skipped) == 3


def test_repeated() -> None:
    spec = RequestSpec("a", arrival=2.0, prompt="x")
    assert [(s.id, s.arrival) for s in workload(spec).repeated(3).specs] == [("a", 2.0), ("a~2", 5.0), ("a~3", 8.0)]
    assert workload(spec).repeated(1) == workload(spec)
    assert [s.arrival for s in Workload("w", (spec,), period=60.0).repeated(2).specs] == [2.0, 62.0]


def test_builtin_workload_shows_batching_within_a_second() -> None:
    specs = builtin_workload().specs
    assert len({spec.id for spec in specs}) == len(specs)
    assert {spec.client for spec in specs} == {"alice", "bob", "carol", "dave", "erin", "load"}
    assert len([spec for spec in specs if spec.arrival < 0.5]) >= 4
    assert [spec.arrival for spec in specs] == sorted(spec.arrival for spec in specs)
    assert max(spec.arrival for spec in specs) < 60 and all(spec.max_tokens for spec in specs)
    longest = max(len(content) for spec in specs for _, content in spec.messages or ())
    assert longest > 2500  # characters; more than 600 tokens
    for spec in specs:
        spec.sampling()
