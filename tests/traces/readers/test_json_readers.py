"""What each JSON reader makes of its format. Values are the files' own, their documentation's, or counted by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.readers.json_examples import (
    DATA,
    TURNS,
    USER,
    WRITTEN,
    dynamo_event,
    lines,
    load,
    otlp,
    otlp_span,
    specs,
    tracelab_round,
    weka_call,
    weka_session,
)
from traces.readers import read_workload
from traces.rows import ReadOptions
from traces.workload import RequestSpec


def real(name: str, **options: Any) -> tuple[RequestSpec, ...]:
    return read_workload(DATA / name, ReadOptions(**options)).specs


def notes(path: Path, *records: Any) -> str:
    return "\n".join(load(path, *records).notes)


# Mooncake and its kin -------------------------------------------------------------------------------------------------


def test_mooncake_slice() -> None:
    """Its description: 74 rows, not from 0, ceil(input / 512) ids on every row, tools of 12 and 5 shared blocks."""
    rows = real("mooncake_arxiv_slice_74.jsonl")
    assert len(rows) == 74
    first = rows[0]
    assert (first.arrival, first.prompt_len, first.output_len) == (0.0, 2105, 650)
    assert (first.prefix_ids, first.prefix_lens) == ((0, 70875, 70876, 77598, 77599), (512,))
    assert all(-(-(row.prompt_len or 0) // 512) == len(row.prefix_ids) for row in rows)
    leads = [row.prefix_ids[0] for row in rows]
    assert {0, 46, 74} <= set(leads)
    assert all(row.prefix_ids[:12] == tuple(range(46, 58)) for row in rows if row.prefix_ids[0] == 46)
    assert all(row.prefix_ids[:5] == tuple(range(74, 79)) for row in rows if row.prefix_ids[0] == 74)
    said = "\n".join(read_workload(DATA / "mooncake_arxiv_slice_74.jsonl").notes)
    assert "time unit: ms (mooncake)" in said and "rebased from 1178625" in said


def test_mooncake_conversation() -> None:
    rows = real("mooncake_conversation_40.jsonl")
    assert {row.prefix_ids[0] for row in rows} == {0}
    assert rows[0].prefix_ids == tuple(range(14)) and rows[0].prompt_len == 6758
    stamps = sorted({row.arrival for row in rows})
    assert len(stamps) > 2 and all(round(gap * 1000) in (2999, 3000, 3001) for gap in np.diff(stamps))


def test_agent_sets() -> None:
    """20 and 25 sessions, lengths and reuse as in the table of real traces' statistics."""
    mini = real("agent_miniswe_blk64.jsonl.gz")
    assert (len(mini), len({row.session for row in mini})) == (402, 20)
    lengths, outputs = ([getattr(row, name) for row in mini] for name in ("prompt_len", "output_len"))
    assert np.percentile(lengths, [50, 90, 95, 99]) == pytest.approx([3792, 12298, 25629, 34504], abs=1)
    assert np.percentile(outputs, [50, 90, 95, 99]) == pytest.approx([98, 191, 230, 294], abs=1)
    assert [row.prefix_lens for row in mini[:2]] == [(64,), (64,)]
    seen: set[int] = set()
    hits = total = 0
    for row in mini:
        hits += sum(id in seen for id in row.prefix_ids)
        total += len(row.prefix_ids)
        seen |= set(row.prefix_ids)
    assert round(hits / total, 2) == 0.93
    by_id = {row.id: row for row in mini}
    second = by_id["miniswe-00/1"]
    assert (second.after, second.delay, second.turn, second.session) == ("miniswe-00/0", 2.334, 1, "miniswe-00")
    assert by_id["miniswe-00/0"].after is None
    assert sum(row.after is None for row in mini) == 20
    mag = real("agent_magagent_blk64.jsonl.gz")
    assert (len(mag), len({row.session for row in mag}), sum(row.after is None for row in mag)) == (746, 25, 25)


