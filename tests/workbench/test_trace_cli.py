"""`workbench trace` as a person meets it. Expected figures come from the raw files by plain arithmetic."""

from __future__ import annotations

import csv
import datetime
import gzip
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from traces.rows import ReadOptions
from workbench.commands.reading import with_reading
from workbench.knob_options import with_knobs

DATA = Path(__file__).parents[1] / "traces" / "data"
AZURE = DATA / "azure2023_conv_2000.csv"
MOONCAKE = DATA / "mooncake_arxiv_slice_74.jsonl"
MINISWE = DATA / "agent_miniswe_blk64.jsonl.gz"
SHAREGPT = DATA / "sharegpt_shape_example.json"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "WORKBENCH_LOG": str(tmp_path / "log.txt"), "TERM": "xterm-256color", "PYTHONUTF8": "1"}


def trace(env: dict[str, str], *options: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workbench", "trace", *map(str, options)]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=env | more, stdin=subprocess.DEVNULL, timeout=120
    )


def good(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(done: subprocess.CompletedProcess[str], *, stdout: bool = False) -> str:
    assert done.returncode == 2, done.stderr
    assert bool(done.stdout) is stdout
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ") and "Traceback" not in done.stderr
    return line


def quantile(values: list[int], percent: float) -> float:
    values = sorted(values)
    place = percent / 100 * (len(values) - 1)
    low = math.floor(place)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (place - low)


def test_inspect_json_of_the_azure_sample(env: dict[str, str]) -> None:
    figures = json.loads(good(trace(env, "inspect", AZURE, "--json")))
    with AZURE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ticks = []
    for row in rows:
        date, fraction = row["TIMESTAMP"].split(".")
        seconds = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.UTC).timestamp()
        ticks.append(int(seconds) * 10**7 + int(fraction))
    span = (ticks[-1] - ticks[0]) / 1e7
    assert (figures["format"], figures["unit"], figures["container"]) == ("azure", "date", "csv")
    assert (figures["read"], figures["kept"], figures["failed"]) == (2000, 2000, 0)
    assert (figures["clamped"], figures["dropped"], figures["inversions"]) == ({}, {}, 0)
    assert figures["base"] == "2023-11-16 18:15:46.68059"
    assert figures["span_s"] == pytest.approx(span, abs=1e-9)
    assert figures["rate_per_s"] == pytest.approx(2000 / span, rel=1e-12)
    for kind, column in (("prompt", "ContextTokens"), ("output", "GeneratedTokens")):
        values = [int(row[column]) for row in rows]
        assert figures[kind]["n"] == 2000 and figures[kind]["max"] == max(values)
        assert figures[kind]["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        for percent in (50, 90, 95, 99):
            assert figures[kind][f"p{percent}"] == pytest.approx(quantile(values, percent), rel=1e-12)
    gaps = [(b - a) / 1e7 for a, b in itertools.pairwise(ticks)]
    arrivals = figures["arrivals"]
    assert arrivals["cv"] == pytest.approx(statistics.pstdev(gaps) / statistics.fmean(gaps), rel=1e-9)
    for window in (1, 10, 60):
        whole = (ticks[-1] - ticks[0]) // (window * 10**7)
        counts = [0] * whole
        for tick in ticks:
            if (place := (tick - ticks[0]) // (window * 10**7)) < whole:
                counts[place] += 1
        expected = statistics.pvariance(counts) / statistics.fmean(counts)
        assert arrivals[f"d{window}"] == pytest.approx(expected, rel=1e-9)
    assert arrivals["quantum_s"] is None
    assert figures["clients"]["count"] == 1 and figures["clients"]["jain"] is None


# TRACES of the VTC artifact: 27 clients, Jain 0.35, 2.5 requests a second, D1 / D10 / D60 1.4 / 2.5 / 2.6.
def test_inspect_finds_clients(env: dict[str, str]) -> None:
    file = Path(__file__).parents[2] / "traces" / "data" / "vtc_arena27.csv"
    figures = json.loads(good(trace(env, "inspect", file, "--json")))
    assert (figures["read"], figures["clients"]["count"]) == (1500, 27)
    assert figures["clients"]["jain"] == pytest.approx(0.35, abs=0.005)
    assert figures["rate_per_s"] == pytest.approx(2.5, abs=0.005)
    assert figures["arrivals"]["cv"] == pytest.approx(1.10, abs=0.006)
    assert [round(figures["arrivals"][name], 1) for name in ("d1", "d10", "d60")] == [1.4, 2.5, 2.6]
    assert (figures["prompt"]["p50"], figures["prompt"]["max"], figures["output"]["max"]) == (40, 1021, 977)
    assert figures["in_out_ratio"] == pytest.approx(0.53, abs=0.005)


# mini-swe agent: 402 calls of 20 sessions, 93 % of blocks with an endless cache.
def test_inspect_finds_sessions_and_prefixes(env: dict[str, str]) -> None:
    figures = json.loads(good(trace(env, "inspect", MINISWE, "--json")))
    rows = [json.loads(line) for line in gzip.decompress(MINISWE.read_bytes()).splitlines()]
    seen: set[int] = set()
    blocks = hits = 0
    for row in rows:
        blocks += len(row["hash_ids"])
        hits += sum(id in seen for id in row["hash_ids"])
        seen.update(row["hash_ids"])
    assert figures["prefix"]["blocks"] == blocks and figures["prefix"]["block_sizes"] == [64]
    assert figures["prefix"]["block_share"] == pytest.approx(hits / blocks, abs=0.002)
    assert figures["sessions"]["count"] == len({row["session_id"] for row in rows})
    assert figures["sessions"]["rows"] == len(rows)


def test_inspect_of_mooncake_batches(env: dict[str, str]) -> None:
    figures = json.loads(good(trace(env, "inspect", MOONCAKE, "--json")))
    assert (figures["unit"], figures["base"]) == ("ms", 1178625)
    assert figures["arrivals"]["cv"] is None and figures["arrivals"]["quantum_s"] == pytest.approx(3, abs=0.06)


BAD = """TIMESTAMP,ContextTokens,GeneratedTokens
oops,5,5
2024-05-10 00:00:00+00:00,10,2
2024-05-10 00:00:02.5+00:00,-5,2
2024-05-10 00:00:01+00:00,0,0
2024-05-10 00:00:04+00:00,5.5,2
"""


def test_rows_are_accounted_for(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(BAD)
    figures = json.loads(good(trace(env, "inspect", file, "--json")))
    assert (figures["read"], figures["kept"], figures["failed"]) == (5, 2, 1)
    assert figures["read"] == figures["kept"] + sum(figures["dropped"].values())
    assert all(examples and str(file) in examples[0] for examples in figures["examples"].values())
    assert (figures["prompt"]["n"], figures["prompt"]["max"]) == (1, 10)
    text = good(trace(env, "inspect", file))
    assert "5 read = 2 kept + 3 dropped · 1 of the kept failed" in text
    assert "line 4: ContextTokens -5 is negative" in text
    strict = trace(env, "inspect", file, "--strict")
    assert "3 of 5 rows were dropped (--strict)" in refusal(strict, stdout=True)
    assert json.loads(good(trace(env, "inspect", file, "--json", "--failed", "min1")))["failed"] == 0


def test_what_cannot_be_read_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.touch()
    for command in ("inspect", "head"):
        assert "no such file" in refusal(trace(env, command, tmp_path / "none.csv"))
        assert "empty" in refusal(trace(env, command, empty))
    assert "no such file" in refusal(trace(env, "convert", tmp_path / "none.csv", "-o", tmp_path / "x"))
    assert "'nope'" in refusal(trace(env, "inspect", AZURE, "--format", "nope"))
    assert "--max-model-len: 0 is below 1" in refusal(trace(env, "inspect", AZURE, "--max-model-len", "0"))
    assert trace(env, "inspect", AZURE, "--time-unit", "h").returncode == 2


@pytest.mark.parametrize("plain", [{"--ascii": True}, {"encoding": "ascii"}])
def test_plain_terminals_get_ascii(env: dict[str, str], plain: dict[str, Any]) -> None:
    more = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"} if "encoding" in plain else {}
    text = good(trace(env, "inspect", SHAREGPT, *(["--ascii"] if "--ascii" in plain else []), **more))
    assert text.isascii() and "###" in text
    assert "characters / 4" in text


def test_report_of_a_person(env: dict[str, str]) -> None:
    text = good(trace(env, "inspect", AZURE, "--max-model-len", "4096"))
    with AZURE.open(newline="") as file:
        over = sum(int(row["ContextTokens"]) + int(row["GeneratedTokens"]) > 4096 for row in csv.DictReader(file))
    assert f"{over} rows need more than max_model_len 4096" in text
    assert "rebased from 2023-11-16 18:15:46.68059" in text and "█" in text
    assert max(map(len, text.splitlines())) <= 100


def test_tokens_of_text_are_counted_with_a_model(env: dict[str, str]) -> None:
    figures = json.loads(good(trace(env, "inspect", SHAREGPT, "--json", "--model", "tiny")))
    # the built-in tokenizer takes a byte for a token, after a mark of its own: "Hello!" and "What is 2+2?"
    assert (figures["prompt"]["max"], figures["prompt"]["mean"]) == (13, 10)
    assert figures["text"] == {"rows": 2, "estimated": False}


def test_head(env: dict[str, str]) -> None:
    lines = good(trace(env, "head", AZURE, "-n", "2")).splitlines()
    assert [line.split() for line in lines[-2:]] == [["2", "0.000", "374", "44"], ["3", "4.315", "396", "109"]]
    rows = [json.loads(line) for line in good(trace(env, "head", AZURE, "-n", "3", "--json")).splitlines()]
    assert rows[2] == {"id": "line-4", "arrival": 4.541877, "prompt_len": 879, "output_len": 55}
    assert "below 1" in refusal(trace(env, "head", AZURE, "-n", "0"))


def test_convert(env: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    done = trace(env, "convert", MOONCAKE, "--to", "vidur", "-o", out)
    assert good(done) == ""
    assert "vidur: prefix_ids: 74 rows lose it" in done.stderr and "74 rows written" in done.stderr
    assert gzip.decompress(out.read_bytes()).decode().splitlines()[:2] == [
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "0.0,2105,650",
    ]
    before = out.read_bytes()
    assert "exists; --force" in refusal(trace(env, "convert", MOONCAKE, "-o", out))
    good(trace(env, "convert", MOONCAKE, "-o", out, "--force"))
    assert out.read_bytes() != before
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(MOONCAKE.read_bytes())
    assert "is the input itself" in refusal(trace(env, "convert", copy, "-o", copy, "--force"))
    assert copy.read_bytes() == MOONCAKE.read_bytes()
    text = good(trace(env, "convert", out, "--to", "mooncake", "-o", "-"))
    assert json.loads(text.splitlines()[0]) == {**json.loads(MOONCAKE.open().readline()), "timestamp": 0}


def test_convert_leaves_nothing_when_it_fails(env: dict[str, str], tmp_path: Path) -> None:
    source, folder = tmp_path / "bad.csv", tmp_path / "out"
    source.write_text(BAD)
    folder.mkdir()
    out = folder / "out"
    assert "no row of" in refusal(trace(env, "convert", source, "--to", "openai-batch", "-o", out))
    assert "--strict" in refusal(trace(env, "convert", source, "-o", out, "--strict"))
    assert "'nope' is not a format" in refusal(trace(env, "convert", source, "--to", "nope", "-o", out))
    assert "-o OUT is missing" in refusal(trace(env, "convert", source))
    assert "a FILE is missing" in refusal(trace(env, "convert"))
    assert list(folder.iterdir()) == []
    done = trace(env, "convert", source, "--to", "azure", "-o", out)
    assert done.returncode == 0 and "dropped: 1 · " in done.stderr and "2 rows written" in done.stderr


def test_convert_says_that_it_sorts(env: dict[str, str], tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n5,1,2\n3,4,5\n")
    done = trace(env, "convert", source, "--to", "vidur", "-o", "-")
    assert good(done).splitlines()[1:] == ["0.0,4,5", "2.0,1,2"]
    assert "sorted in memory" in done.stderr
    packed = tmp_path / "out.zst"
    good(trace(env, "convert", source, "-o", packed))
    assert json.loads(good(trace(env, "inspect", packed, "--json")))["inversions"] == 0


def test_lists(env: dict[str, str]) -> None:
    formats = good(trace(env, "convert", "--list"))
    assert all(f"{name} " in formats for name in ("native", "mooncake", "azure", "vllm-custom", "csv"))
    presets = good(trace(env, "generate", "--list"))
    names = ("chat", "code", "batch", "rag", "longdoc", "agent", "reason", "fair", "bursty", "dirty")
    assert [line.split()[0] for line in presets.splitlines() if not line.startswith(" ")] == list(names)


def test_generate(env: dict[str, str], tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for out in (one, two):
        good(trace(env, "generate", "chat", "-o", out, "--n", "50", "--seed", "3", "--rate", "4", "--len-scale", "0.1"))
    assert one.read_bytes() == two.read_bytes()
    figures = json.loads(good(trace(env, "inspect", one, "--json")))
    assert (figures["format"], figures["kept"], figures["dropped"]) == ("native", 50, {})
    assert figures["prompt"]["max"] < 1500
    assert "exists; --force" in refusal(trace(env, "generate", "chat", "-o", one))
    done = trace(env, "generate", "chat", "-o", "-", "--n", "20", "--to", "vidur")
    assert len(good(done).splitlines()) == 21 and "vidur: client: 20 rows lose it" in done.stderr
    assert "no preset 'nope'" in refusal(trace(env, "generate", "nope", "-o", tmp_path / "x"))
    assert "a PRESET is missing; there are chat, code" in refusal(trace(env, "generate"))
    assert "leave out --n" in refusal(trace(env, "generate", "dirty", "-o", tmp_path / "x", "--n", "5"))
    dirty = tmp_path / "dirty"
    done = trace(env, "generate", "dirty", "-o", dirty)
    assert done.returncode == 0 and str(dirty) in done.stderr
    folder = tmp_path / "folder"
    folder.mkdir()
    done = trace(env, "generate", "dirty", "-o", folder)
    assert done.returncode == 0
    assert sorted(file.name for file in folder.iterdir()) == ["dirty.csv", "dirty.jsonl", "headless.csv"]
    assert "--force" in refusal(trace(env, "generate", "dirty", "-o", folder))
    assert trace(env, "generate", "dirty", "-o", folder, "--force").returncode == 0


def test_help_fits_a_small_terminal(env: dict[str, str]) -> None:
    for command in ("inspect", "head", "convert", "generate"):
        text = good(trace(env, command, "--help", COLUMNS="80"))
        assert max(map(len, text.splitlines())) <= 80
    for option in ("--format", "--time-unit", "--columns", "--failed", "--short-ids", "--client-from", "--strict"):
        assert option in good(trace(env, "inspect", "--help"))


def test_reading_options_go_with_knobs() -> None:
    app = typer.Typer()
    got: list[Any] = []

    @app.command()
    @with_knobs
    @with_reading
    def play(file: Path, knobs: Any = None, reading: Any = None) -> None:
        got.extend((file, knobs, reading))

    options = ["f", "--max-num-seqs", "3", "--columns", "a, b", "--failed", "min1", "--time-unit", "us", "--strict"]
    assert CliRunner().invoke(app, options).exit_code == 0
    reading = ReadOptions(columns=("a", "b"), failed="min1", time_unit="us", strict=True)
    assert got == [Path("f"), {"max_num_seqs": "3"}, reading]
    assert CliRunner().invoke(app, ["f"]).exit_code == 0 and got[-1] == ReadOptions()
