"""The workload reader: what it takes, and how it names what it does not take (R-31)."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import WorkbenchError
from traces.errors import WorkloadError
from traces.readers import read_workload as read_any
from traces.readers.native import FIELDS
from traces.rows import ReadOptions
from traces.workload import RequestSpec, Workload


def read_workload(path: Path, *, skip_bad: bool = False) -> Workload:
    """As `workbench run --workload` does."""
    return read_any(path, ReadOptions(strict=not skip_bad))


GOOD = {"id": "a", "prompt_len": 4, "output_len": 2}


def write(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(WorkbenchError) as caught:
        read_workload(path)
    return str(caught.value)


def test_every_field(tmp_path: Path) -> None:
    full = {
        "id": "a", "arrival": 1.5, "prompt": "hi [x]", "max_tokens": 3, "client": "bob", "priority": -1,
        "deadline": 2, "expected_output": 9, "temperature": 0.5,
        "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "stop": ["\n"], "stop_token_ids": [3], "ignore_eos": True,
    }  # fmt: skip
    chat = {"id": 7, "messages": [{"role": "user", "content": "hi"}], "stop": "end", "max_tokens": 4.0, "seed": None}
    path = write(tmp_path / "w.jsonl", full, chat, {"prompt_ids": [1, 2], "output_len": 2})
    two, three, one = read_workload(path).specs  # in order of arrival
    assert one == RequestSpec(
        "a", 1.5, prompt="hi [x]", max_tokens=3, client="bob", priority=-1, deadline=2.0, expected_output=9,
        temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, seed=7, stop=("\n",), stop_token_ids=(3,), ignore_eos=True,
        where=f"{path}:1",
    )  # fmt: skip
    assert (two.id, two.messages, two.stop, two.max_tokens, two.seed) == ("7", (("user", "hi"),), ("end",), 4, None)
    assert (three.id, three.prompt_ids, three.output_len, three.client) == ("line-3", (1, 2), 2, "default")
    assert three.sampling().ignore_eos and three.sampling().max_tokens == 2
    assert set(FIELDS) == {f.name for f in RequestSpec.__dataclass_fields__.values()} - {
        "where",
    } | {"t_ns"}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'{"id": "a", "prompt_len": 4', "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"\xff\xfe\x00", "UTF-16"),
        (b'{"id": "\xff"}', "not UTF-8 text at byte 8"),
        (b"[" * 100_000, "not readable JSON"),
        (b'{"id": "a", "prompt_len": ' + b"9" * 5000 + b"}", "not readable JSON"),
        (b'{"id": "a", "id": "b", "prompt_len": 1}', "field \"id\": given twice"),
        ({"id": "a"}, "field 'prompt': missing; give one of prompt, messages, prompt_ids, prompt_len"),
        ({"id": "a", "prompt": ""}, "field 'prompt': is empty"),
        ({"id": "a", "prompt": "x", "prompt_len": 3}, "field 'prompt_len': given together with 'prompt'"),
        ({"id": "a", "prompt": 7}, "field 'prompt': 7 is not text"),
        ({"id": "a", "prompt": "\ud800"}, "field 'prompt': holds half of a surrogate pair"),
        ({"id": "a", "prompt_ids": []}, "field 'prompt_ids': must be a list of at least one"),
        ({"id": "a", "prompt_ids": [1, -2]}, "field 'prompt_ids': item 1: -2 is out of range"),
        ({"id": "a", "prompt_ids": [True]}, "field 'prompt_ids': item 0: true is not a number"),
        ({"id": "a", "messages": "hi"}, "field 'messages': must be a list"),
        ({"id": "a", "messages": [{"role": "user"}]}, "field 'messages': message 0 must have exactly role and content"),
        ({"id": "a", "prompt_len": 0}, "field 'prompt_len': 0 is out of range, allowed: 1..1048576"),
        ({"id": "a", "prompt_len": -3}, "field 'prompt_len': -3 is out of range"),
        ({"id": "a", "prompt_len": 5.5}, "field 'prompt_len': 5.5 is not a whole number"),
        ({"id": "a", "prompt_len": "12"}, "field 'prompt_len': \"12\" is text; write the number without quotes"),
        ({"id": "a", "prompt_len": 10**400}, "field 'prompt_len': 1000"),
        ({"id": "a", "prompt_len": float("nan")}, "field 'prompt_len': nan is not a finite number"),
        ({"id": "a", "prompt_len": 1e300}, "field 'prompt_len': 1e+300 is out of range"),
        ({"id": "a", "prompt_len": True}, "field 'prompt_len': true is not a number"),
        ({**GOOD, "arrival": -1}, "field 'arrival': -1 is out of range"),
        ({**GOOD, "arrival": float("inf")}, "field 'arrival': inf is not a finite number"),
        ({**GOOD, "arrival": 1.7e9}, "seconds after the start, not a date"),
        ({**GOOD, "output_len": 0}, "field 'output_len': 0 is out of range"),
        ({**GOOD, "max_tokens": 3}, "field 'max_tokens': contradicts 'output_len'"),
        ({**GOOD, "ignore_eos": False}, "field 'ignore_eos': false contradicts 'output_len'"),
        ({**GOOD, "deadline": 0}, "field 'deadline': 0 is out of range, allowed: above 0, at most 31536000"),
        ({**GOOD, "deadline": -0.5}, "field 'deadline': -0.5 is out of range"),
        ({**GOOD, "deadline": "1s"}, "field 'deadline': \"1s\" is text"),
        ({**GOOD, "expected_output": 0}, "field 'expected_output': 0 is out of range"),
        ({**GOOD, "expected_output": 2.5}, "field 'expected_output': 2.5 is not a whole number"),
        ({**GOOD, "temperature": -1}, "field 'temperature': -1 is out of range"),
        ({**GOOD, "top_p": 0}, "field 'top_p': top_p must be above 0"),
        ({**GOOD, "seed": 1 << 70}, "field 'seed'"),
        ({**GOOD, "stop": ""}, "field 'stop'"),
        ({**GOOD, "client": " "}, "field 'client'"),
        ({**GOOD, "promt_len": 3}, "field \"promt_len\": unknown; did you mean 'prompt_len'?"),
        ({**GOOD, "zzz": 3}, 'field "zzz": unknown; there are id, arrival'),
    ],
)  # fmt: skip
def test_bad_rows_are_named(tmp_path: Path, row: Any, said: str) -> None:
    """After a good row, so that the line number is seen to be right; `said` holds field and reason."""
    utf16 = isinstance(row, bytes) and row.startswith(b"\xff\xfe")
    path = write(tmp_path / "w.jsonl", row) if utf16 else write(tmp_path / "w.jsonl", {"id": "0", "prompt_len": 1}, row)
    message = refusal(path)
    assert said in message
    assert "Traceback" not in message and len(message) < 500
    if not utf16:
        assert message.startswith(f"{path}:2: ")


def test_many_bad_rows_are_listed_and_counted(tmp_path: Path) -> None:
    rows = [{"id": str(i), "prompt_len": 0 if i % 2 else 3} for i in range(30)]
    message = refusal(write(tmp_path / "w.jsonl", *rows))
    assert "15 bad rows" in message and "and 5 more" in message and "--skip-bad" in message
    assert f"{tmp_path}/w.jsonl:2: field 'prompt_len'" in message


def test_skip_bad_says_how_many(tmp_path: Path) -> None:
    path = write(tmp_path / "w.jsonl", GOOD, {"id": "b"}, b"{", {"id": "c", "prompt": "x"})
    workload = read_workload(path, skip_bad=True)
    assert [spec.id for spec in workload.specs] == ["a", "c"]
    assert len(workload.skipped) == 2 and "2 bad rows skipped, 2 left" in workload.notes[0]


def test_duplicate_ids(tmp_path: Path) -> None:
    assert "'a' is already the id of line 1" in refusal(write(tmp_path / "w.jsonl", GOOD, GOOD))


@pytest.mark.parametrize("packed", [False, True])
def test_bom_crlf_blank_lines_and_gzip_by_content(tmp_path: Path, packed: bool) -> None:
    text = json.dumps({"id": "a", "prompt": "x\u2028y"}, ensure_ascii=False)
    data = b"\xef\xbb\xbf\r\n" + text.encode() + b"\r\n  \r\n\n" + json.dumps({"id": "b", "prompt_len": 2}).encode()
    path = tmp_path / "wrong.txt"
    path.write_bytes(gzip.compress(data) if packed else data)
    one, two = read_workload(path).specs
    assert (one.prompt, one.where, two.where) == ("x\u2028y", f"{path}:2", f"{path}:5")


def test_files_that_are_none(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "none.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    assert "holds no requests" in refusal(empty)
    empty.write_bytes(b"\n \n")
    assert "holds no requests" in refusal(empty)
    whole = gzip.compress(json.dumps(GOOD).encode() * 100)
    for data, said in (
        (whole[:-20], "damaged gzip"),
        (b"\x28\xb5\x2f\xfd0000", "zstd"),
        (b"PK\x03\x04", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (b"[\n{}\n]\n", "a JSON array without any field: no format that is read here"),
        (b"<html></html>", "looks like HTML"),
    ):
        empty.write_bytes(data)
        assert said in refusal(empty)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path / "w.jsonl", GOOD)
    path.chmod(0)
    assert "permission denied" in refusal(path)


def test_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.readers.files.LONGEST_LINE", 1000)
    path = tmp_path / "w.jsonl"
    path.write_bytes(gzip.compress(b'{"prompt": "' + b"x" * 5000))
    assert "longer than" in refusal(path)


def test_missing_arrivals_and_disorder_are_told(tmp_path: Path) -> None:
    rows = [GOOD | {"arrival": 5}, {"id": "b", "prompt_len": 1}, {"id": "c", "prompt_len": 1, "arrival": 3}]
    notes = read_workload(write(tmp_path / "w.jsonl", *rows)).notes
    assert any("1 of 3 rows have no arrival" in note for note in notes)
    assert any("not in order of arrival (1 step back)" in note for note in notes)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(row=st.dictionaries(st.sampled_from(sorted(FIELDS)), VALUES, max_size=4))
def test_no_row_raises_anything_else(row: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text(json.dumps(row) + "\n")
    try:
        read_workload(path)
    except WorkloadError as error:
        assert all(problem.startswith(f"{path}:1: ") for problem in error.problems)
    except WorkbenchError as error:
        assert str(path) in str(error)