def test_bailian(tmp_path: Path) -> None:
    (first,) = real("qwen_thinking_first_row.jsonl")
    assert (first.prompt_len, first.output_len, len(first.prefix_ids), first.prefix_lens) == (502, 1494, 32, (16,))
    root, child = real("qwen_bailian_shape_example.jsonl")
    assert (root.id, root.session, root.turn, root.after) == ("159", "159", 1, None)
    assert (child.session, child.turn, child.after, child.arrival) == ("159", 2, "159", pytest.approx(1.386))
    assert child.delay == pytest.approx(1.386) and child.prompt_len == 676
    row = {"timestamp": 5.0, "input_length": 20, "output_length": 2, "type": "text", "turn": 3}
    cut = [{**row, "chat_id": 9, "parent_chat_id": 4}, {**row, "chat_id": 10, "parent_chat_id": 9, "timestamp": 7.5}]
    workload = load(tmp_path / "a.jsonl", *cut)
    orphan, next_turn = workload.specs
    assert (orphan.after, orphan.session) == (None, "4")
    assert (next_turn.after, next_turn.session, next_turn.delay) == ("9", "4", 2.5)
    assert any("rows that follow a request which is not in the file: 1" in note for note in workload.notes)


def test_mooncake_plus_sessions(tmp_path: Path) -> None:
    first, second = specs(tmp_path / "a.jsonl", *WRITTEN["mooncake-plus"])
    assert (first.id, first.session, first.after, first.arrival) == ("a/0", "a", None, 0.0)
    assert (second.id, second.after, second.delay, second.prefix_ids) == ("a/1", "a/0", 1.5, (1, 2, 3))


def test_mooncake_plus_prompt_forms(tmp_path: Path) -> None:
    text, chat, body = specs(
        tmp_path / "a.jsonl",
        {"timestamp": 1000, "text_input": "Hi", "output_length": 4, "priority": 2},
        {"timestamp": 2000, "messages": [USER], "output_length": 5},
        {"timestamp": 2500, "payload": {"messages": [USER], "max_tokens": 9, "stop": "x"}, "output_length": 6},
    )
    assert (text.prompt, text.output_len, text.priority, text.arrival) == ("Hi", 4, 2, 0.0)
    assert (chat.messages, chat.output_len, chat.arrival) == ((("user", "What is a page table?"),), 5, 1.0)
    assert (body.output_len, body.max_tokens, body.stop) == (6, None, ())
    report = load(
        tmp_path / "b.jsonl",
        {"timestamp": 0, "text_input": "Hi", "input_length": 3},
        {"timestamp": 0, "output_length": 3},
        {"timestamp": 0, "text_input": "Hi", "output_length": 3},
    ).report
    assert report is not None and report.dropped == {"not exactly one prompt form": 2}


def test_mooncake_plus_turns_by_their_own_time_stay_open_loop(tmp_path: Path) -> None:
    row = {"session_id": "a", "input_length": 10, "output_length": 2}
    _, second = specs(tmp_path / "a.jsonl", {**row, "timestamp": 10}, {**row, "timestamp": 30})
    assert (second.after, second.arrival, second.turn) == (None, 0.02, 1)


# Components -----------------------------------------------------------------------------------------------------------


def test_ragpulse_with_side_files() -> None:
    rows = real("ragpulse/0_trace_20.jsonl")
    assert len(rows) == 20
    first = rows[0]
    assert (first.arrival, first.prompt_len, first.output_len) == (0.0, 3112, 192)
    assert first.session == "1757476916095-afhwfadnh5ew"
    assert first.prefix_ids == (8302, 14332, 15199, 7398, 7370, 7098, 6967, 7405, 7298, 15200, 26923)
    assert first.prefix_lens[0] == 512 and first.prefix_lens[9] == 11
    # components are 6 to 12 tokens short of the prompt: the chat template
    assert all(6 <= (row.prompt_len or 0) - sum(row.prefix_lens) <= 12 for row in rows)
    assert rows[1].arrival == 11.0


def test_ragpulse_without_side_files(tmp_path: Path) -> None:
    record = {"timestamp": "82", "input_length": 101, "output_length": 9, "session_id": "s"}
    record["hash_ids"] = {"sys_prompt": [5, 6], "passages_ids": [7], "web_search": [], "user_input": [8]}
    path = tmp_path / "a.jsonl"
    (row,) = specs(path, record)
    assert (row.prefix_ids, row.prefix_lens) == ((5, 6, 7, 8), (26, 25, 25, 25))
    assert "no side files" in notes(path, record)
    lines(tmp_path / "lens.jsonl", {"passage_id": 7, "token_length": 40}, {"passage_id": 5, "token_length": 30})
    (row,) = specs(path, record)
    assert (row.prefix_ids, row.prefix_lens) == ((5, 6, 7, 8), (30, 16, 40, 15))
    assert "missing in the side files" in notes(path, record)


