"""The whole engine on the tiny model: what a request gets, whatever happens around it (FAULTS R-01, R-06 to R-17)."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
import torch

from engine.build import build_engine
from engine.clock import ManualClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError
from engine.executors.torch_executor import TorchExecutor
from engine.models.decoder import Decoder
from engine.models.tiny import tiny_config, tiny_weights
from engine.records import Iteration, Kind
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from engine.view import KEEP_FINISHED, EngineView
from tests.engine.fakes import fake_engine, made_up
from tests.engine.harness import Run, check_view, hf_tiny, run, submit_all, tiny_engine

GREEDY = SamplingParams(max_tokens=10, ignore_eos=True)


@cache
def model() -> Any:
    return hf_tiny()


def assert_greedy(prompt: list[int], output: list[int]) -> None:
    """One forward pass of transformers over all of it: each output token is the likeliest after those before it."""
    ids = torch.tensor([prompt + output[:-1]])
    with torch.inference_mode():
        logits = model()(ids, attention_mask=torch.ones_like(ids)).logits[0]
    assert logits[len(prompt) - 1 :].argmax(-1).tolist() == output


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(length)]


def serve(engine: Engine, *requests: Request) -> Run:
    for request in requests:
        engine.submit(request)
    return run(engine)


def engine_with(weights: dict[str, torch.Tensor], **asked: Any) -> Engine:
    """The tiny model with other weights."""
    config = EngineConfig.resolve(asked, 4096)
    decoder = Decoder(tiny_config(), weights, config.model_len)
    clock = ManualClock()
    return Engine(config, TorchExecutor(decoder, config, clock), Tokenizer.bytes(), clock)


# ---- what can never run -----------------------------------------------------------------------


def test_impossible_requests_are_refused_and_hold_up_nobody() -> None:
    engine = tiny_engine(num_blocks=5, block_size=16, max_model_len=64)
    requests = [
        Request("fits", prompt_of(63), SamplingParams(ignore_eos=True)),
        Request("a", prompt_of(5), GREEDY),
        Request("full", prompt_of(64), GREEDY),
        Request("b", prompt_of(5), GREEDY),
        Request("over", prompt_of(65), GREEDY),
        Request("c", prompt_of(5), GREEDY),
        Request("grows", prompt_of(5), SamplingParams(max_tokens=5000, ignore_eos=True)),
        Request("d", prompt_of(5), GREEDY),
        Request("empty", [], GREEDY),
        Request("foreign", [1, 259], GREEDY),
        Request("negative", [-1], GREEDY),
    ]
    out = serve(engine, *requests)
    rejected = {r.id: r.reason for it in out.iterations for r in it.rejected}
    assert set(rejected) == {"full", "over", "empty", "foreign", "negative"}
    assert "64 tokens" in rejected["full"] and "65 tokens" in rejected["over"] and "258" in rejected["foreign"]
    for id in "abcd":
        assert_greedy(prompt_of(5), out.token_ids[id])
    assert len(out.token_ids["fits"]) == 1
    assert len(out.token_ids["grows"]) == 59, "ends with reason length when the model length is reached"
    assert out.view.requests["grows"].finish_reason is FinishReason.LENGTH
    assert out.view.rejected == 5 and out.view.num_waiting == 0


def test_model_with_fewer_ids_than_the_tokenizer() -> None:
    """Ids that only the tokenizer knows would index past the embedding: refused, not a crash of the engine."""
    weights = tiny_weights()
    config = EngineConfig.resolve({}, 4096)
    executor = TorchExecutor(Decoder(tiny_config(), weights, config.model_len), config, ManualClock())
    engine = Engine(config, executor, Tokenizer.bytes(), ManualClock(), vocab_size=200)
    out = serve(engine, Request("a", [199], GREEDY), Request("b", [200], GREEDY))
    assert [r.id for it in out.iterations for r in it.rejected] == ["b"] and len(out.token_ids["a"]) == 10


def test_an_id_is_refused_while_it_lives() -> None:
    engine = tiny_engine()
    engine.submit(Request("a", [1], GREEDY))
    engine.submit(Request("a", [2], GREEDY))
    engine.submit(Request("later", [1], GREEDY, arrival=1e9))
    engine.submit(Request("later", [2], GREEDY))
    it = engine.step()
    assert it is not None and [r.id for r in it.rejected] == ["a", "later"]
    assert [a.prompt_ids for a in it.arrived] == [(1,)]


def test_an_id_used_again_after_its_end() -> None:
    """The view forgets old finished requests; it must not forget a living one of the same name with them."""
    engine, _ = fake_engine(max_num_seqs=16)
    view = EngineView(512, 16, engine.config.values())

    def go(until: int, *names: str) -> None:
        """Submit, then run until so many requests are left."""
        for name in names:
            engine.submit(Request(name, [1, 2], SamplingParams(max_tokens=1, ignore_eos=True)))
        while len(engine.scheduler.requests) > until:
            check_view(view.apply(step(engine)), engine)

    go(0, "again")
    engine.submit(Request("again", [1, 2], SamplingParams(max_tokens=100, ignore_eos=True)))
    go(1, *(f"r{n}" for n in range(600)))
    assert view.requests["again"].finish_reason is None, "still alive while 600 others came and went"
    while engine.has_work():
        check_view(view.apply(step(engine)), engine)
    assert view.requests["again"].output_len == 100
    assert len(view.requests) == KEEP_FINISHED


# ---- R-06 block borders -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 16, 256])
def test_block_borders(size: int) -> None:
    lengths = sorted({max(1, size - 1), size, size + 1, 2 * size})
    engine = tiny_engine(block_size=size, num_blocks=40 if size < 256 else 30, max_model_len=None)
    prompts = [prompt_of(length, length) for length in lengths]
    ids = submit_all(engine, prompts, SamplingParams(max_tokens=2 * size + 1, ignore_eos=True))
    out = run(engine)
    for id, prompt in zip(ids, prompts, strict=True):
        assert len(out.token_ids[id]) == 2 * size + 1
        assert_greedy(prompt, out.token_ids[id])


# ---- prefix cache ------------------------------------------------------------------------


def family_prompts(count: int) -> list[list[int]]:
    """Three families: short shared beginnings, a long one, and prompts that extend earlier ones."""
    rng = random.Random(11)
    short, long = prompt_of(8, 1), prompt_of(40, 2)
    prompts: list[list[int]] = []
    for n in range(count):
        kind = n % 3
        if kind == 0:
            prompt = short[: rng.randrange(9)] + prompt_of(rng.randrange(1, 12), rng.randrange(20))
        elif kind == 1:
            prompt = long[: rng.randrange(1, 41)]
        else:
            prompt = (rng.choice(prompts) + prompt_of(rng.randrange(1, 6), n))[:60]
        prompts.append(prompt)
    return prompts


@pytest.mark.parametrize("blocks", [24, 120])
def test_cache_on_and_off_give_the_same(blocks: int) -> None:
    """R-07: 300 prompts at high concurrency, with evictions all the time (24) or now and then (120)."""
    prompts, params = family_prompts(300), SamplingParams(max_tokens=3, ignore_eos=True)
    runs = []
    for caching in (True, False):
        engine = tiny_engine(
            num_blocks=blocks, block_size=4, max_model_len=70, enable_prefix_caching=caching,
            max_num_batched_tokens=128, scheduler_reserve_full_isl=False,
        )  # fmt: skip
        submit_all(engine, prompts, params)
        out = Run([], EngineView(blocks, 4, engine.config.values()))
        while engine.has_work():  # without the checks of `run`: they are done on smaller runs
            it = engine.step()
            assert it is not None
            out.iterations.append(it)
            out.view.apply(it)
            for token in it.tokens:
                out.token_ids.setdefault(token.id, []).append(token.token_id)
            assert len(engine.scheduler.pool._index) <= blocks - 1
        runs.append(out)
    assert runs[0].token_ids == runs[1].token_ids
    assert runs[0].cached > 500 and runs[1].cached == 0
    assert runs[0].view.preemptions > 0 or blocks > 24
    for n in range(0, 300, 29):
        assert_greedy(prompts[n], runs[0].token_ids[f"r{n}"])


def test_evicted_prompt_hits_nothing() -> None:
    """R-07: X, then enough others to take every block, then X again."""
    engine = tiny_engine(num_blocks=9, block_size=4, max_model_len=32)
    x = prompt_of(20)
    first = serve(engine, Request("x", x, GREEDY)).token_ids["x"]
    assert_greedy(x, first)
    view = EngineView(9, 4, engine.config.values())
    view.seq = engine.seq - 1
    for n in range(4):
        engine.submit(Request(f"other{n}", prompt_of(31, 50 + n), SamplingParams(max_tokens=1)))
    engine.submit(Request("again", x, GREEDY))
    tokens, cached = [], None
    while engine.has_work():
        it = engine.step()
        assert it is not None
        tokens += [token.token_id for token in it.tokens if token.id == "again"]
        cached = next((f.cached_tokens for f in it.finished if f.id == "again"), cached)
    assert tokens == first and cached == 0


@pytest.mark.parametrize("size", [1, 4, 16])
def test_whole_prompt_cached(size: int) -> None:
    """R-08: a prompt of k whole blocks three times in a row, four times at once, and one token longer."""
    engine = tiny_engine(block_size=size, num_blocks=100)
    prompt = prompt_of(3 * size + (size == 1))
    first = None
    for n in range(3):
        engine.submit(Request(f"cold{n}", prompt, GREEDY))
        tokens, cached = [], None
        while engine.has_work():
            it = engine.step()
            assert it is not None
            tokens += [token.token_id for token in it.tokens]
            cached = it.finished[0].cached_tokens if it.finished else cached
        first = first or tokens
        assert tokens == first and cached == (0 if n == 0 else len(prompt) - size)
    assert first is not None
    assert_greedy(prompt, first)
    for n in range(4):
        engine.submit(Request(f"warm{n}", prompt, GREEDY))
    longer = [*prompt, first[0]]
    engine.submit(Request("longer", longer, SamplingParams(max_tokens=9, ignore_eos=True)))
    got: dict[str, list[int]] = {}
    while engine.has_work():
        it = engine.step()
        assert it is not None
        for token in it.tokens:
            got.setdefault(token.id, []).append(token.token_id)
        for done in it.finished:
            assert done.cached_tokens == (len(prompt) if done.id == "longer" else len(prompt) - size)
    assert all(got[f"warm{n}"] == first for n in range(4))
    assert got["longer"] == first[1:]


def test_two_that_share_blocks_filled_in_the_same_iteration() -> None:
    """The second hits blocks that this very iteration fills: K/V of the batch are written before any is read."""
    engine = tiny_engine(block_size=4, max_num_batched_tokens=200)
    shared = prompt_of(32)
    prompts = [shared + prompt_of(3, n) for n in range(4)]
    submit_all(engine, prompts, GREEDY)
    it = engine.step()
    assert it is not None and [s.computed_before for s in it.scheduled] == [0, 32, 32, 32]
    tokens = {token.id: [token.token_id] for token in it.tokens}
    while engine.has_work():
        it = engine.step()
        assert it is not None
        for token in it.tokens:
            tokens[token.id].append(token.token_id)
    for n, prompt in enumerate(prompts):
        assert_greedy(prompt, tokens[f"r{n}"])


# ---- R-10 to R-13 -----------------------------------------------------------------------------------


def test_no_token_before_the_prompt_is_done() -> None:
    """R-10: four chunks, then the first token; one token an iteration from there."""
    engine = tiny_engine(max_num_batched_tokens=16)
    out = serve(engine, Request("a", prompt_of(60), SamplingParams(max_tokens=3, ignore_eos=True)))
    assert [len(it.tokens) for it in out.iterations] == [0, 0, 0, 1, 1, 1]
    request = out.view.requests["a"]
    assert request.ttft == out.iterations[3].t_end - request.arrival


def test_seeded_answers_depend_on_nothing_else() -> None:
    """Alone, in batches, in chunks, after preemptions and with hits: the same tokens for seed and prompt."""
    rng = random.Random(3)
    prompts = [prompt_of(rng.randrange(1, 60), n) for n in range(8)]
    params = [
        SamplingParams(
            max_tokens=24, ignore_eos=True, temperature=rng.choice([0.7, 1.0, 1.5]), seed=100 + n,
            top_p=rng.choice([1.0, 0.9]), top_k=rng.choice([0, 20]), min_p=rng.choice([0.0, 0.02]),
        )
        for n in range(8)
    ]  # fmt: skip

    def answers(**asked: Any) -> tuple[list[list[int]], Run]:
        engine = tiny_engine(**asked)
        order = list(range(8))
        random.Random(len(asked)).shuffle(order)
        out = serve(engine, *(Request(f"{len(asked)}-{n}", prompts[n], params[n]) for n in order))
        return [out.token_ids[f"{len(asked)}-{n}"] for n in range(8)], out

    alone = [serve(tiny_engine(num_blocks=20), Request("x", prompts[n], params[n])).token_ids["x"] for n in range(8)]
    assert len(set(map(tuple, alone))) == 8
    assert answers(num_blocks=60)[0] == alone
    assert answers(max_num_batched_tokens=9, num_blocks=60)[0] == alone
    got, out = answers(num_blocks=22, block_size=4, max_model_len=84, scheduler_reserve_full_isl=False)
    assert got == alone and sum(out.preemptions.values()) > 3
    assert answers(max_num_seqs=3, block_size=8, num_blocks=60, max_num_batched_tokens=17, watermark=0.1)[0] == alone


def test_seeds_differ_and_repeat() -> None:
    def tokens(id: str, seed: int | None, engine_seed: int = 0) -> list[int]:
        engine = build_engine(None, {"num_blocks": 20}, model_name="tiny", seed=engine_seed).engine
        params = SamplingParams(max_tokens=8, temperature=1.0, seed=seed, ignore_eos=True)
        return serve(engine, Request(id, [1, 2, 3], params)).token_ids[id]

    assert tokens("a", 1) == tokens("b", 1) != tokens("a", 2)
    assert tokens("a", None) == tokens("a", None) != tokens("b", None)
    assert tokens("a", None, 1) != tokens("a", None, 0)
    assert tokens("a", 1, 1) == tokens("a", 1, 0)


def test_edges_of_sampling_in_one_batch() -> None:
    """R-13: tiny temperatures and filters of one token are greedy, beside hot neighbours."""
    engine = tiny_engine()
    settings: list[dict[str, Any]] = [
        {"temperature": t} for t in (0.0, 1e-12, 1e-5, 1e-4)
    ] + [{"temperature": 2.0, "top_p": 1e-6}, {"temperature": 2.0, "top_k": 1}, {"temperature": 0.01}]  # fmt: skip
    hot = [{"temperature": 2.0, "seed": n} for n in range(4)]
    for n, setting in enumerate([*settings, *hot]):
        engine.submit(Request(f"r{n}", prompt_of(9), SamplingParams(max_tokens=12, ignore_eos=True, **setting)))
    out = run(engine)
    expected = out.token_ids["r0"]
    assert_greedy(prompt_of(9), expected)
    assert all(out.token_ids[f"r{n}"] == expected for n in range(len(settings)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_ends_its_request_only(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine()
    decoder = engine.executor.decoder  # type: ignore[attr-defined]
    logits_of, calls = decoder.logits, [0]

    def poisoned(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = logits_of(hidden).clone()
        calls[0] += 1
        if calls[0] == 5:
            logits[1, 100] = value
        return logits

    monkeypatch.setattr(decoder, "logits", poisoned)
    prompts = [prompt_of(5, n) for n in range(3)]
    submit_all(engine, prompts, GREEDY)
    out = run(engine)
    bad = out.view.requests["r1"]
    assert bad.finish_reason is FinishReason.ERROR and "finite" in bad.finish_detail
    assert len(out.token_ids["r1"]) == 4, "what came before stays"
    for n in (0, 2):
        assert_greedy(prompts[n], out.token_ids[f"r{n}"])
    assert_greedy(prompts[1], out.token_ids["r1"])
    after = Request("after", prompts[1], GREEDY)
    engine.submit(after)
    while engine.has_work():
        engine.step()
    assert_greedy(prompts[1], after.output_ids)


@pytest.mark.parametrize("token", [0, 5])
@pytest.mark.parametrize("caching", [True, False])
def test_nan_in_the_weights_of_one_token(token: int, caching: bool) -> None:
    """R-13, a real NaN: requests with that token in them fail, in every chunk size and beside anybody.

    The model never says either token. Id 0 is what padding rows are made of. Neighbours run in blocks that failed
    requests left behind, and share the beginning of their prompts.
    """
    weights = tiny_weights()
    weights["model.embed_tokens.weight"][token] = float("nan")
    rng = random.Random(token)

    def clean(length: int) -> list[int]:
        return [rng.choice([t for t in range(256) if t != token]) for _ in range(length)]

    shared = clean(12)
    engine = engine_with(
        weights, num_blocks=30, block_size=4, max_num_batched_tokens=24, enable_prefix_caching=caching,
        max_model_len=60,
    )  # fmt: skip
    requests: list[Request] = []
    for n in range(40):
        prompt = (shared if n % 4 > 1 else []) + clean(rng.randrange(1, 20))
        if n % 2:
            prompt[rng.randrange(len(prompt) // 2, len(prompt))] = token
        requests.append(Request(f"r{n}", prompt, SamplingParams(max_tokens=6, ignore_eos=True)))
    # One after the other in pairs, so that a failed one's blocks are all over the pool before most begin.
    for first, second in zip(requests[1::2], requests[::2], strict=True):
        engine.submit(first)
        while engine.has_work():
            engine.step()
        engine.submit(second)
        engine.step()
    while engine.has_work():
        engine.step()
    for n, request in enumerate(requests):
        if n % 2:
            assert request.num_output == 0
        else:
            assert request.num_output == 6, f"{request.id} was poisoned by another request"
            assert_greedy(request.token_ids[: request.num_prompt], request.output_ids)


# ---- when it ends -----------------------------------------------------------------


@pytest.mark.parametrize("budget", [3, 256])
def test_max_tokens_exactly(budget: int) -> None:
    engine = tiny_engine(max_num_batched_tokens=budget, block_size=16)
    counts = [1, 2, 5, 16]
    for count in counts:
        engine.submit(Request(f"n{count}", prompt_of(7, count), SamplingParams(max_tokens=count, ignore_eos=True)))
    out = run(engine)
    for count in counts:
        request = out.view.requests[f"n{count}"]
        assert len(out.token_ids[f"n{count}"]) == request.output_len == count
        assert request.finish_reason is FinishReason.LENGTH
        assert out.text[f"n{count}"] == bytes(out.token_ids[f"n{count}"]).decode(), "the last piece is missing"
    assert {f.id: f.output_len for it in out.iterations for f in it.finished} == {f"n{c}": c for c in counts}


def test_stop_strings_through_the_engine() -> None:
    """R-15: a known greedy answer, one byte a token; stops over several tokens, and a failing prefix."""
    prompt = prompt_of(9, 4)
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    plain = serve(tiny_engine(), Request("a", prompt, params))
    text = plain.text["a"]
    assert len(text) == 40
    cases: list[tuple[str, ...]] = [
        (text[10:12],), (text[10:13],), (text[0],), (text[39],), (text[5:8] + "\x00",), ("never",),
        (text[20:22], text[12:15], "zzz", text[30]), (text[10:14], text[12]), (text[38:40] + "more",),
    ]  # fmt: skip
    engine = tiny_engine()
    for n, stops in enumerate(cases):
        params = SamplingParams(max_tokens=40, ignore_eos=True, stop=stops)
        engine.submit(Request(f"s{n}", prompt, params))
    out = run(engine)
    for n, stops in enumerate(cases):
        found = [at for at in map(text.find, stops) if at >= 0]
        assert out.text[f"s{n}"] == (text[: min(found)] if found else text), stops
        assert out.view.requests[f"s{n}"].text == out.text[f"s{n}"]
        reason = FinishReason.STOP if found else FinishReason.LENGTH
        assert out.view.requests[f"s{n}"].finish_reason is reason
        if found:
            at = min(found)
            longest = max(len(stop) for stop in stops if text.find(stop) == at)
            assert at < len(out.token_ids[f"s{n}"]) <= at + max(longest, max(map(len, stops)))


def test_stop_inside_a_token() -> None:
    """R-15 with tokens of several characters: nothing after the stop's place leaks, wherever in a token it sits."""
    words = ["Hel", "lo, wo", "rld", "! How", " are", " you", "\n", "🙂🙂", " end"]
    table = [word.encode() for word in words]
    tokenizer = Tokenizer(None, {}, frozenset(), table)

    def piece(id: str, position: int) -> int:
        return position - 1

    for stop in ("o, w", "wor", "d! H", "l", "Hel", "\n🙂", "🙂", "u\n", "rld!", "y", "H"):
        engine, executor = fake_engine(tokens=piece)
        engine = Engine(engine.config, executor, tokenizer, ManualClock())
        out = serve(engine, Request("a", [0], SamplingParams(max_tokens=9, stop=(stop,))))
        whole = "".join(words)
        assert out.text["a"] == whole[: whole.index(stop)], stop
        assert out.view.requests["a"].finish_reason is FinishReason.STOP


@pytest.mark.parametrize("end", [0, 33, 257])
def test_end_ids(end: int) -> None:
    """R-17: any id of the set ends it, 0 too; it is counted but is not in the text. Not when EOS is ignored."""

    def tokens(id: str, position: int) -> int:
        return end if position == 5 else 65

    engine, executor = fake_engine(tokens=tokens)
    tokenizer = Tokenizer.bytes()
    tokenizer.eos_ids = frozenset({257, 33, 0})
    engine = Engine(engine.config, executor, tokenizer, ManualClock())
    params = [
        SamplingParams(max_tokens=9),
        SamplingParams(max_tokens=9, ignore_eos=True),
        SamplingParams(max_tokens=4),
        SamplingParams(max_tokens=9, ignore_eos=True, stop_token_ids=(end,)),
    ]
    out = serve(engine, *(Request(f"r{n}", [1, 2], p) for n, p in enumerate(params)))
    reasons = [out.view.requests[f"r{n}"].finish_reason for n in range(4)]
    stop, length = FinishReason.STOP, FinishReason.LENGTH
    assert reasons == [stop, length, stop, stop], "the end id beats the length where both apply"
    assert [len(out.token_ids[f"r{n}"]) for n in range(4)] == [4, 9, 4, 4]
    assert out.text["r0"] == out.text["r2"] == out.text["r3"] == "AAA"
    assert str(end) in out.view.requests["r0"].finish_detail


