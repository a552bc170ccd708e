"""Rows to requests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from engine.clock import ManualClock
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from traces import prompts
from traces.builtin import builtin_workload
from traces.errors import WorkloadError
from traces.prompts import PromptMaker
from traces.readers import read_workload
from traces.scaling import Scaling
from traces.workload import RequestSpec, Workload, late_requests, to_requests


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
        "row = RequestSpec('a', prompt_len=8, prefix_ids=(3,), prefix_lens=(4,))\n"
        "print(to_requests(workload(row), Codec(), 100)[0].token_ids)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (here,) = to_requests(workload(RequestSpec("a", prompt_len=8, prefix_ids=(3,), prefix_lens=(4,))), Codec(), 100)
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


# ---- made prompts -----------------------------------------------------------------------------------

MOONCAKE = Path(__file__).parent / "data" / "mooncake_arxiv_slice_74.jsonl"


def made(spec: RequestSpec, seed: int = 0, vocab: int = 50_000) -> list[int]:
    (request,) = to_requests(workload(spec), Codec(), vocab, seed)
    return request.token_ids


def test_the_same_prefix_ids_are_the_same_tokens_in_every_request() -> None:
    a = made(RequestSpec("a", prompt_len=100, prefix_ids=(7, 8, 9), prefix_lens=(32,)))
    b = made(RequestSpec("b", prompt_len=120, prefix_ids=(7, 8, 10), prefix_lens=(32,)))
    c = made(RequestSpec("c", prompt_len=120, prefix_ids=(5, 8, 10), prefix_lens=(32,)))
    assert a[:64] == b[:64] and a[64:96] != b[64:96]
    assert a[:32] != c[:32] and b[32:96] == c[32:96]
    assert a[96:] != b[96:100], "what follows the ids is a request's own"
    assert a == made(RequestSpec("a", prompt_len=100, prefix_ids=(7, 8, 9), prefix_lens=(32,)))
    assert a != made(RequestSpec("a", prompt_len=100, prefix_ids=(7, 8, 9), prefix_lens=(32,)), seed=1)


def test_one_id_with_two_lengths_is_two_contents() -> None:
    whole = made(RequestSpec("a", prompt_len=64, prefix_ids=(1, 2), prefix_lens=(32,)))
    part = made(RequestSpec("b", prompt_len=50, prefix_ids=(1, 2), prefix_lens=(32,)))
    assert whole[:32] == part[:32] and whole[32:50] != part[32:50]


def test_ids_beyond_64_bits_signs_and_lengths_of_their_own() -> None:
    spec = RequestSpec("a", prompt_len=10, prefix_ids=((1 << 64) - 1, 3), prefix_lens=(4, 100))
    tokens = made(spec)
    assert len(tokens) == 10
    assert tokens[:4] == made(RequestSpec("b", prompt_len=9, prefix_ids=((1 << 64) - 1,), prefix_lens=(4,)))[:4]
    with pytest.raises(WorkloadError, match="3 prefix_ids have 2 prefix_lens"):
        made(RequestSpec("a", prompt_len=10, prefix_ids=(1, 2, 3), prefix_lens=(4, 4)))


def test_made_tokens_are_spread_over_all_plain_ids() -> None:
    tokens = made(RequestSpec("a", prompt_len=97 * 2000), vocab=100)
    counts = Counter(tokens)
    assert set(counts) == set(range(3, 100)), "every id but the special ones"
    assert max(abs(count - 2000) for count in counts.values()) < 6 * 2000**0.5


def test_contents_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "KEPT_TOKENS", 100)
    maker = PromptMaker(Codec(), 1000)
    specs = [RequestSpec(f"r{n}", prompt_len=64, prefix_ids=(0, n), prefix_lens=(32,)) for n in range(1, 20)]
    first = [maker.make(spec, 64) for spec in specs]
    assert maker._kept_tokens <= 100 and len(maker._kept) == 3
    assert [maker.make(spec, 64) for spec in reversed(specs)] == first[::-1]
    assert maker.make(RequestSpec("big", prompt_len=500, prefix_ids=(99,), prefix_lens=(500,)), 500)
    assert maker._kept_tokens <= 100


def test_prompts_are_made_fast_enough_for_long_traces() -> None:
    """12,000 rows of 12,000 tokens must not take minutes: a tenth of a second for ten of them is far from that."""
    maker = PromptMaker(Codec(), 50_000)
    ids = tuple(range(200))
    spec = RequestSpec("a", prompt_len=100_000, prefix_ids=ids, prefix_lens=(512,))
    maker.make(spec, 100_000)
    begun = time.process_time()
    for _ in range(10):
        maker.make(spec, 100_000)
    assert time.process_time() - begun < 1.0


def test_late_prompts_hold_nothing_until_they_are_wanted() -> None:
    specs = tuple(RequestSpec(f"r{n}", prompt_len=1 << 20, output_len=1) for n in range(1000))
    requests = late_requests(Workload("w", specs), PromptMaker(Codec(), 1000))
    assert [len(request.token_ids) for request in requests[:3]] == [0, 0, 0] and requests[0].num_prompt == 1 << 20
    requests[5].fill()
    assert len(requests[5].token_ids) == 1 << 20


def test_prefix_reuse_is_that_of_an_endless_cache() -> None:
    """The Mooncake slice at 1/32, its 512-token blocks being the engine's 16: hits are counted from the file's ids."""
    rows = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    seen: set[int] = set()
    expected = []
    for row in rows:
        ids, whole = row["hash_ids"], row["input_length"] // 512
        leading = next((n for n, id in enumerate(ids[:whole]) if id not in seen), whole)
        # Of a prompt that is all there the last token is still computed, so its last block is not taken.
        expected.append(16 * (leading if leading * 512 < row["input_length"] else leading - 1))
        seen.update(ids[:whole])
    assert sum(expected) > 0.2 * sum(row["input_length"] for row in rows) / 32, "a slice with much in common"

    trace = read_workload(MOONCAKE)
    scaled, _ = Scaling(len_scale=1 / 32, speed=1e-3).apply(trace)
    clock = ManualClock()
    engine, executor = fake_engine(
        clock, num_blocks=20_000, block_size=16, max_model_len=16_384, enable_prefix_caching=True
    )
    executor.reads = False
    requests = to_requests(scaled, engine.tokenizer, 256)
    for at, request in enumerate(requests):
        request.arrival = float(at)
        request.params = SamplingParams(max_tokens=1, ignore_eos=True)
        engine.submit(request)
    cached: dict[str, int] = {}
    while engine.has_work():
        it = engine.step()
        if it is None:
            clock.advance((engine.next_event() or 0.0) - clock.now())
            continue
        cached.update({done.id: done.cached_tokens for done in it.finished})
    assert [cached[request.id] for request in requests] == expected


# ---- who is sent ------------------------------------------------------------------------------------


def test_failed_rows_are_not_sent_and_nobody_waits_for_them() -> None:
    specs = (
        RequestSpec("a", prompt_len=4, output_len=2),
        RequestSpec("b", prompt_len=0, output_len=0, failed=True, after="a", delay=1.0),
        RequestSpec("c", prompt_len=4, output_len=2, after="b", delay=2.0),
        RequestSpec("d", prompt_len=0, output_len=0, failed=True, arrival=3.0),
        RequestSpec("e", prompt_len=4, output_len=2, after="d", delay=2.0),
    )
    requests = to_requests(workload(*specs), Codec(), 100)
    assert [(r.id, r.after, r.delay, r.arrival) for r in requests] == [
        ("a", None, 0.0, 0.0), ("c", "a", 3.0, 0.0), ("e", None, 0.0, 3.0),
    ]  # fmt: skip


def test_sessions_reach_the_request_and_repeat_as_others() -> None:
    specs = (RequestSpec("a", prompt="x", session="s"), RequestSpec("b", prompt="x", session="s", after="a", delay=1.5))
    requests = to_requests(workload(*specs).repeated(2), Codec(), 100)
    assert [(r.id, r.session, r.after, r.delay) for r in requests] == [
        ("a", "s", None, 0.0), ("b", "s", "a", 1.5), ("a~2", "s~2", None, 0.0), ("b~2", "s~2", "a~2", 1.5),
    ]  # fmt: skip