# Simulators, recordings -----------------------------------------------------------------------------------------------


def test_llmservingsim_with_ids() -> None:
    rows = real("llmservingsim_example_with_token_ids.jsonl")
    assert len(rows) == 10
    assert rows[0].prompt_ids == tuple(range(1, 11)) and rows[0].output_len == 70 and rows[0].prompt_len is None
    assert rows[1].arrival == pytest.approx(0.301012144, abs=1e-12)
    assert rows[9].prompt_ids is not None and (len(rows[9].prompt_ids), rows[9].output_len) == (5, 26)


def test_llmservingsim_sessions_and_single_requests_mixed(tmp_path: Path) -> None:
    workload = load(
        tmp_path / "a.jsonl",
        {"input_toks": 10, "output_toks": 7, "arrival_time_ns": 0},
        {"session_id": "s", "arrival_time_ns": 1_000_000, "sub_requests": [
            {"input_toks": 5, "output_toks": 2, "tool_duration_ns": 1_500_000_000},
            {"input_toks": 9, "output_toks": -2, "tool_duration_ns": 7},
            {"input_toks": 9, "output_toks": 3, "tool_duration_ns": 0},
        ]},
        {"session_id": "t", "arrival_time_ns": 5, "sub_requests": []},
        {"input_toks": 3, "output_toks": 7, "arrival_time_ns": 9, "input_tok_ids": [4, 5]},
    )  # fmt: skip
    alone, last, ids, first = workload.specs
    assert (alone.prompt_len, ids.prompt_ids) == (10, (4, 5))
    assert (first.id, first.arrival, first.session, first.turn) == ("s/0", 0.001, "s", 0)
    assert (last.id, last.after, last.delay) == ("s/2", "s/0", 1.5)
    report = workload.report
    assert report is not None
    assert (report.read, report.kept, report.dropped) == (
        6, 4, {"bad output_toks": 1, "a session without requests": 1},
    )  # fmt: skip
    assert report.clamped == {"prompt length is the number of token ids": 1}


def test_vllm_recording_takes_one_clock(tmp_path: Path) -> None:
    rows = real("vllm_recorded_30.jsonl")
    assert (rows[0].id, rows[0].prompt_len, rows[0].output_len, rows[0].arrival) == ("bench-0", 2358, 531, 0.0)
    assert rows[1].arrival == pytest.approx(0.2650914, abs=1e-9)
    record = {
        "request_id": "x", "input_toks": 5, "output_toks": 2, "arrival_time": 1787267980.5, "queued_ts": 27536.6,
        "scheduled_ts": 0.0, "first_token_ts": 0.0, "last_token_ts": 0.0,
    }  # fmt: skip
    fine = {**record, "request_id": "y", "first_token_ts": 27537.0, "last_token_ts": 27538.0}
    aborted, good = specs(tmp_path / "a.jsonl", record, fine)
    assert (aborted.failed, aborted.arrival, good.failed) == (True, 0.0, False)


def test_lengths_with_the_unit_in_the_name(tmp_path: Path) -> None:
    rows = real("burstgpt_3_converted_20.jsonl")
    assert [row.arrival for row in rows[:3]] == [0.0, 51.0, 82.0]
    assert (rows[0].prompt_len, rows[0].output_len, rows[0].id) == (906, 446, "burstgpt-0")
    assert rows[0].session == "1722ac82-0a46-4bf0-aa08-89794e7a2b3f"
    record = {"input_length": 4, "output_length": 2}
    _, late = specs(tmp_path / "a.jsonl", {**record, "arrival_us": 0}, {**record, "arrival_us": 1_500_000})
    assert late.arrival == 1.5


def test_vtc_result(tmp_path: Path) -> None:
    first, last = specs(tmp_path / "a.json", *WRITTEN["vtc-json"])
    assert (first.client, first.prompt_len, first.output_len) == ("client-13", 13, 199)
    assert (last.client, last.arrival) == ("client-10", 598.27)


# Texts ----------------------------------------------------------------------------------------------------------------


def test_sharegpt() -> None:
    workload = read_workload(DATA / "sharegpt_shape_example.json")
    hello, sum_ = workload.specs
    # "Hi! How can I help you?" has 23 characters, "2+2 is 4." has 9
    assert (hello.prompt, hello.output_len, sum_.prompt, sum_.output_len) == ("Hello!", 6, "What is 2+2?", 3)
    assert sum("estimates" in note for note in workload.notes) == 1


