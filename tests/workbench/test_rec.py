"""Recording a run from the command line, and what `workbench rec` says of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from pathlib import Path

import pytest

from engine.commands import Submit
from tests.workbench.test_cli import env, refusal, workbench  # noqa: F401
from traces.recording import Recording


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A short run of the tiny model under pressure for blocks: the file, and the run's own summary."""
    import os

    folder = tmp_path_factory.mktemp("rec")
    rows = [
        {"id": f"q{n}", "arrival": 0.01 * n, "prompt_len": 30 + n, "output_len": 12, "client": f"c{n % 2}"}
        for n in range(8)
    ]
    (folder / "work.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = folder / "run.wbrec.jsonl"
    done = workbench(
        dict(os.environ), "run", "--model", "tiny", "--headless", "--json", "--workload", folder / "work.jsonl",
        "--num-blocks", "14", "--max-num-seqs", "4", "--no-scheduler-reserve-full-isl", "--record", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout)


def say(env: dict[str, str], *options: str | Path) -> subprocess.CompletedProcess[str]:  # noqa: F811
    return workbench(env, "rec", *options)


def test_the_recording_tells_what_the_run_told(recorded: tuple[Path, dict[str, object]]) -> None:
    path, summary = recorded
    recording = Recording.open(path)
    assert recording.closed and recording.last_step == summary["iterations"]
    assert sum(len(it.tokens) for it in recording.iterations()) == summary["tokens"]["output"] == 8 * 12  # type: ignore[index]
    assert [one.id for one in recording.arrivals()] == [f"q{n}" for n in range(8)]
    assert recording.header.info.model == "tiny" and recording.header.complete and recording.header.exact


def test_info_check_and_pack(env: dict[str, str], recorded: tuple[Path, dict[str, object]], tmp_path: Path) -> None:  # noqa: F811
    path, summary = recorded
    found = json.loads(say(env, "info", path, "--json").stdout)
    assert (found["last_iteration"], found["requests"], found["ended"]) == (summary["iterations"], 8, True)
    assert found["bytes"] == path.stat().st_size and found["knobs"]["num_blocks"] == 14
    assert found["marked"]["finish"] >= 1
    assert "last iteration" in say(env, "info", path).stdout
    done = say(env, "check", path)
    assert done.returncode == 0 and "all there" in done.stdout
    packed = tmp_path / "p.gz"
    assert say(env, "pack", path, "--out", packed).returncode == 0
    assert gzip.decompress(packed.read_bytes()) == path.read_bytes()
    assert say(env, "check", packed).returncode == 0
    assert say(env, "unpack", packed, "-o", tmp_path / "plain").returncode == 0
    assert (tmp_path / "plain").read_bytes() == path.read_bytes()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad").write_bytes(data)
    done = say(env, "check", tmp_path / "bad")
    assert done.returncode == 1 and done.stderr and not done.stdout


def test_rerun(env: dict[str, str], recorded: tuple[Path, dict[str, object]]) -> None:  # noqa: F811
    path, summary = recorded
    done = say(env, "rerun", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"all {summary['iterations']} iterations are the same: schedule, blocks and tokens\n"


def test_mistakes_are_one_line(env: dict[str, str], recorded: tuple[Path, dict[str, object]], tmp_path: Path) -> None:  # noqa: F811
    path, _ = recorded
    before = path.read_bytes()
    run = ("run", "--model", "tiny", "--headless")
    assert "is there already" in refusal(workbench(env, *run, "--record", path))
    assert "is a folder" in refusal(workbench(env, *run, "--record", tmp_path))
    assert "does not exist" in refusal(workbench(env, *run, "--record", tmp_path / "no" / "x"))
    assert "--no-record-text needs --record" in refusal(workbench(env, *run, "--no-record-text"))
    assert "no such file" in refusal(say(env, "info", tmp_path / "nothing"))
    (tmp_path / "other").write_text("a,b\n1,2\n")
    for command in ("info", "check", "pack", "rerun"):
        assert "no recording" in refusal(say(env, command, tmp_path / "other"))
    assert path.read_bytes() == before


def test_a_session_for_the_screen_records_from_its_first_record(tmp_path: Path) -> None:
    from engine.request import Request
    from engine.sampling_params import SamplingParams
    from workbench.session import RunOptions, build_session

    options = RunOptions(model="tiny", no_workload=True, record=tmp_path / "run", record_text=False, seed=3)
    session = build_session(options, None, lambda stage, done, total: None)
    assert session.recorder is not None and (session.source, session.seed) == ("tiny", 3)
    session.host.start()
    session.host.post(Submit((Request("q", [1, 2, 3], SamplingParams(max_tokens=4, ignore_eos=True)),)))
    ended = False
    limit = time.monotonic() + 30
    while not ended and time.monotonic() < limit:
        ended = any(it.finished for it in session.host.drain())
    assert ended and session.host.stop(10) and session.recorder.closed
    recording = Recording.open(tmp_path / "run")
    assert recording.closed and recording.last_step == 4 and recording.header.seed == 3 and not recording.header.tokens