def test_no_end_id_runs_to_the_limit() -> None:
    engine, executor = fake_engine(tokens=lambda id, position: 257)
    tokenizer = Tokenizer.bytes()
    tokenizer.eos_ids = frozenset()
    engine = Engine(engine.config, executor, tokenizer, ManualClock())
    out = serve(engine, Request("a", [1], SamplingParams(max_tokens=7)))
    assert len(out.token_ids["a"]) == 7 and out.view.requests["a"].finish_reason is FinishReason.LENGTH


# ---- steps, arrivals, aborts, knobs -----------------------------------------------------------------


def step(engine: Engine, **how: bool) -> Iteration:
    it = engine.step(**how)
    assert it is not None
    return it


def test_arrivals_come_in_their_order_and_at_their_time() -> None:
    clock = ManualClock()
    engine, _ = fake_engine(clock)
    for id, arrival in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("now", 0.0)):
        engine.submit(Request(id, [1], GREEDY, arrival=arrival))
    it = step(engine)
    assert [a.id for a in it.arrived] == ["now"] and it.planned == 4
    assert engine.next_arrival() == 1.0
    clock.advance(2.5)
    it = step(engine, run=False)
    assert [a.id for a in it.arrived] == ["a", "b1", "b2"] and it.planned == 1 and not it.executed
    assert [a.arrival for a in it.arrived] == [1.0, 2.0, 2.0], "latencies count from the planned time"
    engine.abort("c")
    it = step(engine, run=False)
    assert [a.id for a in it.arrived] == ["c"] and it.finished[0].reason is FinishReason.ABORT
    assert engine.next_arrival() is None and it.planned == 0


