"""A policy with its surroundings, driven by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from engine.config import EngineConfig
from engine.policies import Policy, PolicyEnv, make_policy
from engine.request import Request, RequestStatus
from engine.sampling_params import SamplingParams


def make(id: str, prompt: int | list[int] = 1, output: int = 8, **fields: Any) -> Request:
    tokens = prompt if isinstance(prompt, list) else [1] * prompt
    fields.setdefault("arrival", 0.0)
    fields.setdefault("expected_output", output)
    return Request(id, tokens, SamplingParams(max_tokens=output), **fields)


def policy_of(name: str, cached: Callable[[Request], int] = lambda request: 0, **asked: Any) -> Policy:
    asked.setdefault("max_model_len", 4096)
    asked.setdefault("num_blocks", 1025)
    return make_policy(name, PolicyEnv(EngineConfig.resolve({"policy": name, **asked}), cached))


def configure(policy: Policy, **changed: Any) -> None:
    policy.env.config = dataclasses.replace(policy.env.config, **changed)
    policy.begin()


def at(policy: Policy, now: float) -> None:
    policy.env.now = now
    policy.begin()


def run(policy: Policy, request: Request) -> Request:
    """Take a request and compute its prompt in one go."""
    policy.take(request)
    request.status = RequestStatus.RUNNING
    return serve(policy, request)


def serve(policy: Policy, request: Request) -> Request:
    """One iteration: all known tokens, and a new one."""
    start = request.num_computed
    request.num_computed = request.num_tokens
    if policy.counts:
        policy.served(request, start, request.num_computed - start, True)
    request.token_ids.append(0)
    return request


def preempt(policy: Policy, request: Request) -> None:
    request.high_water = max(request.high_water, request.num_computed)
    request.num_computed = 0
    request.num_preemptions += 1
    request.status = RequestStatus.PREEMPTED
    policy.readd(request)


def add_all(policy: Policy, requests: Iterable[Request]) -> None:
    for request in requests:
        policy.add(request)


def ids(policy: Policy) -> list[str]:
    listed = [request.id for request in policy]
    assert len(listed) == len(policy)
    if listed:
        assert policy.head().id == listed[0]
    return listed


def drain(policy: Policy) -> list[str]:
    """Take the head until nobody waits; must be what was listed."""
    listed = ids(policy)
    taken = []
    while len(policy):
        taken.append(policy.head().id)
        policy.take(policy.head())
    assert taken == listed
    return taken