def test_sharegpt_rows_that_are_odd(tmp_path: Path) -> None:
    gpt_first = [{"from": "gpt", "value": "Welcome"}, *TURNS]
    workload = load(
        tmp_path / "a.jsonl",
        {"id": "1", "conversations": TURNS},
        {"id": "2", "conversations": gpt_first},
        {"id": "3", "conversations": TURNS[:1]},
        {"id": "4", "conversations": TURNS[1:]},
        {"id": "5", "conversations": [TURNS[0], {"from": "gpt", "value": ""}]},
        {"id": "6", "conversations": [{"from": "human", "value": " "}, TURNS[1]]},
        {"id": "7", "conversations": []},
        {"id": "8", "conversation": [USER, {"role": "assistant", "content": "A map."}]},
        {"id": "9", "conversations": [{"content": "Why?"}, {"content": "So."}]},
    )
    assert [spec.prompt for spec in workload.specs] == ["Hello!", "Hello!", "What is a page table?", "Why?"]
    report = workload.report
    assert report is not None and report.read == 9
    assert report.dropped == {
        "no answer to the first question": 1,
        "no question in the conversation": 2,
        "empty answer": 1,
        "empty question": 1,
    }


def test_wildchat(tmp_path: Path) -> None:
    later = {**WRITTEN["wildchat"][0], "timestamp": "2023-04-09T00:03:00+00:00", "hashed_ip": None}
    first, second = specs(tmp_path / "a.jsonl", WRITTEN["wildchat"][0], later)
    assert (first.client, first.prompt, first.output_len) == ("ab12", "What is a page table?", 2)
    assert (second.client, second.arrival) == ("default", 7.0)


def test_vllm_custom_keeps_digits_as_text(tmp_path: Path) -> None:
    digits, text = specs(tmp_path / "a.jsonl", *WRITTEN["vllm-custom"])
    assert (digits.prompt, digits.output_len, text.output_len) == ("007", 12, 3)


def test_openai_batch(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [USER], "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "seed": 3,
            "stop": ["\n"], "user": "bob"}  # fmt: skip
    call = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    workload = load(
        tmp_path / "a.jsonl",
        call,
        {**call, "body": {**body, "max_completion_tokens": 7, "n": 4}, "custom_id": "b"},
        {**call, "custom_id": "a"},
        {**call, "custom_id": "c", "url": "/v1/embeddings"},
        {**call, "custom_id": "d", "body": {"prompt": "Once", "max_tokens": 5}, "url": "/v1/completions"},
        {**call, "custom_id": "e", "body": {**body, "temperature": -1}},
        {
            **call,
            "custom_id": "f",
            "body": {"input": "Why?", "instructions": "Be brief", "max_output_tokens": 6},
            "url": "/v1/responses",
        },
    )
    first, several, completion, response = workload.specs
    assert (response.messages, response.max_tokens) == ((("system", "Be brief"), ("user", "Why?")), 6)
    assert (first.id, first.client, first.max_tokens, first.output_len, first.arrival) == ("a", "bob", 50, None, 0.0)
    assert (first.temperature, first.top_p, first.seed, first.stop) == (0.5, 0.9, 3, ("\n",))
    assert (several.max_tokens, completion.prompt, completion.max_tokens) == (7, "Once", 5)
    report = workload.report
    assert report is not None and report.clamped == {"one answer instead of several": 1}
    assert report.dropped == {"custom_id given twice": 1, "not a call that generates": 1, "bad temperature": 1}
    assert any("max_tokens is the most" in note for note in workload.notes)


