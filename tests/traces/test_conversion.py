"""From one format to another and back: what the format has comes back, what it has not is told."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from engine.errors import WorkbenchError
from traces.conversion import Converted, convert, first_specs
from traces.readers.trace import open_trace
from traces.reuse import Reuse
from traces.rows import ReadOptions
from traces.workload import RequestSpec
from traces.writers.native import native_row
from traces.writers.output import check_output, output
from traces.writers.registry import WRITERS, find_writer

DATA = Path(__file__).parent / "data"
AZURE = DATA / "azure2023_conv_2000.csv"
MOONCAKE = DATA / "mooncake_arxiv_slice_74.jsonl"


def run(file: Path, to: str, options: ReadOptions = ReadOptions(), measure: Any = None) -> tuple[str, Converted]:  # noqa: B008
    texts: list[str] = []

    @contextlib.contextmanager
    def out() -> Iterator[io.StringIO]:
        yield (text := io.StringIO())
        texts.append(text.getvalue())

    done = convert(lambda: open_trace(file, options), lambda start: find_writer(to)(start, measure), out)
    (text,) = texts
    return text, done


def save(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parsed(text: str) -> list[dict[str, Any]]:
    lines = text.removesuffix("\n").split("\n")
    assert lines == text.splitlines(), "something else than \\n that many tools take for the end of a line"
    return [json.loads(line) for line in lines]


LENGTHS = [
    {"arrival": 0.0, "prompt_len": 7, "output_len": 3},
    {"arrival": 0.25, "prompt_len": 100_000, "output_len": 1},
    {"arrival": 0.25, "prompt_len": 1, "output_len": 20_000},
    {"arrival": 86_400.125, "prompt_len": 512, "output_len": 64},
]
TURNS = [
    {"id": "1", "arrival": 0.0, "prompt_len": 1024, "output_len": 9, "prefix_ids": [1, 2], "turn": 1, "session": "1"},
    {"id": "2", "arrival": 5.5, "prompt_len": 1500, "output_len": 9, "prefix_ids": [1, 2, 3], "turn": 2,
     "session": "1", "after": "1", "delay": 5.5},
]  # fmt: skip
TEXTS = [
    {"id": "a", "prompt": 'in "quotes",\nund mit \u2028 Umlaut ä', "max_tokens": 12},
    {"id": "b", "prompt": "007", "max_tokens": 1},
]
BODIES = [
    *TEXTS,
    {"id": "c", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "max_tokens": 5,
     "client": "bob", "temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 7, "stop": ["x"], "ignore_eos": True},
    {"id": "d", "prompt_ids": [5, 6, 7], "max_tokens": 2},
]  # fmt: skip


@pytest.mark.parametrize(
    ("to", "rows"),
    [
        ("native", [*TURNS, *({**row, "arrival": 6.0} for row in BODIES)]),
        ("azure", LENGTHS),
        ("mooncake", LENGTHS),
        ("mooncake", [{**row, "prefix_lens": [512]} for row in ({key: row[key] for key in row if key in
                      ("arrival", "prompt_len", "output_len", "prefix_ids")} for row in TURNS)]),
        ("bailian", [{**row, "prompt_len": row["prompt_len"] // 32, "prefix_lens": [16]} for row in TURNS]),
        ("mooncake-plus", [
            {"arrival": 1.5, "prompt": "text \u2029 of one", "priority": 3, "output_len": 5},
            {"arrival": 1.75, "messages": [{"role": "user", "content": "u"}], "output_len": 6},
            {"arrival": 2.000001, "prompt_len": 600, "prefix_ids": [9, 8], "prefix_lens": [512], "output_len": 7},
        ]),
        ("llmservingsim", [*LENGTHS, {"arrival": 90_000.000000001, "prompt_ids": [4, 5], "output_len": 3}]),
        ("openai-batch", BODIES),
        ("burstgpt", LENGTHS),
        ("vidur", LENGTHS),
        ("splitwise-sim", LENGTHS),
        ("csv", [{**row, "client": f"c{row['output_len']}", "session": "s", "id": f"i{row['output_len']}"}
                 for row in LENGTHS]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_there_and_back(tmp_path: Path, to: str, rows: list[dict[str, Any]]) -> None:
    source = save(tmp_path / "in.jsonl", rows)
    there, first = run(source, to)
    middle = tmp_path / "middle"
    middle.write_text(there)
    back, second = run(middle, "native", ReadOptions(format=to))
    assert first.account.written == second.account.written == len(rows)
    assert not first.account.lost and not first.account.left_out, first.account.lines()
    base = 0.0 if to == "native" else min(row.get("arrival", 0.0) for row in rows)
    named = any("id" in row for row in rows)
    for row, wanted in zip(parsed(back), rows, strict=True):
        assert row.pop("arrival") == pytest.approx(wanted.get("arrival", 0.0) - base, abs=1e-9)
        expected = {"prefix_lens": [512]} if "prefix_ids" in wanted else {}
        expected |= {key: value for key, value in wanted.items() if key != "arrival"}
        if not named:
            row.pop("id")
        assert row == expected


def test_every_format_says_what_it_is() -> None:
    assert {"native", "mooncake", "azure", "burstgpt", "vidur", "bailian", "openai-batch", "vllm-custom", "csv"} <= set(
        WRITERS
    )
    assert all(writer.title for writer in WRITERS.values())
    with pytest.raises(WorkbenchError, match=r"--to: 'parquet' .* native, mooncake"):
        find_writer("parquet")


@pytest.mark.parametrize("to", ["azure", "native"])
def test_azure_keeps_its_100_ns(tmp_path: Path, to: str) -> None:
    """All 2,000 dates of the real file come back to the digit, over the native format too."""
    original = AZURE.read_bytes().replace(b"\r\n", b"\n").rstrip(b"\n").decode().splitlines()
    text, done = run(AZURE, to)
    assert done.account.written == 2000
    if to == "azure":
        assert text.splitlines() == original
    else:
        # 4.314579 s after the first row, as TIMESTAMP says; a float of the epoch would give 4.314579010009766
        assert [row["arrival"] for row in parsed(text)][:3] == [0.0, 4.314579, 4.541877]
        middle = tmp_path / "middle.jsonl"
        middle.write_text(text)
        again, _ = run(middle, "azure")
        assert [line.split(",")[1:] for line in again.splitlines()] == [line.split(",")[1:] for line in original]
        assert again.splitlines()[2].startswith("1970-01-01 00:00:04.3145790,396,109")


def test_mooncake_over_native_is_the_same_but_rebased(tmp_path: Path) -> None:
    rows = parsed(MOONCAKE.read_text())
    middle = tmp_path / "middle.jsonl"
    middle.write_text(run(MOONCAKE, "native")[0])
    again = parsed(run(middle, "mooncake")[0])
    base = rows[0]["timestamp"]
    assert again == [{**row, "timestamp": row["timestamp"] - base} for row in rows]


def test_columns_of_tables(tmp_path: Path) -> None:
    source = save(
        tmp_path / "in.jsonl",
        [
            {"id": "a,b", "arrival": 1, "prompt_len": 10, "output_len": 4, "client": 'x"y', "deadline": 2.5},
            {"id": "c", "arrival": 2.5, "prompt_len": 20, "output_len": 1, "failed": True},
        ],
    )
    assert run(source, "vidur")[0].splitlines() == [
        "arrived_at,num_prefill_tokens,num_decode_tokens", "1.0,10,4", "2.5,20,0",
    ]  # fmt: skip
    assert run(source, "burstgpt")[0].splitlines() == [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "1,GPT-4,10,4,14,API log",
        "2.5,GPT-4,20,0,20,API log",
    ]
    assert run(source, "splitwise-sim")[0].splitlines()[1:] == ["0,2,0,1.0,1,10,4", "1,2,0,2.5,1,20,0"]
    assert run(source, "csv")[0].splitlines() == [
        "id,arrival,prompt_len,output_len,client,priority,session,turn,after,delay,deadline",
        '"a,b",1.0,10,4,"x""y",,,,,,2.5',
        "c,2.5,20,0,,,,,,,",
    ]


def test_what_is_lost_is_told_by_field(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "arrival": 0.0001, "prompt_len": 5, "output_len": 2, "priority": 1, "client": "x"},
        {"id": "b", "arrival": 1, "prompt_len": 5, "output_len": 2, "priority": 2},
        {"arrival": 2, "prompt_len": 5, "max_tokens": 9},
        {"arrival": 3, "prompt_len": 5},
        {"arrival": 4, "prompt": "some text", "output_len": 3},
    ]
    account = run(save(tmp_path / "in.jsonl", rows), "mooncake")[1].account
    assert account.lost == {"priority": 2, "id": 2, "client": 1}
    assert account.changed == {"arrival rounded to 1 ms": 1, "max_tokens written as the output length": 1}
    assert account.left_out == {
        "no output length": 1,
        "text without a length (--model NAME counts its tokens)": 1,
    }
    assert account.written == 3
    assert "priority: 2 rows lose it" in account.lines() and "client: 1 row loses it" in account.lines()
    text, done = run(tmp_path / "in.jsonl", "mooncake", measure=lambda spec: len(spec.prompt.split()))
    assert parsed(text)[-1]["input_length"] == 2 and done.account.lost["prompt"] == 1


def test_text_formats(tmp_path: Path) -> None:
    rows = [
        {"arrival": 5, "messages": [{"role": "user", "content": "hi"}], "output_len": 3},
        {"arrival": 6, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
        {"arrival": 7, "prompt": "p", "priority": 4},
        {"arrival": 8, "prompt_len": 5, "output_len": 2},
    ]
    source = save(tmp_path / "in.jsonl", rows)
    text, done = run(source, "vllm-custom")
    assert parsed(text) == [{"prompt": "hi", "output_tokens": 3}, {"prompt": "p"}]
    assert done.account.left_out == {"a chat of more than one user message": 1, "a length without text": 1}
    assert done.account.lost == {"arrival": 2, "priority": 1}
    text, done = run(source, "openai-batch")
    first = parsed(text)[0]
    assert (first["method"], first["url"]) == ("POST", "/v1/chat/completions")
    assert first["body"] == {
        "model": "default", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0.0,
    }  # fmt: skip
    assert parsed(text)[2]["url"] == "/v1/completions"
    assert done.account.changed == {"output_len becomes a limit (max_tokens)": 1}


def test_follow_ups_become_delays(tmp_path: Path) -> None:
    rows = [
        {"id": "s/0", "arrival": 0, "prompt_len": 5, "output_len": 2, "session": "s", "turn": 0},
        {"id": "t/0", "arrival": 1, "prompt_len": 5, "output_len": 2, "session": "t", "turn": 0},
        {"id": "s/1", "arrival": 2, "prompt_len": 6, "output_len": 2, "session": "s", "turn": 1, "after": "s/0",
         "delay": 0.75},
        {"id": "t/1", "arrival": 3, "prompt_len": 6, "output_len": 2, "session": "t", "turn": 1, "after": "s/1",
         "delay": 1},
    ]  # fmt: skip
    text, done = run(save(tmp_path / "in.jsonl", rows), "mooncake-plus")
    assert parsed(text)[2] == {"session_id": "s", "delay": 750, "input_length": 6, "output_length": 2}
    assert parsed(text)[3]["timestamp"] == 3000 and "delay" not in parsed(text)[3]
    assert done.account.lost["after (it does not follow the row before it of its session)"] == 1
    middle = tmp_path / "middle.jsonl"
    middle.write_text(text)
    back = parsed(run(middle, "native", ReadOptions(format="mooncake-plus"))[0])
    assert (back[2]["id"], back[2]["after"], back[2]["delay"]) == ("s/1", "s/0", 0.75)


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    rows = [
        {"id": "late", "arrival": 9, "prompt_len": 5},
        {"id": "early", "arrival": 2, "prompt_len": 5},
        {"id": "same", "arrival": 9, "prompt_len": 5},
    ]
    text, done = run(save(tmp_path / "in.jsonl", rows), "native")
    assert [row["id"] for row in parsed(text)] == ["early", "late", "same"]
    assert [row["arrival"] for row in parsed(text)] == [2, 9, 9]
    assert done.sorted_in_memory and done.report.read == 3
    stamps = [{"timestamp": t, "input_length": 512, "output_length": 1, "hash_ids": [t]} for t in (7000, 5000, 6000)]
    text, done = run(save(tmp_path / "m.jsonl", stamps), "mooncake")
    found = [(row["timestamp"], row["hash_ids"]) for row in parsed(text)]
    assert found == [(0, [5000]), (1000, [6000]), (2000, [7000])]
    assert done.sorted_in_memory


def test_follow_ups_without_a_time_keep_their_place(tmp_path: Path) -> None:
    rows = [
        {"session_id": "a", "timestamp": 5000, "input_length": 5, "output_length": 1},
        {"session_id": "a", "delay": 10, "input_length": 6, "output_length": 1},
        {"session_id": "b", "timestamp": 4000, "input_length": 7, "output_length": 1},
        {"session_id": "b", "delay": 20, "input_length": 8, "output_length": 1},
    ]
    text, done = run(save(tmp_path / "in.jsonl", rows), "mooncake-plus")
    assert [row["input_length"] for row in parsed(text)] == [7, 8, 5, 6]
    assert [row.get("delay") for row in parsed(text)] == [None, 20, None, 10]
    assert done.sorted_in_memory and done.untimed == 0


def test_turns_that_follow_by_their_place_are_linked(tmp_path: Path) -> None:
    file = tmp_path / "rounds.csv"
    file.write_text(
        "id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len\n"
        "a,100,5,0,0,250,0\nb,80,5,10,0,0,0\na,200,5,20,1,0,64\n"
    )
    rows = parsed(run(file, "native", ReadOptions(format="tracelab"))[0])
    assert [(row["id"], row.get("after"), row.get("delay")) for row in rows] == [
        ("line-2", None, None),
        ("line-3", None, None),
        ("line-4", "line-2", 0.25),
    ]


def test_prefixes_in_other_blocks_share_whole_blocks_only() -> None:
    writer = find_writer("mooncake")()
    shared = {"prefix_ids": (1, 2), "prefix_lens": (700, 400)}
    specs = [
        RequestSpec("a", prompt_len=1100, output_len=1, **shared),
        RequestSpec("b", prompt_len=1300, output_len=1, **shared),
        RequestSpec("c", prompt_len=900, output_len=1, prefix_ids=(1, 3), prefix_lens=(700, 200)),
        RequestSpec("d", prompt_len=1100, output_len=1, **shared),
    ]
    ids = [json.loads(writer.write(spec) or "")["hash_ids"] for spec in specs]
    assert [len(row) for row in ids] == [3, 3, 2, 3]
    assert ids[1][:2] == ids[0][:2] and ids[1][2] != ids[0][2]  # 76 shared tokens at the end, and 200 of its own
    assert ids[2][0] == ids[0][0] and ids[2][1] != ids[0][1]
    assert ids[3] == ids[0]
    assert writer.account.changed["prefix ids made anew, in blocks of 512 tokens"] == 4
    reuse = Reuse()
    reuse.add([{"prefix_ids": tuple(row), "prefix_lens": (512,)} for row in ids], np.array([1100, 1300, 900, 1100]))
    assert reuse.figures().hit_tokens == 1024 + 512 + 1100


def test_first_rows_only_read_what_they_need() -> None:
    specs = first_specs(open_trace(AZURE), 3)
    assert [(spec.arrival, spec.prompt_len, spec.where.rpartition(":")[2]) for spec in specs] == [
        (0.0, 374, "2"),
        (4.314579, 396, "3"),
        (4.541877, 879, "4"),
    ]
    assert native_row(specs[0]) == {"id": "line-2", "arrival": 0.0, "prompt_len": 374, "output_len": 44}


@pytest.mark.parametrize("suffix", [".jsonl", ".gz", ".zst"])
def test_outputs_are_whole_or_not_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    for _ in range(2):
        with output(path) as file:
            file.write("ä\n" * 1000)
        raw = path.read_bytes()
        assert list(tmp_path.iterdir()) == [path]
        with pytest.raises(RuntimeError), output(path) as file:
            file.write("half")
            raise RuntimeError
        assert path.read_bytes() == raw and list(tmp_path.iterdir()) == [path]
    unzstd = zstandard.ZstdDecompressor().decompressobj().decompress
    unpack = {".gz": gzip.decompress, ".zst": unzstd}
    assert unpack.get(suffix, bytes)(raw).decode() == "ä\n" * 1000
    other = tmp_path / f"other{suffix}"
    with output(other) as file:
        file.write("ä\n" * 1000)
    assert other.read_bytes() == raw


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("x")
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    for path, force, said in (
        (tmp_path, True, "is a folder"),
        (tmp_path / "no" / "out", False, "there is no folder"),
        (file, True, "is the input itself"),
        (link, True, "is the input itself"),
        (link, False, "is the input itself"),
    ):
        with pytest.raises(WorkbenchError, match=said):
            check_output(path, force=force, inputs=[file])
    other = tmp_path / "other"
    other.touch()
    with pytest.raises(WorkbenchError, match="exists; --force"):
        check_output(other, inputs=[file])
    check_output(other, force=True, inputs=[file])
    check_output(Path("-"))


def test_a_failed_row_does_not_go_into_a_batch() -> None:
    """`max_tokens` of 0 would be refused by who reads it."""
    writer = find_writer("openai-batch")()
    assert writer.write(RequestSpec("a", prompt="x", output_len=0, failed=True)) is None
    assert list(writer.account.left_out) == ["a request that failed at its source"]
