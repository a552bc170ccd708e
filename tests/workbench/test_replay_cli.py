"""`workbench replay` as a person meets it: a process of its own, its account, its exit code."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.records import Rejected
from engine.request import Request
from tests.traces.records import finished, record, scheduled
from tests.workbench.test_cli import env, refusal, workbench  # noqa: F401 (env is a fixture)
from workbench.model.progress import Progress, clock_text
from workbench.replaying import is_recording

MOONCAKE = Path(__file__).parents[1] / "traces" / "data" / "mooncake_arxiv_slice_74.jsonl"
TINY = ("--model", "tiny", "--threads", "1")

Env = dict[str, str]


def rows(path: Path, *items: dict[str, Any] | str) -> Path:
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return path


def mixed(tmp_path: Path) -> Path:
    return rows(
        tmp_path / "w.jsonl",
        {"id": "a", "prompt_len": 20, "output_len": 3, "session": "s"},
        {"id": "b", "prompt_len": 30, "output_len": 3, "after": "a", "delay": 0.5, "session": "s"},
        {"id": "c", "prompt_len": 3000, "output_len": 3, "arrival": 0.1},
        {"id": "broken", "prompt_len": -1},
        "{not json",
        {"id": "dead", "prompt_len": 5, "output_len": 0, "failed": True},
    )


def test_the_account_comes_first_and_a_dry_run_ends_there(env: Env, tmp_path: Path) -> None:  # noqa: F811
    done = workbench(env, "replay", mixed(tmp_path), "--dry-run", "--speed", "2")
    assert done.returncode == 0 and done.stdout == ""
    said = done.stderr
    assert "read 6 rows: 4 kept (1 failed at their source, not sent), 2 dropped" in said
    assert "w.jsonl:4" in said and "w.jsonl:5" in said
    assert "--speed 2: arrivals over 0.1 s come over 0.05 s" in said
    assert "open loop: 3 rows; closed loop: 1 rows in 1 sessions wait for others" in said
    assert "to send: 3 requests of 1 clients (1 failed at their source and are not sent)" in said


def test_a_replay_end_to_end(env: Env, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out.jsonl"
    done = workbench(
        env, "replay", mixed(tmp_path), *TINY, "--headless", "--json", "--out", out, "--max-model-len", "512",
        "--over-limit", "clamp", "--clock", "virtual",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["requests"]["planned"] == summary["requests"]["completed"] == 3
    assert "over max_model_len 512: 1 requests (the largest has 3,003 tokens" in done.stderr
    assert "clamped to fit" in done.stderr
    written = {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert {id: row["prompt_len"] for id, row in written.items()} == {"a": 20, "b": 30, "c": 509}
    assert list(written)[-1] == "b", "it waits for a, and half a second more"


def test_the_virtual_clock_repeats_a_replay_to_the_letter(env: Env, tmp_path: Path) -> None:  # noqa: F811
    """Fresh processes with other hash seeds and other numbers of threads: the same records, times included."""
    script = (
        "import hashlib, sys\n"
        "from pathlib import Path\n"
        "from engine.clock import VirtualClock\n"
        "from traces.scaling import Scaling\n"
        "from workbench.replaying import Replay, prepare\n"
        "from workbench.session import RunOptions, load, start_at\n"
        "threads, seed = int(sys.argv[1]), int(sys.argv[2])\n"
        f"replay = Replay(Path({str(MOONCAKE)!r}), scaling=Scaling(len_scale=1/16, speed=50.0, limit=60))\n"
        "workload, _ = prepare(replay)\n"
        "knobs = {'num_blocks': 160, 'max_num_seqs': 16, 'scheduler_reserve_full_isl': False}\n"
        "options = RunOptions('tiny', knobs, dtype='float32', threads=threads, seed=seed, costs=(10_000_000, 50_000),\n"
        "                     replay=replay)\n"
        "engine, _, _, requests, *_ = load(options, workload, lambda *_: None)\n"
        "start_at(requests, 0.0)\n"
        "for request in requests:\n"
        "    engine.submit(request)\n"
        "sums, count, preempted = hashlib.sha256(), 0, 0\n"
        "while engine.has_work():\n"
        "    it = engine.step()\n"
        "    if it is None:\n"
        "        engine.clock.advance_to(engine.next_event())\n"
        "        continue\n"
        "    sums.update(repr(it).encode()); count += it.executed; preempted += len(it.preempted)\n"
        "print(sums.hexdigest(), count, preempted, engine.clock.now())\n"
    )

    def run(threads: int, seed: int = 0) -> list[str]:
        command = [sys.executable, "-c", script, str(threads), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = run(1)
    assert int(first[1]) > 40 and int(first[2]) > 0, "iterations, and pressure for blocks"
    assert run(1) == first
    assert run(2) == first
    assert run(1, seed=1)[0] != first[0], "another seed makes other prompts"


def test_gzip_and_any_name(env: Env, tmp_path: Path) -> None:  # noqa: F811
    odd = tmp_path / "trace.csv"
    odd.write_bytes(gzip.compress(MOONCAKE.read_bytes()))
    done = workbench(env, "replay", odd, "--dry-run", "--limit", "5")
    assert done.returncode == 0 and "(mooncake)" in done.stderr and "the first 5 of 74 rows" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--speed", "0"], "--speed: 0 is out of range"),
        (["--speed", "nan"], "--speed: nan is out of range"),
        (["--limit", "0"], "--limit: 0 is out of range"),
        (["--len-scale", "-1"], "--len-scale: -1 is out of range"),
        (["--from", "soon"], "--from: 'soon' is not a time"),
        (["--from", "5", "--to", "5"], "--to 5 is not after --from 5"),
        (["--from", "90"], "no request is left: --from 90: 4 of 4 rows left out"),
        (["--client-skew", "zipf:1"], "--client-skew needs --clients"),
        (["--clients", "3", "--client-skew", "pareto"], "'pareto' is not zipf:A"),
        (["--step-ms", "5"], "--step-ms needs --clock virtual"),
        (["--clock", "virtual", "--step-ms", "0"], "--step-ms: 0 is out of range"),
        (["--json"], "--json needs --headless"),
        (["--headless", "--pace", "3"], "--pace is for the screen"),
        (["--policy", "lifo"], "policy: 'lifo' is not one of"),
        (["--format", "nonsense"], "nonsense"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(env: Env, tmp_path: Path, options: list[str], said: str) -> None:  # noqa: F811
    done = workbench(env, "replay", mixed(tmp_path), *TINY, *options)
    assert done.returncode == 2, done.stderr
    assert said in next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_strict_runs_nothing(env: Env, tmp_path: Path) -> None:  # noqa: F811
    done = workbench(env, "replay", mixed(tmp_path), *TINY, "--headless", "--strict")
    assert done.returncode == 2 and "w.jsonl:4" in done.stderr and "w.jsonl:5" in done.stderr
    assert "without --strict" in done.stderr


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"<html></html>\n", b"\x89PNG\r\n", b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_files_that_are_no_traces(env: Env, tmp_path: Path, content: bytes) -> None:  # noqa: F811
    file = tmp_path / "w.jsonl"
    file.write_bytes(content)
    assert "w.jsonl" in refusal(workbench(env, "replay", file, "--dry-run"))
    assert "no such file" in refusal(workbench(env, "replay", tmp_path / "none", "--dry-run"))
    assert "folder" in refusal(workbench(env, "replay", tmp_path, "--dry-run"))


def test_nothing_left_of_a_trace_that_is_too_long(env: Env, tmp_path: Path) -> None:  # noqa: F811
    file = rows(tmp_path / "w.jsonl", {"prompt_len": 5000, "output_len": 1})
    done = workbench(env, "replay", file, *TINY, "--headless", "--over-limit", "drop")
    assert done.returncode == 2 and "no request is left: over max_model_len 4,096: 1 requests" in done.stderr


def test_an_interrupt_tells_what_was_done(env: Env, tmp_path: Path) -> None:  # noqa: F811
    file = rows(
        tmp_path / "w.jsonl",
        {"id": "a", "prompt_len": 4, "output_len": 2},
        {"id": "b", "prompt_len": 4, "arrival": 900},
    )
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "workbench", "replay", str(file), *TINY, "--headless", "--json", "--out", str(out)]
    process = subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    part = tmp_path / ".out.jsonl.part"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (part.exists() and part.read_text().endswith("\n")):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["requests"]["unfinished"] == 1
    assert "\r" not in stderr, "no bar where nobody sees it"


def test_run_takes_any_format_too(env: Env) -> None:  # noqa: F811
    assert os.path.getsize(MOONCAKE)
    done = workbench(
        env, "run", "--workload", MOONCAKE, *TINY, "--headless", "--json", "--clock", "virtual", "--max-model-len", "64"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"]["planned"] == 74


# ---- progress ---------------------------------------------------------------------------------------


def planned(*arrivals: float) -> list[Request]:
    return [Request(f"r{n}", [1], arrival=at) for n, at in enumerate(arrivals)]


def test_the_estimate_is_the_later_of_schedule_and_work() -> None:
    progress = Progress(planned(10.0, 11.0, 12.0, 40.0))
    assert progress.eta(10.0) == 30.0, "nothing has ended: the schedule alone is known"
    progress.add(record(0, 10.0, 15.0, scheduled=(scheduled("r0", 1),), finished=(finished("r0"),)))
    assert progress.eta(15.0) == 25.0, "three more at 5 s of work each are 15 s; the last comes in 25 s"
    progress.add(record(1, 15.0, 35.0, scheduled=(scheduled("r1", 1),), finished=(finished("r1"),)))
    assert progress.eta(35.0) == 25.0, "25 s of work for two, so 25 s for the other two; the last comes in 5 s"
    assert progress.position(35.0) == "25/30 s" and progress.line(35.0) == "2/4 ETA 0:25"
    assert progress.bar() == "[######------]"
    progress.add(
        record(
            2, 40.0, 41.0, rejected=(Rejected("r2", "default", "no"),), finished=(finished("r3"), finished("typed in"))
        )
    )
    assert progress.ended == 4 and progress.eta(41.0) == 0.0 and progress.line(41.0) == "4/4 done"


def test_on_a_virtual_clock_the_estimate_is_of_the_walls() -> None:
    wall = [100.0]
    progress = Progress(planned(0.0, 3600.0), virtual=True, wall=lambda: wall[0])
    assert progress.eta(0.0) is None
    progress.add(record(0, 0.0, 5.0, scheduled=(scheduled("r0", 1),)))
    wall[0] = 107.0
    progress.add(record(1, 5.0, 9.0, finished=(finished("r0"),)))
    assert progress.eta(9.0) == 7.0


def test_times_for_people() -> None:
    assert [clock_text(t) for t in (None, 0.2, 65.0, 3723.0, 59.6)] == ["-", "0:00", "1:05", "1:02:03", "1:00"]


def test_a_recording_is_known_by_its_first_line(tmp_path: Path) -> None:
    header = b'{"k":"hdr","fmt":"workbench.recording","v":1}\n{"k":"it","i":1}\n'
    for name, content, recording in (
        ("a.txt", header, True), ("b.gz", gzip.compress(header), True),
        ("c.wbrec.jsonl", b'{"prompt_len": 3}\n', False),
        ("d", b"[1]\n", False), ("e", b"", False), ("f", b'{"k":"hdr"', False),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        assert is_recording(tmp_path / name) is recording
    assert not is_recording(tmp_path) and not is_recording(tmp_path / "none")


def test_a_recording_cut_in_its_first_line_is_told_as_one(tmp_path: Path) -> None:
    from workbench.replaying import is_recording

    cut = tmp_path / "cut.wbrec.jsonl"
    cut.write_bytes(b'{"k":"hdr","fmt":"workbench.recording","v":1,"kno')
    assert is_recording(cut)
