"""Drive the real scheduler and block pool through a conformance case, without a model.

A case lists requests with the tokens a fake model emits; the trace says what ran in every iteration. README.md in
this folder gives both schemas.
"""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler

Json = dict[str, Any]


def requests_of(case: Json) -> list[tuple[Json, Request, list[int]]]:
    """(row, engine request, tokens the fake model emits), n > 1 fanned out."""
    out = []
    for index, row in enumerate(case["requests"]):
        n = row.get("n", 1)
        outputs = row["output_token_ids"] if n > 1 else [row["output_token_ids"]]
        for child, tokens in enumerate(outputs):
            request = Request(
                f"{child}_{row['id']}" if n > 1 else row["id"],
                row["prompt_token_ids"],
                SamplingParams(max_tokens=len(tokens), ignore_eos=True),
                priority=row.get("priority", 0),
                arrival=float(row.get("arrival_time", index)),
            )
            out.append((row, request, tokens))
    return out


def run_case(case: Json) -> list[Json]:
    """The trace of a case, one line an iteration."""
    config = EngineConfig.resolve(case["config"])
    scheduler = Scheduler(config)
    pool = scheduler.pool
    requests = requests_of(case)
    outputs = {request.id: tokens for _, request, tokens in requests}
    last_event = max(max(row["arrival_step"], row.get("abort_step", 0)) for row, _, _ in requests)
    trace: list[Json] = []
    step = 0
    while True:
        line: Json = {"step": step, "arrived": [], "rejected": [], "aborted": []}
        for row, request, _ in requests:
            if row.get("abort_step") == step and scheduler.abort(request.id):
                line["aborted"].append(request.id)
        for row, request, _ in requests:
            if row["arrival_step"] == step:
                if scheduler.refusal(request):
                    line["rejected"].append(request.id)
                else:
                    scheduler.add(request)
                    line["arrived"].append(request.id)
        plan = scheduler.schedule()
        line["scheduled"] = [[i.request.id, i.num_tokens, str(i.kind), i.start] for i in plan.items]
        line["preempted"] = [victim.id for victim in plan.preempted]
        new_blocks = {i.request.id: list(i.new_blocks) for i in plan.items}
        sampled = [outputs[i.request.id][i.request.num_output] if i.samples else None for i in plan.items]
        drawn = [request for request, token in zip(plan.requests, sampled, strict=True) if token is not None]
        for request in drawn:
            request.token_ids.append(outputs[request.id][request.num_output])
        finished = [(request, "length") for request in drawn if request.num_tokens >= request.most_tokens]
        scheduler.finish([(request, FinishReason.LENGTH) for request, _ in finished])
        pool.check({id: request.block_table for id, request in scheduler.requests.items()})
        used = pool.num_usable - pool.num_free
        line |= {
            "finished": [[request.id, reason] for request, reason in finished],
            "running": [request.id for request in scheduler.running],
            "waiting": [request.id for request in scheduler.waiting],
            "num_waiting": len(scheduler.waiting),
            "total_tokens": sum(i.num_tokens for i in plan.items),
            "free_blocks_mid": plan.free_blocks,
            "free_blocks": pool.num_free,
            "used_blocks": used,
            "kv_usage": round(used / pool.num_usable, 6),
            "pc": list(plan.prefix),
            "new_blocks": new_blocks,
        }
        trace.append(line)
        if step >= last_event:
            if not scheduler.requests:
                return trace
            if not plan.items and not plan.preempted:
                line["stalled"] = True
                return trace
        step += 1