def test_openai_chat_parts(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "text", "text": "What is this?"}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    workload = load(
        tmp_path / "a.jsonl",
        {"model": "m", "messages": [{"role": "user", "content": [text, image]}]},
        {"model": "m", "messages": [{"role": "user", "content": [image]}]},
        {"model": "m", "messages": [{"role": "developer", "content": [text]}, USER]},
        {"model": "m", "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]},
    )
    seen, developer, calling = workload.specs
    assert seen.messages == (("user", "What is this?"),)
    assert developer.messages == (("system", "What is this?"), ("user", "What is a page table?"))
    assert calling.messages is not None and '"name":"f"' in calling.messages[1][1]
    report = workload.report
    assert report is not None and report.dropped == {"no text in the messages": 1}
    assert report.clamped == {"parts that are not text were left out": 1, "tool calls were written out as text": 1}


def test_lmcache_agent_log(tmp_path: Path) -> None:
    workload = load(tmp_path / "a.jsonl", *WRITTEN["lmcache"])
    early, late = workload.specs
    assert (early.failed, early.arrival, early.prompt) == (True, 0.0, "xxxxx")
    assert (late.failed, late.arrival, late.output_len, late.session) == (False, 0.25, 2, "t1")
    report = workload.report
    assert report is not None and (report.inversions, report.failed) == (1, 1)


# Spans, events, agents ------------------------------------------------------------------------------------------------


def test_otel_one_object_a_trace() -> None:
    first, second, third = real("otel_simple_chain.json")
    assert first.messages == (("user", "What is the capital of France?"),)
    assert (first.arrival, second.arrival, third.arrival) == (0.0, 3.0, 6.0)
    assert (first.session, first.client, first.temperature) == ("session", "test-service", 0.7)
    # each call begins half a second and one second after the end of the one before
    assert (first.after, second.after, third.after) == (None, first.id, second.id)
    assert (second.delay, third.delay) == (0.5, 1.0)
    assert len(third.messages or ()) == 5
    answer = (
        "The capital of France is Paris. Paris is not only the capital but also the largest city in France, known for"
        " its art, fashion, gastronomy, and culture."
    )
    assert (first.output_len, first.max_tokens) == (-(-len(answer) // 4), None)


def test_otlp_with_old_and_new_names(tmp_path: Path) -> None:
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}])
    second = 10**9
    failed = otlp_span("d", 9 * second, 10 * second, gen_ai__usage__input_tokens=5, gen_ai__usage__output_tokens=4)
    failed["status"] = {"code": 2}
    document = otlp(
        otlp_span("t", 1, 2, gen_ai__operation__name="execute_tool"),
        otlp_span("b", 3 * second, 5 * second, gen_ai__usage__prompt_tokens=30, gen_ai__usage__completion_tokens=6),
        otlp_span("a", second, 2 * second, gen_ai__operation__name="chat", gen_ai__input__messages=messages,
                  gen_ai__usage__output_tokens=2),
        otlp_span("c", 4 * second, 6 * second, gen_ai__usage__input_tokens=31, gen_ai__usage__output_tokens=7),
        failed,
    )  # fmt: skip
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    workload = read_workload(path)
    a, b, c, d = workload.specs
    assert (a.messages, a.output_len, a.client) == ((("user", "Hi"),), 2, "shop")
    assert (b.prompt_len, b.output_len, b.arrival) == (30, 6, 2.0)
    # b and c overlap: both waited for a; d began after c, the last to end
    assert [spec.after for spec in (a, b, c, d)] == [None, a.id, a.id, c.id]
    assert [spec.delay for spec in (b, c, d)] == [1.0, 2.0, 3.0]
    assert d.failed and not c.failed
    assert any("not model calls" in note for note in workload.notes)


def test_otlp_traces_of_one_call_and_texts_in_events(tmp_path: Path) -> None:
    alone = otlp_span("a", 10**9, 2 * 10**9, gen_ai__operation__name="chat", workbench__client="ann",
                      workbench__priority=3)  # fmt: skip
    alone["events"] = [
        {"name": "gen_ai.content.prompt", "attributes": [
            {"key": "gen_ai.prompt", "value": {"stringValue": '[{"role": "user", "content": "Hi"}]'}}]},
        {"name": "gen_ai.content.completion", "attributes": [
            {"key": "gen_ai.completion", "value": {"stringValue": "Hello you"}}]},
    ]  # fmt: skip
    (spec,) = specs(tmp_path / "a.jsonl", otlp(alone))
    assert (spec.messages, spec.output_len, spec.session) == ((("user", "Hi"),), 3, None)
    assert (spec.client, spec.priority) == ("ann", 3)


def test_dynamo_in_order_of_completion(tmp_path: Path) -> None:
    """The long request began first and is written last; hashes need all of their 64 bits."""
    big = (1 << 64) - 1
    twin = big - (1 << 32)
    workload = load(
        tmp_path / "a.jsonl",
        {"timestamp": 1, "event": dynamo_event("quick", 8_000, 9_000, [big, 5, 6], "s")},
        dynamo_event("long", 1_000, 20_000, [twin, 5], "s"),
        {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 20_100, "tool": {}},
        dynamo_event("next", 21_500, 22_000, [twin, 5, 9], "s"),
    )
    long, quick, following = workload.specs
    assert [spec.id for spec in workload.specs] == ["long", "quick", "next"]
    assert (long.arrival, quick.arrival) == (0.0, 7.0)
    assert (quick.after, long.after) == (None, None)
    assert (following.after, following.delay) == ("long", 1.5)
    assert quick.prefix_ids == (big, 5, 6) and long.prefix_ids == (twin, 5)
    assert (quick.prompt_len, quick.prefix_lens) == (130, (64,))
    report = workload.report
    assert report is not None and report.dropped == {"an event that is not a request": 1}


def test_dynamo_without_a_beginning_takes_end_and_duration(tmp_path: Path) -> None:
    event = dynamo_event("b", 0, 5_000, [1, 2, 3])
    event["request"]["request_received_ms"] = None
    event["request"]["total_time_ms"] = 1_500.0
    first, second = specs(tmp_path / "a.jsonl", event, dynamo_event("a", 1_000, 2_000, [1, 2, 3]))
    assert (first.id, second.id, second.arrival) == ("a", "b", 2.5)


def test_weka_null_is_not_zero(tmp_path: Path) -> None:
    session = weka_session(
        "w1",
        weka_call(0.0, 100, None, [1, 2]),
        weka_call(4.0, 200, 2.0, [1, 2, 3, 4]),
        weka_call(7.5, 210, 1.0, [1, 2, 3]),
    )
    first, second, third = specs(tmp_path / "a.jsonl", session)
    # the first call's end was not recorded: the second cannot be known to have waited for it
    assert (first.after, second.after, second.arrival) == (None, None, 4.0)
    assert (third.after, third.delay) == ("w1/1", 1.5)
    # published files have the last, partly filled block or not: both are whole
    assert (second.prefix_ids, third.prefix_ids, third.prefix_lens) == ((1, 2, 3, 4), (1, 2, 3), (64,))


def test_weka_subagents(tmp_path: Path) -> None:
    def agent(name: str, begin: float, *times: float) -> dict[str, Any]:
        return {
            "t": begin, "type": "subagent", "agent_id": name,
            "requests": [weka_call(t, 70, 1.0, [9]) for t in times],
        }  # fmt: skip

    session = weka_session(
        "w1",
        weka_call(0.0, 64, 2.0, [1]),
        agent("x", 3.0, 0.0, 4.0),
        agent("y", 3.0, 3.5),
        weka_call(10.0, 64, 1.0, [1]),
    )
    by_id = {spec.id: spec for spec in specs(tmp_path / "a.jsonl", session)}
    assert set(by_id) == {"w1/0", "w1/x/0", "w1/x/1", "w1/y/0", "w1/1"}
    assert by_id["w1/x/0"].arrival == 3.0 and by_id["w1/x/1"].arrival == 7.0  # from the subagent's beginning
    assert by_id["w1/y/0"].arrival == 3.5  # from the session's
    assert (by_id["w1/x/0"].after, by_id["w1/y/0"].after) == ("w1/0", "w1/0")
    assert (by_id["w1/1"].after, by_id["w1/1"].delay) == ("w1/x/1", 2.0)
    assert by_id["w1/x/0"].session == "w1/x"


def test_weka_local_ids_mean_nothing_elsewhere(tmp_path: Path) -> None:
    rows = [weka_session(name, weka_call(0.0, 128, 1.0, [1, 2])) for name in ("w1", "w2")]
    one, two = specs(tmp_path / "a.jsonl", *rows)
    assert one.prefix_ids == (1, 2) and not set(one.prefix_ids) & set(two.prefix_ids)
    one, two = specs(tmp_path / "b.jsonl", *({**row, "hash_id_scope": "global"} for row in rows))
    assert one.prefix_ids == two.prefix_ids == (1, 2)


def test_tracelab_rounds(tmp_path: Path) -> None:
    begin = "2026-08-25T00:00:"
    first, second = specs(
        tmp_path / "a.jsonl",
        tracelab_round(0, f"{begin}01Z", f"{begin}02.500Z"),
        tracelab_round(1, f"{begin}06Z", f"{begin}08Z", user="u7"),
    )
    assert (first.prompt_len, first.output_len, first.turn, first.after) == (1000, 40, 0, None)
    assert (second.after, second.delay, second.arrival, second.client) == ("claude:1/0", 3.5, 5.0, "u7")
    assert second.prefix_ids == ()


