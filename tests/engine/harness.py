"""Helpers for tests that run a whole engine, and Hugging Face as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.build import build_engine
from engine.engine import Engine
from engine.models.tiny import TINY_CONFIG, tiny_weights
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView


def tiny_engine(**asked: Any) -> Engine:
    return build_engine(None, asked, model_name="tiny").engine


@dataclass
class Run:
    """Everything a run told through its records."""

    iterations: list[Iteration]
    view: EngineView
    token_ids: dict[str, list[int]] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)

    @property
    def preemptions(self) -> dict[str, int]:
        return {id: self.view.requests[id].preemptions for id in self.token_ids}

    @property
    def cached(self) -> int:
        return sum(it.prefix.hits + it.prefix.preempted_hits for it in self.iterations)


def run(engine: Engine, before_step: Callable[[int], None] | None = None, *, view: bool = True) -> Run:
    """Step until nothing is left, folding every record into a view and checking it against the engine's own state.

    view: False for an engine that has been running already.
    """
    config = engine.config
    shown = EngineView(config.num_blocks, config.block_size, config.values())
    out = Run([], shown)
    while engine.has_work():
        if before_step is not None:
            before_step(engine.step_count)
        it = engine.step()
        if it is None:
            raise AssertionError("the engine has work but does nothing")
        out.iterations.append(it)
        if view:
            shown.apply(it)
            check_view(shown, engine)
        for token in it.tokens:
            out.token_ids.setdefault(token.id, []).append(token.token_id)
            out.text[token.id] = out.text.get(token.id, "") + token.text
        for done in it.finished:
            out.token_ids.setdefault(done.id, [])
            out.text[done.id] = out.text.get(done.id, "") + done.tail
    return out


def check_view(view: EngineView, engine: Engine) -> None:
    """The state rebuilt from records is the engine's own state."""
    scheduler, pool = engine.scheduler, engine.scheduler.pool
    assert list(view.running) == [request.id for request in scheduler.running]
    assert view.waiting_ids(64) == [request.id for request in scheduler.waiting][:64]
    assert view.num_waiting == len(scheduler.waiting)
    assert view.free_blocks == pool.num_free
    assert view.owners == pool.owner
    assert view.refs == pool.ref
    assert view.cached == [key is not None for key in pool.key]
    assert view.knobs == engine.config.values()
    assert list(view.swapped) == [request.id for request in scheduler.swapped]
    assert list(view.batch) == [request.id for request in scheduler.batch.members]
    assert view.off_blocks == pool.num_off and view.usable_blocks == pool.num_usable
    assert view.free_cpu_blocks == scheduler.swap_pool.num_free
    for request in scheduler.requests.values():
        seen = view.requests[request.id]
        assert seen.status == request.status
        assert seen.computed == request.num_computed
        assert seen.blocks == request.block_table
        assert seen.swapped_blocks == len(request.cpu_blocks)
        assert [*seen.prompt_ids, *seen.token_ids] == request.token_ids
        assert seen.preemptions == request.num_preemptions
        assert seen.recomputed_tokens == request.recomputed_tokens


def submit_all(engine: Engine, prompts: Sequence[list[int]], params: SamplingParams, **fields: Any) -> list[str]:
    ids = [f"r{index}" for index in range(len(prompts))]
    for id, prompt in zip(ids, prompts, strict=True):
        engine.submit(Request(id, prompt, params, **fields))
    return ids


def hf_tiny() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**TINY_CONFIG))
    model.load_state_dict(tiny_weights())
    return model.eval()


def hf_folder(path: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def hf_greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedy continuation by transformers; end-of-sequence ids mean nothing to it."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),  # or it masks prompt tokens that equal the padding id
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens
