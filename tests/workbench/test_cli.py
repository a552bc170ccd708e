"""The command line as a person meets it: a process of its own, its exit code, its lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.knobs import KNOBS
from workbench.knob_options import flags

HEAVY = ("torch", "transformers", "textual", "rich", "numpy", "tokenizers", "huggingface_hub")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "WORKBENCH_LOG": str(tmp_path / "log.txt"), "TERM": "xterm-256color"}


def workbench(env: dict[str, str], *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workbench", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, timeout=120)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a mistake."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys, time, json\nstart = time.perf_counter()\nsys.argv = ['workbench', '--help']\n"
        "from workbench.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"heavy = [name for name in sys.modules if name.split('.')[0] in {HEAVY}]\n"
        "print(json.dumps([heavy, time.perf_counter() - start]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy, seconds = json.loads(done.stderr.splitlines()[-1])
    assert heavy == []
    assert seconds < 0.5 or os.getloadavg()[0] > 1.5
    assert "doctor" in done.stdout and "model" in done.stdout


def test_every_knob_is_an_option(env: dict[str, str]) -> None:
    text = workbench(env, "run", "--help").stdout
    for knob in KNOBS.values():
        for flag in flags(knob):
            assert flag in text
        if knob.type is bool:
            assert f"--no-{knob.name.replace('_', '-')}" in text
    assert "--scheduling-policy" in text and "--num-gpu-blocks-override" in text


def test_knobs_and_version(env: dict[str, str]) -> None:
    listed = workbench(env, "knobs").stdout
    assert all(name in listed for name in KNOBS)
    assert workbench(env, "--version").stdout.startswith("serving-workbench")


def test_typing_mistakes_are_answered_with_two(env: dict[str, str]) -> None:
    done = workbench(env, "run", "--max-num-sesq", "3")
    assert done.returncode == 2 and "No such option: --max-num-sesq" in done.stderr
    assert workbench(env, "rnu").returncode == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-num-batched-tokens", "0"], "max_num_batched_tokens: 0 is out of range, allowed: 1..1048576"),
        (["--max-num-batched-tokens", "-1"], "max_num_batched_tokens: -1 is out of range"),
        (["--block-size", "1.5"], "block_size: '1.5' is not a whole number"),
        (["--policy", "lifo"], "policy: 'lifo' is not one of fcfs, priority"),
        (["--watermark", "nan"], "watermark: nan is out of range"),
        (["--threads", "0"], "--threads: 0 is below 1"),
        (["--repeat", "0"], "--repeat: 0 is out of range, allowed: 1..10000"),
        (["--pace", "5"], "--pace is for the screen"),
        (["--no-workload"], "nothing to run"),
        (["--workload", "none.jsonl"], "none.jsonl: no such file"),
        (["--out", "."], "--out: . is a folder"),
        (["--out", "no/such/place.jsonl"], "cannot be written"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--model", "tiny", "--max-num-seqs", "8", "--max-num-batched-tokens", "4"], "is below max_num_seqs 8"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(env: dict[str, str], options: list[str], said: str) -> None:
    assert said in refusal(workbench(env, "run", "--headless", *options))


def test_screen_needs_a_terminal(env: dict[str, str]) -> None:
    line = refusal(workbench(env, "run"))
    assert "needs a terminal" in line and "--headless" in line
    assert "needs --headless" in refusal(workbench(env, "run", "--json"))


def test_bad_workload_names_line_and_field(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "w \x1b[31m.jsonl"
    file.write_text('{"id": "a", "prompt_len": 3}\n{"id": "b", "prompt_len": -1}\n')
    done = workbench(env, "run", "--headless", "--model", "tiny", "--workload", file)
    assert done.returncode == 2 and "jsonl:2: field 'prompt_len': -1 is out of range" in done.stderr
    assert "\x1b" not in done.stderr and "Traceback" not in done.stderr


def test_headless_run_end_to_end(env: dict[str, str], tmp_path: Path) -> None:
    file, out = tmp_path / "w.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"id": "a", "prompt_len": 20, "output_len": 5},
        {"id": "b", "prompt": "hello", "output_len": 1, "arrival": 0.3, "client": "bob"},
        {"id": "never", "prompt_len": 4000, "output_len": 5},
        {"id": "bad"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = (
        "--model",
        "tiny",
        "--num-blocks",
        "40",
        "--max-num-seqs",
        "3",
        "--threads",
        "1",
        "--no-enable-prefix-caching",
    )
    done = workbench(env, "run", "--headless", "--json", "--skip-bad", "--workload", file, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["requests"] == {
        "planned": 3, "completed": 2, "rejected": 1, "failed": 0, "aborted": 0, "unfinished": 0,
    }  # fmt: skip
    assert summary["tokens"]["output"] == 6 and summary["iterations"] >= 6
    assert summary["kv"]["num_blocks"] == 40 and 0 < summary["kv"]["peak_used"] < 40
    assert summary["knobs"]["max_num_seqs"] == 3 and summary["knobs"]["enable_prefix_caching"] is False
    assert (summary["model"], summary["device"], summary["dtype"]) == ("tiny", "cpu", "float32")
    assert "1 bad rows skipped" in done.stderr
    written = {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert [len(written[id]["token_ids"]) for id in ("a", "b", "never")] == [5, 1, 0]
    assert written["b"]["tpot_s"] is None and written["b"]["ttft_s"] is not None
    assert written["never"]["finish_reason"] == "rejected" and written["never"]["error"]
    assert written["never"]["prompt_len"] == 4000
    assert list(tmp_path.glob(".*.part")) == []


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_prints_what_was_done(env: dict[str, str], tmp_path: Path, signum: int, code: int) -> None:
    file, out = tmp_path / "w.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"id": "now", "prompt_len": 4, "output_len": 2},
        {"id": "later", "prompt_len": 4, "output_len": 2, "arrival": 600},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        sys.executable,
        "-m",
        "workbench",
        "run",
        "--headless",
        "--json",
        "--model",
        "tiny",
        "--workload",
        str(file),
    ]
    process = subprocess.Popen(
        [*command, "--out", str(out)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    part = tmp_path / ".out.jsonl.part"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (part.exists() and part.read_text().endswith("\n")):
        time.sleep(0.1)
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code, stderr
    summary = json.loads(stdout)
    assert summary["interrupted"] and summary["requests"]["completed"] == 1 and summary["requests"]["unfinished"] == 1
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["now"]


def test_fault_of_ours_names_the_log(env: dict[str, str], tmp_path: Path) -> None:
    script = (
        "import sys, traces.builtin\ndef broken():\n    raise RuntimeError('first\\nsecond')\n"
        "traces.builtin.builtin_workload = broken\n"
        "sys.argv = ['workbench', 'run', '--headless', '--model', 'tiny']\n"
        "from workbench.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == f"error: RuntimeError: first; a fault of the workbench, see {tmp_path / 'log.txt'}"
    assert "in broken" in (tmp_path / "log.txt").read_text()


def test_a_full_disk_costs_the_file_and_not_the_summary(env: dict[str, str], tmp_path: Path) -> None:
    rows = tmp_path / "w.jsonl"
    rows.write_text('{"id": "a", "prompt_len": 8, "output_len": 2}\n{"id": "b", "prompt_len": 9000}\n')
    done = workbench(
        env, "run", "--headless", "--json", "--model", "tiny", "--workload", rows, "--out", "/dev/full"
    )  # fmt: skip
    assert done.returncode == 2
    assert json.loads(done.stdout)["requests"]["completed"] == 1
    assert "error: --out: /dev/full could not be written: No space left on device" in done.stderr
    assert "rejected b: the prompt has 9000 tokens" in done.stderr


def test_out_does_not_overwrite_the_workload(env: dict[str, str], tmp_path: Path) -> None:
    rows = tmp_path / "w.jsonl"
    rows.write_text('{"id": "a", "prompt_len": 8, "output_len": 2}\n')
    before = rows.read_text()
    said = refusal(workbench(env, "run", "--headless", "--model", "tiny", "--workload", rows, "--out", rows))
    assert "is the workload itself" in said
    assert rows.read_text() == before


def test_outputs_that_cannot_be_as_long_as_asked_are_told(env: dict[str, str], tmp_path: Path) -> None:
    rows = tmp_path / "w.jsonl"
    rows.write_text('{"id": "a", "prompt_len": 50, "output_len": 100}\n')
    done = workbench(env, "run", "--headless", "--model", "tiny", "--workload", rows, "--max-model-len", "64")
    assert done.returncode == 0
    assert "1 requests get fewer tokens than asked: max_model_len is 64" in done.stderr