def test_sglang_log(tmp_path: Path) -> None:
    received, finished = WRITTEN["sglang-log"]
    aborted = json.loads(json.dumps({**finished, "rid": "q0", "timestamp": "2026-01-05T10:00:04"}))
    aborted["out"]["meta_info"] |= {"e2e_latency": 3.5, "finish_reason": {"type": "abort"}}
    aborted["obj"] = {"text": None, "sampling_params": {"temperature": 0.5, "max_new_tokens": 3}}
    first, second = specs(tmp_path / "a.jsonl", received, finished, aborted)
    # both began before they ended: at 10:00:00.5
    assert (first.id, first.prompt, first.output_len, second.arrival) == ("q1", "Hi", 7, 0.0)
    assert (second.failed, second.prompt_len, second.temperature) == (True, 3, 0.5)


# Options --------------------------------------------------------------------------------------------------------------


def test_client_from_any_field(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [1, 2], "tenant": "t9"}
    (spec,) = specs(tmp_path / "a.jsonl", row, client_from="tenant")
    assert spec.client == "t9"
    (spec,) = specs(tmp_path / "b.jsonl", *WRITTEN["openai-chat"], client_from="model")
    assert spec.client == "m"
    nested = load(tmp_path / "c.jsonl", *WRITTEN["openai-batch"], client_from="model")
    assert nested.specs[0].client == "m" and not any("no row has that field" in note for note in nested.notes)
    absent = load(tmp_path / "d.jsonl", *WRITTEN["openai-batch"], client_from="colour")
    assert any("no row has that field" in note for note in absent.notes)


def test_another_unit_where_a_person_says_so(tmp_path: Path) -> None:
    row = {"input_length": 600, "output_length": 9, "hash_ids": [1, 2]}
    _, late = specs(tmp_path / "a.jsonl", {**row, "timestamp": 0}, {**row, "timestamp": 3}, time_unit="s")
    assert late.arrival == 3.0


def test_packed_files_are_read_as_they_are(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl"
    packed.write_bytes(gzip.compress((DATA / "mooncake_conversation_40.jsonl").read_bytes()))
    assert len(read_workload(packed).specs) == 40


def test_dynamo_has_other_names_for_mooncake(tmp_path: Path) -> None:
    rows = [
        {"session_id": "s", "created_time": 1000.0, "input_tokens": 600, "output_tokens": 5, "hash_ids": [1, 2]},
        {"session_id": "s", "delay_ms": 250, "input_tokens": 100, "output_tokens": 6},
    ]
    first, second = specs(tmp_path / "a.jsonl", *rows)
    assert (first.prompt_len, first.output_len, first.prefix_ids) == (600, 5, (1, 2))
    assert (second.prompt_len, second.output_len, second.after, second.delay) == (100, 6, first.id, 0.25)


def test_mooncake_without_ids(tmp_path: Path) -> None:
    workload = load(tmp_path / "a.jsonl", {"timestamp": 0, "input_length": 600, "output_length": 5})
    assert workload.origin is not None and workload.origin.format == "mooncake"


def test_completion_bodies_are_read_as_bodies(tmp_path: Path) -> None:
    (row,) = specs(tmp_path / "a.jsonl", {"model": "m", "prompt": "hello", "max_tokens": 5})
    assert (row.prompt, row.max_tokens) == ("hello", 5)


def test_spans_as_the_python_sdk_prints_them(tmp_path: Path) -> None:
    span = {
        "name": "llm_request",
        "context": {"trace_id": "0xaa", "span_id": "0x1", "trace_state": "[]"},
        "start_time": "2024-05-10T00:00:00.000000Z",
        "end_time": "2024-05-10T00:00:01.000000Z",
        "status": {"status_code": "ERROR"},
        "attributes": {"gen_ai.usage.prompt_tokens": 12, "gen_ai.usage.completion_tokens": 3},
        "resource": {"attributes": {"service.name": "vllm"}},
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(span, indent=4) + "\n" + json.dumps(span | {"status": {}}, indent=4))
    failed, good = read_workload(path).specs
    assert failed.failed and not good.failed and (good.prompt_len, good.output_len) == (12, 3)