def test_aborting_ten_thousand_planned_ones() -> None:
    """Constant time each: done in a moment, and in an order that a scan would find worst."""
    engine, _ = fake_engine()
    for n in range(10000):
        engine.submit(Request(f"r{n}", [1], GREEDY, arrival=1e6 + n))
    for n in reversed(range(1, 10000)):
        engine.abort(f"r{n}")
    assert engine.next_arrival() == 1e6
    engine.submit(Request("sooner", [1], GREEDY, arrival=5.0))
    assert engine.next_arrival() == 5.0
    engine.abort("sooner")
    engine.abort("r0")
    assert (engine.next_arrival() is None and not engine.has_work()) or engine.scheduler.requests == {}
    assert len(step(engine, run=False).finished) == 10001


def test_nothing_to_do_says_nothing() -> None:
    engine, executor = fake_engine()
    assert engine.step() is None and engine.step(run=False) is None and executor.calls == 0
    engine.abort("nobody")
    assert engine.step() is None and engine.seq == 0


def test_knobs_and_notices_are_told_once() -> None:
    engine, _ = fake_engine()
    engine.set_knob("max_num_seqs", "3")
    engine.try_knob("max_num_seqs", 0)
    with pytest.raises(ConfigError):
        engine.set_knob("block_size", 4)
    it = step(engine)
    assert [(k.name, k.old, k.new, k.version) for k in it.knobs] == [("max_num_seqs", 16, 3, 1)]
    assert len(it.notices) == 1 and "max_num_seqs" in it.notices[0]
    assert engine.step() is None


