"""Files that are cut, damaged, of another version, or that the disk had no room for."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.records import Iteration
from tests.traces.recording.runs import header_of, random_run, record
from traces.errors import RecordingError
from traces.recording import Recorder, Recording
from traces.recording.check import check

ROOT = Path(__file__).parents[3]


def small(tmp_path: Path, steps: int = 45) -> tuple[Path, list[Iteration]]:
    config, records = random_run(21, steps, num_blocks=12, block_size=4)
    path = tmp_path / "run"
    record(path, config, records)
    return path, records


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """All whole lines are there, whatever follows them."""
    path, records = small(tmp_path, 5)
    data = path.read_bytes()
    cut = tmp_path / "cut"
    header = data.index(b"\n") + 1
    for size in range(header):
        cut.write_bytes(data[:size])
        with pytest.raises(RecordingError):
            Recording.open(cut)
    whole = [line.startswith(b'{"k":"it"') for line in data.split(b"\n")]
    for size in range(header, len(data) + 1):
        cut.write_bytes(data[:size])
        recording = Recording.open(cut)
        lines = data[:size].count(b"\n")
        assert recording.num_records == sum(whole[:lines]), size
        assert list(recording.iterations()) == records[: recording.num_records]
        rest = size - (data.rfind(b"\n", 0, size) + 1)
        assert any(f"{rest} bytes" in note for note in recording.notes) == (rest > 0)
        assert recording.closed == (size == len(data))
        recording.close()


def test_a_cut_after_many_groups(tmp_path: Path) -> None:
    config, records = random_run(22, 400)
    record(tmp_path / "run", config, records)
    data = (tmp_path / "run").read_bytes()
    rng = random.Random(1)
    for _ in range(40):
        (tmp_path / "cut").write_bytes(data[: rng.randrange(5000, len(data))])
        recording = Recording.open(tmp_path / "cut")
        assert list(recording.iterations()) == records[: recording.num_records]
        if recording.last_step >= 1:
            assert recording.view_at(recording.last_step).step == recording.last_step


def test_flipped_bits(tmp_path: Path) -> None:
    """Never anything but a clear error or a note; `check` finds every one of them."""
    config, records = random_run(23, 300)
    record(tmp_path / "run", config, records)
    data = bytearray((tmp_path / "run").read_bytes())
    rng = random.Random(2)
    bad = tmp_path / "bad"
    for _ in range(120):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        data[at] ^= bit
        bad.write_bytes(data)
        data[at] ^= bit
        try:
            recording = Recording.open(bad)
            found = list(recording.iterations())
            for step in (recording.first_step, recording.last_step):
                if recording.first_step <= step <= recording.last_step:
                    recording.view_at(step)
        except RecordingError as error:
            assert "\n" not in str(error)
            continue
        assert len(found) <= len(records)
        assert check(recording), f"bit {bit} of byte {at}"


def test_a_bad_line_in_the_middle(tmp_path: Path) -> None:
    """What comes before it is read, and the note says where it is; so with a bad index line, which costs nothing."""
    config, records = random_run(24, 400)
    record(tmp_path / "run", config, records)
    lines = (tmp_path / "run").read_bytes().splitlines(keepends=True)
    broken = next(n for n, line in enumerate(lines) if line.startswith(b'{"k":"it","i":200,'))
    offset = sum(map(len, lines[:broken]))
    (tmp_path / "bad").write_bytes(
        b"".join([*lines[:broken], b"#" * (len(lines[broken]) - 1) + b"\n", *lines[broken + 1 :]])
    )
    recording = Recording.open(tmp_path / "bad")
    assert list(recording.iterations()) == records[:200]
    assert [f"byte {offset} " in note for note in recording.notes] == [True]
    with pytest.raises(RecordingError, match="cannot be read"):
        recording.view_after(201)
    assert recording.view_after(199).seq == 199 and recording.view_after(399).seq == 399
    index = [n for n, line in enumerate(lines) if line.startswith(b'{"k":"ix"')][1]
    (tmp_path / "bad").write_bytes(b"".join([*lines[:index], b'{"k":"ix","o":5}\n', *lines[index + 1 :]]))
    recording = Recording.open(tmp_path / "bad")
    assert recording.num_records == len(records) and list(recording.iterations()) == records


def test_unknown_keys_and_kinds_are_passed_over(tmp_path: Path) -> None:
    path, records = small(tmp_path)
    lines = []
    for raw in path.read_bytes().splitlines():
        line = json.loads(raw)
        if line["k"] in ("it", "req", "hdr"):
            line["later"] = {"x": [1]}
        lines.append(json.dumps(line, separators=(",", ":")))
        if line["k"] == "it":
            lines.append('{"k":"new","what":1}')
    head, body = lines[0], [line for line in lines[1:] if not line.startswith(('{"k":"ix"', '{"k":"end"'))]
    (tmp_path / "new").write_text("\n".join([head, *body]) + "\n")
    assert list(Recording.open(tmp_path / "new").iterations()) == records


def test_other_files_and_versions_are_refused(tmp_path: Path) -> None:
    path, _ = small(tmp_path)
    head, _, rest = path.read_bytes().partition(b"\n")
    line = json.loads(head)
    for change, said in (
        ({"min_reader": 2, "v": 3}, "version 3"),
        ({"fmt": "other"}, "no recording"),
        ({"v": None}, "no version"),
        ({"knobs": None}, "damaged"),
    ):
        (tmp_path / "x").write_bytes(json.dumps(line | change).encode() + b"\n" + rest)
        with pytest.raises(RecordingError, match=said):
            Recording.open(tmp_path / "x")
    (tmp_path / "x").write_bytes(json.dumps(line | {"v": 2}).encode() + b"\n" + rest)  # newer, but we can read it
    Recording.open(tmp_path / "x")
    for content in (b"", b"hello\n", b'{"id": "a"}\n', b"\x80\x04\x95\n", b"[" * 100_000 + b"\n"):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(RecordingError, match="no recording"):
            Recording.open(tmp_path / "x")
    for where in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RecordingError):
            Recording.open(where)


def test_check_sums_that_disagree_are_told(tmp_path: Path) -> None:
    path, _ = small(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith(b'{"k":"it","i":20,'))
    line = json.loads(lines[at])
    line["n"][3] += 1
    lines[at] = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    recording = Recording.open(path)
    list(recording.iterations())
    assert any("record 20 " in note and "cached blocks" in note for note in recording.notes), recording.notes


def test_the_end_line_sums_up_all_bytes_before_it(tmp_path: Path) -> None:
    path, records = small(tmp_path)
    data = path.read_bytes()
    before, last = data[: data.rindex(b"\n", 0, -1) + 1], json.loads(data.splitlines()[-1])
    assert last["k"] == "end" and last["n"] == len(records) and last["bytes"] == len(before)
    assert last["sha256"] == hashlib.sha256(before).hexdigest()
    assert check(Recording.open(path)) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told_when_the_file_is_opened() -> None:
    config, _ = random_run(1, 5)
    with pytest.raises(RecordingError, match="No space left"):
        Recorder("/dev/full", header_of(config), force=True)


def test_an_error_of_the_disk_ends_the_recording_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, records = random_run(1, 60)
    recorder = Recorder(tmp_path / "run", header_of(config))
    real, left = os.write, [2000]

    def write(fd: int, data: bytes) -> int:
        if left[0] <= 0:
            raise OSError(28, "No space left on device")
        done = real(fd, data[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)
    told = []
    for it in records:
        try:
            recorder.add(it)
        except RecordingError as error:
            told.append(str(error))
    recorder.close()
    assert len(told) == 1 and "No space left" in told[0] and recorder.fault == told[0] and not recorder.closed
    recording = Recording.open(tmp_path / "run")
    assert 0 < recording.num_records == recorder.records
    assert list(recording.iterations()) == records[: recorder.records]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    config, records = random_run(1, 5)
    (tmp_path / "run").write_text("mine")
    for path in (tmp_path / "run", tmp_path, tmp_path / "no" / "run"):
        with pytest.raises(RecordingError):
            Recorder(path, header_of(config))
    assert (tmp_path / "run").read_text() == "mine"
    record(tmp_path / "run", config, records, force=True)
    assert Recording.open(tmp_path / "run").num_records == len(records)


def test_records_come_in_order(tmp_path: Path) -> None:
    config, records = random_run(1, 20)
    recorder = Recorder(tmp_path / "run", header_of(config))
    recorder.add(records[0])
    for wrong in (records[0], records[2]):
        with pytest.raises(ValueError):
            recorder.add(wrong)
    recorder.add(records[1])
    recorder.close()
    recorder.close()
    recorder.add(records[2])
    assert list(Recording.open(tmp_path / "run").iterations()) == records[:2]


WRITER = """
import sys
from tests.traces.recording.runs import header_of, random_run
from traces.recording import Recorder
config, records = random_run(31, 3000)
recorder = Recorder(sys.argv[1], header_of(config))
print("begun", flush=True)
for it in records:
    recorder.add(it)
    print(it.seq, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
def test_killed_while_writing(delay: float, tmp_path: Path) -> None:
    """kill -9 at any moment: the file opens, and every record that was said to be written is there."""
    path = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"begun\n"
    child.stdout.readline()
    time.sleep(delay)
    child.kill()
    said = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    last = int(said[-1]) if said and said[-1].isdigit() else 0
    recording = Recording.open(path)
    _, records = random_run(31, 3000)
    assert not recording.closed or recording.num_records == len(records)
    assert recording.num_records > last - (len(said) == 0)
    assert list(recording.iterations()) == records[: recording.num_records]
