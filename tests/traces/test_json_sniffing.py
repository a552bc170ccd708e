"""Every sample is one reader's, and formats that look alike are told apart by what is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import WorkbenchError
from tests.traces.json_examples import COPIED, DATA, TURNS, USER, WRITTEN, lines
from traces.readers import READERS, open_trace
from traces.readers.base import NO
from traces.readers.heads import read_heads
from traces.rows import ReadOptions


def claims(path: Path) -> dict[str, int]:
    """Reader to how sure it is, of those that could take the file."""
    levels: dict[str, int] = {}
    for head in read_heads(path, ReadOptions()):
        for reader in READERS:
            if head.container in reader.containers and (level := reader.sniff(head)) > NO:
                levels[reader.name] = max(level, levels.get(reader.name, NO))
    return levels


def claimed_by(path: Path) -> str:
    levels = claims(path)
    best = max(levels.values())
    assert list(levels.values()).count(best) == 1, levels
    return open_trace(path).format


@pytest.mark.parametrize("name", COPIED)
def test_real_files(name: str) -> None:
    assert claimed_by(DATA / name) == COPIED[name]


@pytest.mark.parametrize("format", WRITTEN)
def test_written_files_in_each_container(tmp_path: Path, format: str) -> None:
    records = WRITTEN[format]
    assert claimed_by(lines(tmp_path / "a.txt", *records)) == format
    array = tmp_path / "b.txt"
    array.write_text(json.dumps(records, indent=1))
    assert claimed_by(array) == format
    if len(records) == 1:
        document = tmp_path / "c.txt"
        document.write_text(json.dumps(records[0], indent=1))
        assert claimed_by(document) == format


MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}


@pytest.mark.parametrize(
    ("record", "format"),
    [
        (MOONCAKE, "mooncake"),
        ({**MOONCAKE, "session_id": "a"}, "mooncake-plus"),
        ({**MOONCAKE, "priority": 1}, "mooncake-plus"),
        ({**MOONCAKE, "chat_id": 1, "parent_chat_id": -1, "type": "text", "turn": 1}, "bailian"),
        ({**MOONCAKE, "hash_ids": {"sys_prompt": [1], "user_input": [2]}, "session_id": "a"}, "ragpulse"),
        ({**MOONCAKE, "session_id": "a", "turn": 0, "hash_ids": list(range(10))}, "agent-blocks"),
        ({**MOONCAKE, "session_id": "a", "turn": 0}, "mooncake-plus"),
        ({"timestamp": 0, "text_input": "Hi", "output_length": 4}, "mooncake-plus"),
        ({"session_id": "a", "messages": [USER], "delay": 5}, "mooncake-plus"),
        ({"timestamp": 0, "input": "Hi", "output": "Ho", "session_id": "a"}, "lmcache"),
        ({"messages": [USER], "model": "m"}, "openai-chat"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 5}, "openai-chat"),
        ({"custom_id": "a", "body": {"messages": [USER]}, "method": "POST"}, "openai-batch"),
        ({"id": "x", "conversation": TURNS}, "sharegpt"),
        ({"id": "x", "conversations": [USER, {"role": "assistant", "content": "A map."}]}, "sharegpt"),
        ({"id": "x", "messages": [USER, {"role": "assistant", "content": "A map."}]}, "sharegpt"),
        ({"conversation_id": "x", "model": "m", "conversation": [USER]}, "wildchat"),
        ({"session_id": "a", "arrival_time_ns": 5, "sub_requests": [{"input_toks": 1}]}, "llmservingsim"),
    ],
)
def test_lookalikes(tmp_path: Path, record: dict[str, Any], format: str) -> None:
    assert claimed_by(lines(tmp_path / "a.jsonl", record, record)) == format


def test_side_files_and_foreign_objects_are_nobodys(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="token_length"):
        open_trace(DATA / "ragpulse" / "2_passages.jsonl")
    with pytest.raises(WorkbenchError, match="no format"):
        open_trace(lines(tmp_path / "a.jsonl", {"name": "x", "value": 3}))


def test_a_broken_first_row_does_not_hide_the_format(tmp_path: Path) -> None:
    assert claimed_by(lines(tmp_path / "a.jsonl", b'{"timestamp": 0, "inp', MOONCAKE, MOONCAKE)) == "mooncake"