def test_control_changes_are_told() -> None:
    engine, _ = fake_engine()
    engine.paused = True
    assert step(engine, run=False).paused
    engine.pace = 2.5
    it = step(engine, run=False)
    assert it.paused and it.pace == 2.5
    assert engine.step(run=False) is None


def test_a_lone_preemption_runs_nothing_and_is_told() -> None:
    """The plan of an iteration can be empty but for a preemption; the real executor is not asked to run nothing."""
    engine = tiny_engine(
        num_blocks=6, block_size=4, max_model_len=20, max_num_batched_tokens=12, scheduler_reserve_full_isl=False,
        prefill_schedule_interval=50, enable_prefix_caching=False, long_prefill_token_threshold=8,
    )  # fmt: skip
    engine.submit(Request("long", prompt_of(19), SamplingParams(max_tokens=1, ignore_eos=True)))
    engine.submit(Request("a", prompt_of(4), SamplingParams(max_tokens=16, ignore_eos=True)))
    out = run(engine)
    alone = [it for it in out.iterations if it.preempted and not it.scheduled]
    assert alone and alone[0].preempted[0].id == "a"
    assert_greedy(prompt_of(4), out.token_ids["a"])
    assert_greedy(prompt_of(19), out.token_ids["long"])


def test_chunking_off_live_with_real_tokens() -> None:
    """Prompts above the budget run whole beside the decodes; nothing is stuck and nothing changes."""
    engine = tiny_engine(max_num_batched_tokens=16, num_blocks=200)
    prompts = [prompt_of(n, n) for n in (5, 40, 100, 16, 17)]
    engine.submit(Request("r0", prompts[0], SamplingParams(max_tokens=30, ignore_eos=True)))
    engine.set_knob("enable_chunked_prefill", False)
    for n in range(1, 5):
        engine.submit(Request(f"r{n}", prompts[n], GREEDY))
    out = run(engine)
    for n, prompt in enumerate(prompts):
        assert_greedy(prompt, out.token_ids[f"r{n}"])
        chunks = [s for it in out.iterations for s in it.scheduled if s.id == f"r{n}" and s.kind is Kind.NEW]
        assert [s.num_tokens for s in chunks] == [len(prompt)]


