"""Small files of each JSON format, after its documentation, and where the copied ones are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces.readers import read_workload
from traces.rows import ReadOptions
from traces.workload import RequestSpec, Workload

DATA = Path(__file__).parent / "data"


def lines(path: Path, *records: Any) -> Path:
    """A file of JSON lines. Bytes are written as they are."""
    raw = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def load(path: Path, *records: Any, limit: int | None = None, **options: Any) -> Workload:
    return read_workload(lines(path, *records), ReadOptions(**options), limit=limit)


def specs(path: Path, *records: Any, **options: Any) -> tuple[RequestSpec, ...]:
    return load(path, *records, **options).specs


COPIED = {
    "mooncake_arxiv_slice_74.jsonl": "mooncake",
    "mooncake_conversation_40.jsonl": "mooncake",
    "agent_magagent_blk64.jsonl.gz": "agent-blocks",
    "agent_miniswe_blk64.jsonl.gz": "agent-blocks",
    "qwen_thinking_first_row.jsonl": "bailian",
    "qwen_bailian_shape_example.jsonl": "bailian",
    "ragpulse/0_trace_20.jsonl": "ragpulse",
    "sharegpt_shape_example.json": "sharegpt",
    "llmservingsim_example_with_token_ids.jsonl": "llmservingsim",
    "otel_simple_chain.json": "otel",
    "vllm_recorded_30.jsonl": "vllm-recorded",
    "burstgpt_3_converted_20.jsonl": "lengths-json",
}
"""Excerpts of real files, see SOURCES.md beside them, and the format of each."""

USER = {"role": "user", "content": "What is a page table?"}
TURNS = [{"from": "human", "value": "Hello!"}, {"from": "gpt", "value": "Hi! How can I help you?"}]


def dynamo_event(id: str, received: int, ended: int, hashes: list[int], session: str | None = "s") -> dict[str, Any]:
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": ended,
        "agent_context": {"session_id": session},
        "request": {
            "request_id": id, "input_tokens": 130, "output_tokens": 8, "request_received_ms": received,
            "total_time_ms": float(ended - received),
            "replay": {"trace_block_size": 64, "input_length": 130, "input_sequence_hashes": hashes},
        },
    }  # fmt: skip


def weka_call(t: float, tokens: int, api_time: float | None, ids: list[int] | None = None) -> dict[str, Any]:
    return {"t": t, "type": "n", "model": "m", "in": tokens, "out": 5, "hash_ids": ids or [], "api_time": api_time}


def weka_session(id: str, *requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    about = {"id": id, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0}
    return {**about, "requests": list(requests), **fields}


def tracelab_round(index: int, begin: str, end: str, **fields: Any) -> dict[str, Any]:
    return {
        "provider": "claude", "session_id": "claude:1", "round_index": index, "model": "m",
        "input_tokens_total": 1000 + index, "prefix_tokens": 900, "newly_append_tokens": 100 + index,
        "output_tokens": 40 + index,
        "timing_events": [
            {"event_type": "user_message" if index == 0 else "tool_result", "timestamp": begin},
            {"event_type": "text", "timestamp": end},
        ],
        "tools": [],
        **fields,
    }  # fmt: skip


def otlp_span(id: str, start_ns: int, end_ns: int, **attributes: Any) -> dict[str, Any]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return {
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": id, "name": "chat m", "kind": 3,
        "startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(end_ns),
        "attributes": [
            {"key": key.replace("__", "."), "value": {kinds[type(v)]: str(v) if isinstance(v, int) else v}}
            for key, v in attributes.items()
        ],
        "status": {},
    }  # fmt: skip


def otlp(*spans: dict[str, Any], service: str = "shop") -> dict[str, Any]:
    about = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


WRITTEN: dict[str, list[Any]] = {
    "mooncake-plus": [
        {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]},
        {"session_id": "a", "delay": 1500, "input_length": 1100, "output_length": 9, "hash_ids": [1, 2, 3]},
    ],
    "sharegpt": [{"id": "1", "conversations": TURNS}, {"id": "2", "conversations": TURNS}],
    "wildchat": [
        {"conversation_hash": "f0", "model": "gpt-4", "timestamp": "2023-04-09T00:02:53+00:00", "hashed_ip": "ab12",
         "conversation": [USER, {"role": "assistant", "content": "A map."}], "turn": 1, "language": "English"},
    ],
    "vllm-custom": [{"prompt": "007", "output_tokens": 12}, {"prompt": "Tell me more", "output_tokens": 3}],
    "openai-batch": [
        {"custom_id": "r-1", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": "m", "messages": [USER], "max_tokens": 50}},
    ],
    "openai-chat": [{"model": "m", "messages": [USER], "max_completion_tokens": 20, "temperature": 0.5}],
    "lmcache": [
        {"timestamp": 1_760_000_000_250_000, "input": "x" * 9, "output": "y" * 8, "session_id": "t1"},
        {"timestamp": 1_760_000_000_000_000, "input": "x" * 5, "output": "", "session_id": "t1"},
    ],
    "otel": [otlp(otlp_span("a1", 10, 20, gen_ai__usage__prompt_tokens=5, gen_ai__usage__completion_tokens=2))],
    "dynamo": [dynamo_event("r1", 1_000, 2_000, [1, 2, 3])],
    "weka": [weka_session("w1", weka_call(0.0, 100, 1.5, [1, 2]))],
    "tracelab-rounds": [tracelab_round(0, "2026-08-25T00:00:01Z", "2026-08-25T00:00:02Z")],
    "sglang-log": [
        {"timestamp": "2026-01-05T10:00:00.000000", "event": "request.received", "rid": "q1", "obj": {"text": "Hi"}},
        {"timestamp": "2026-01-05T10:00:02.500000", "event": "request.finished", "rid": "q1", "obj": {"text": "Hi"},
         "out": {"meta_info": {"prompt_tokens": 3, "completion_tokens": 7, "e2e_latency": 2.0}}},
    ],
    "vtc-json": [
        {"responses": [
            {"adapter_dir": "client-13", "prompt_len": 13, "output_len": 199, "req_time": 0.0, "request_latency": 9.4},
            {"adapter_dir": "client-10", "prompt_len": 570, "output_len": 513, "req_time": 598.27},
        ]},
    ],
}  # fmt: skip
"""One file a format of which no real one may be copied, or whose real one has other features."""
