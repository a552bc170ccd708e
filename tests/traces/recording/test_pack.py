"""A packed recording is the plain one: the same bytes when unpacked, the same answers when opened."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import zstandard

from tests.traces.recording.runs import assert_same_view, random_run, record
from traces.errors import RecordingError
from traces.recording import Recording
from traces.recording.check import check
from traces.recording.pack import pack, unpack


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize(("start", "close"), [(0, True), (50, False)])
def test_packed_is_plain(zstd: bool, start: int, close: bool, tmp_path: Path) -> None:
    config, records = random_run(41, 400)
    plain = tmp_path / "run"
    record(plain, config, records, start=start, close=close)
    done = pack(plain, zstd=zstd)
    assert done.path.name == ("run.zst" if zstd else "run.gz") and done.after == done.path.stat().st_size < done.before
    if zstd:
        with zstandard.ZstdDecompressor().stream_reader(done.path.open("rb"), read_across_frames=True) as stream:
            assert stream.read() == plain.read_bytes()
    else:
        assert gzip.decompress(done.path.read_bytes()) == plain.read_bytes()
    a, b = Recording.open(plain), Recording.open(done.path)
    assert (b.num_records, b.last_step, b.size, b.notes) == (a.num_records, a.last_step, a.size, a.notes)
    assert list(b.iterations()) == records[start:]
    assert b.marks.tolist() == a.marks.tolist() and b.ends.tolist() == a.ends.tolist()
    for step in random.Random(1).sample(range(a.first_step, a.last_step + 1), 12):
        assert_same_view(b.view_at(step), a.view_at(step))
    if close:
        assert check(b) == []
    assert unpack(done.path, tmp_path / "again").after == plain.stat().st_size
    assert (tmp_path / "again").read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("zstd", [False, True])
def test_cut_and_damaged(zstd: bool, tmp_path: Path) -> None:
    config, records = random_run(42, 400)
    plain = tmp_path / "run"
    record(plain, config, records)
    data = pack(plain, zstd=zstd).path.read_bytes()
    rng = random.Random(3)
    cut = tmp_path / "cut"
    least = 0
    for size in sorted(rng.sample(range(3000, len(data)), 25)):
        cut.write_bytes(data[:size])
        recording = Recording.open(cut)
        assert list(recording.iterations()) == records[: recording.num_records]
        assert recording.num_records >= least
        least = recording.num_records
    assert least == len(records)
    for _ in range(40):
        at = rng.randrange(len(data))
        cut.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        try:
            recording = Recording.open(cut)
            found = list(recording.iterations())
        except RecordingError as error:
            assert "\n" not in str(error)
            continue
        assert found == records[: len(found)]  # every part has a check sum of its own


def test_mistakes(tmp_path: Path) -> None:
    config, records = random_run(43, 30)
    plain = tmp_path / "run"
    record(plain, config, records)
    packed = pack(plain).path
    before = packed.read_bytes()
    for wrong in (
        lambda: pack(plain),
        lambda: pack(packed, tmp_path / "x"),
        lambda: unpack(plain),
        lambda: unpack(packed),
        lambda: pack(plain, tmp_path),
        lambda: pack(plain, tmp_path / "no" / "x"),
        lambda: pack(tmp_path / "nothing"),
    ):
        with pytest.raises(RecordingError):
            wrong()
    assert packed.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.gz"]
