"""Carrying the requests of one scheduler over to another: pool of other dimensions, maybe another model.

Running and swapped-out requests lose their KV and are computed again, generated tokens included, unless the model is
another one: then an answer cannot be continued and ends. Waiting requests stay in line; where the tokenizer is
another one their prompts are encoded anew. The queue is in the order in which requests joined it; what the policy
makes of that is its own.

Invariant: every live request is afterwards in the new waiting queue, or in `ended` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.records import Cause, Preempted
from engine.request import FinishReason, Request, RequestStatus
from engine.scheduler import Scheduler

Reencode = Callable[[Request], list[int] | None]
"""Token ids of a request's prompt for the new model; None when only its ids are known."""


@dataclass(slots=True)
class CarriedOver:
    preempted: list[Preempted] = field(default_factory=list)
    ended: list[tuple[Request, FinishReason, str]] = field(default_factory=list)
    prompts: list[Request] = field(default_factory=list)
    """Those whose prompt was encoded anew."""


def carry_over(old: Scheduler, new: Scheduler, vocabulary: int, reencode: Reencode | None) -> CarriedOver:
    """Move all live requests. reencode: given when the model is another one. `old` is of no use afterwards."""
    out = CarriedOver()
    holding = [*old.running, *(r for r in old.requests.values() if r.status is RequestStatus.SWAPPED)]
    for request in holding:
        lost, freed = request.num_computed, len(request.block_table)
        if request.status is RequestStatus.RUNNING:
            out.preempted.append(Preempted(request.id, "", 0, old.pool.num_free, lost, freed, Cause.REBUILD))
            request.num_preemptions += 1
        request.high_water = max(request.high_water, lost)
        request.status = RequestStatus.PREEMPTED
    for request in sorted(old.requests.values(), key=lambda one: one.serial):
        request.num_computed = request.num_registered = 0
        request.block_table, request.block_keys, request.cpu_blocks = [], [], []
        request.mid_prompt = False
        if reencode is not None and request.num_output:
            out.ended.append((request, FinishReason.ABORT, "the model was changed"))
            continue
        if reencode is not None and encode_anew(request, reencode):
            out.prompts.append(request)
        why = unfit(request, new, vocabulary)
        if why is None:
            new.add(request)
        else:
            out.ended.append((request, FinishReason.LENGTH if request.num_output else FinishReason.ERROR, why))
    return out


def encode_anew(request: Request, reencode: Reencode) -> bool:
    """Give a request without output its prompt in the new model's tokens, if its text is known."""
    ids = reencode(request)
    request.high_water = 0
    if ids is None:
        return False
    request.token_ids, request.num_prompt, request.late = ids, len(ids), None
    return True


def unfit(request: Request, scheduler: Scheduler, vocabulary: int) -> str | None:
    """Why a request cannot go on under `scheduler`; None when it can."""
    if any(not 0 <= token < vocabulary for token in request.token_ids):
        return f"its tokens are outside the new vocabulary (0 to {vocabulary - 1})"
    if request.num_tokens >= scheduler.config.model_len:
        return f"it has {request.num_tokens} tokens, max_model_len is now {scheduler.config.model_len}"
    if scheduler.outgrows_pool(request):
        return f"{request.num_tokens} tokens do not fit into {scheduler.config.usable_blocks} KV blocks"
    return None if request.num_output else scheduler.refusal(request)