def test_a_record_of_a_long_queue_is_short() -> None:
    engine, _ = fake_engine(max_num_seqs=1)
    for n in range(5000):
        engine.submit(Request(f"r{n}", [1], GREEDY))
    step(engine)
    it = step(engine)
    assert it.num_waiting == 4999 and it.waiting == tuple(f"r{n}" for n in range(1, 65))
    assert not it.arrived


# ---- faults -----------------------------------------------------------------------------------------


def test_fault_record_ends_everybody() -> None:
    clock = ManualClock()
    engine, executor = fake_engine(clock, max_num_seqs=1)

    def fail(plan: object) -> None:
        raise RuntimeError("out of luck")

    for id in ("runs", "waits"):
        engine.submit(Request(id, [1, 2], GREEDY, client="c", arrival=0.0))
    engine.submit(Request("planned", [1], GREEDY, arrival=50.0))
    view = EngineView(512, 16, engine.config.values())
    view.apply(step(engine))
    clock.advance(7.0)
    executor.hook = fail
    engine.submit(Request("new", [1], GREEDY))
    engine.submit(Request("bad", [], GREEDY))
    engine.abort("waits")
    engine.set_knob("max_num_seqs", 2)
    with pytest.raises(RuntimeError):
        engine.step()
    it = engine.fault_record("the trace", [Request("unread", [1])])
    view.apply(it)
    assert it.fault == view.fault == "the trace"
    ends = {f.id: (f.reason, f.arrival) for f in it.finished}
    error, abort = FinishReason.ERROR, FinishReason.ABORT
    assert ends == {"waits": (abort, 0.0), "runs": (error, 0.0), "new": (error, 7.0)}
    assert {r.id for r in it.rejected} == {"bad", "planned", "unread"}
    assert view.knobs["max_num_seqs"] == 2


def test_fault_in_the_middle_of_commit_loses_nobody() -> None:
    """One request has just finished, the next one's text fails: both get an end, though the record was never made."""
    engine, _ = fake_engine()
    for id in ("first", "second"):
        engine.submit(Request(id, [1], SamplingParams(max_tokens=1)))

    def broken(token: int) -> Any:
        raise ValueError("no such token")

    step(engine, run=False)
    engine._outputs["second"].push = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no such token"):
        engine.step()
    assert {f.id for f in engine.fault_record("trace").finished} == {"first", "second"}


# ---- memory -----------------------------------------------------------------------------------------


def sizes(*roots: object) -> dict[str, int]:
    """Lengths of all containers that the engine's objects hold."""
    found = {}
    for root in roots:
        names = getattr(type(root), "__slots__", None) or vars(root)
        for name in names:
            value = getattr(root, name)
            if hasattr(value, "__len__") and not isinstance(value, str):
                found[f"{type(root).__name__}.{name}"] = len(value)
    return found


def test_nothing_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve thousand iterations of churn: afterwards every container is as it was at the beginning."""
    monkeypatch.setenv("WORKBENCH_CHECK", "0")
    rng = random.Random(1)
    clock = ManualClock()
    engine, executor = fake_engine(clock, num_blocks=30, block_size=4, max_model_len=40, max_num_seqs=4)
    executor.execute = lambda plan: _quick(plan)  # type: ignore[method-assign]
    executor.release = lambda id: None  # type: ignore[method-assign]
    view = EngineView(30, 4, engine.config.values())
    first: dict[str, int] | None = None
    for n in range(12000):
        clock.advance(0.01)
        if len(engine.scheduler.requests) < 8:
            arrival = clock.now() + rng.choice([0.0, 0.05])
            prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
            engine.submit(Request(f"r{n}", prompt, SamplingParams(max_tokens=rng.randrange(1, 9)), arrival=arrival))
        engine.abort(f"r{n - rng.randrange(40)}")
        it = engine.step()
        if it is not None:
            view.apply(it)
        if n in (2999, 11999):
            while engine.has_work():
                clock.advance(0.1)
                it = engine.step()
                if it is not None:
                    view.apply(it)
            pool = engine.scheduler.pool
            now = sizes(engine, engine.scheduler, pool, view)
            first = first or now
    assert first is not None
    grown = {name: (first[name], size) for name, size in now.items() if size > first[name]}
    assert set(grown) <= {"BlockPool._index"}, grown
    assert now["BlockPool._index"] <= 29 and now["EngineView.requests"] <= 512


def _quick(plan: Any) -> Any:
    from engine.executors.base import Sampled

    tokens = [made_up("x", len(item.request.token_ids)) if item.samples else None for item in plan.items]
    return Sampled(tokens, 0.0, 0.0, 0.0)
