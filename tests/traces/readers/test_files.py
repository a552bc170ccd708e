"""Bytes of files: packed or not, cut, too large, or something else altogether (kinds 14 to 18 and 20)."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import WorkbenchError
from traces.readers import files
from traces.readers.files import read_blocks, read_head, read_lines, read_pieces

TEXT = b"".join(b"line %d\n" % number for number in range(5000))


def write(tmp_path: Path, data: bytes, name: str = "a.bin") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def read(path: Path) -> bytes:
    return b"".join(read_pieces(path))


def refusal(path: Path) -> str:
    with pytest.raises(WorkbenchError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "a.zst", "a"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_packing_is_seen_by_magic_bytes_whatever_the_name(tmp_path: Path, pack: Any, name: str) -> None:
    assert read(write(tmp_path, pack(TEXT), name)) == TEXT


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_several_members_or_frames_are_one_text(tmp_path: Path, pack: Any) -> None:
    parts = [TEXT[:100], b"", TEXT[100:7000], TEXT[7000:]]
    assert read(write(tmp_path, b"".join(map(pack, parts)))) == TEXT


def test_gzip_may_be_padded_with_zeros(tmp_path: Path) -> None:
    assert read(write(tmp_path, gzip.compress(TEXT) + bytes(512))) == TEXT


def test_zstd_may_begin_with_a_skippable_frame(tmp_path: Path) -> None:
    assert read(write(tmp_path, b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd(TEXT))) == TEXT


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (zstd, "zstd")])
def test_packed_data_that_is_cut_or_damaged(tmp_path: Path, pack: Any, kind: str) -> None:
    packed = pack(TEXT)
    for cut in (5, len(packed) // 2, len(packed) - 1):
        assert f"damaged {kind} data" in refusal(write(tmp_path, packed[:cut]))
    assert f"damaged {kind} data" in refusal(write(tmp_path, packed + b"rubbish"))
    half = len(packed) // 2
    assert f"damaged {kind} data" in refusal(write(tmp_path, packed[:half] + b"\xff" * 40 + packed[half + 40 :]))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_bombs_are_refused_and_text_that_shrinks_well_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Any
) -> None:
    monkeypatch.setattr(files, "RATIO_COUNTS_FROM", 1 << 20)
    assert "a bomb or only filling" in refusal(write(tmp_path, pack(b" " * (8 << 20))))
    rows = b"".join(b"%d,%d,%d\n" % (number, number * 7919 % 4001, number % 97) for number in range(200_000))
    assert read(write(tmp_path, pack(rows))) == rows


def test_inflated_size_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_INFLATED", 10_000)
    assert "holds more than" in refusal(write(tmp_path, gzip.compress(TEXT)))


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"))
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.csv", "1,2")
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_zip(), "zip archive"),
        (_tar(), "tar archive"),
        (gzip.compress(_tar()), "tar archive"),
        (gzip.compress(gzip.compress(TEXT)), "compressed twice"),
        (b"PAR1\x15\x04\x15\x10", "Parquet"),
        (b"\x93NUMPY\x01\x00", "NumPy array"),
        (bz2.compress(TEXT), "bzip2"),
        (lzma.compress(TEXT), "xz"),
        (b"\x89HDF\r\n\x1a\n\x00", "HDF5"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-be"), "UTF-16"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16"),
        (b"a,b\n1,\0\0\n", "binary"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "looks like HTML or XML"),
        (b"\n  <html>", "looks like HTML or XML"),
        (b"%PDF-1.7", "PDF"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",
)
def test_wrong_container_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    """Kind 20."""
    assert said in refusal(write(tmp_path, data, "trace.jsonl"))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_never_loaded(tmp_path: Path, protocol: int) -> None:
    proof = tmp_path / "it ran"

    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(proof),))

    for value in ([{"a": 1}], {"a": 1}, Evil()):
        assert "pickle" in refusal(write(tmp_path, pickle.dumps(value, protocol)))
    assert not proof.exists()


def test_sqlite_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as base:
        base.execute("create table t (a)")
    base.close()
    assert "SQLite database" in refusal(path)


def test_folders_pipes_and_missing_files(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    assert "not a plain file" in refusal(tmp_path / "pipe")
    with pytest.raises(WorkbenchError):
        read(tmp_path / "a\0b")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    path.chmod(0)
    assert "permission denied" in refusal(path)


def test_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    """Kinds 14, 15, 16 and 18: CRLF, a mark, blank lines, no final newline, U+2028 inside a line."""
    data = b"\xef\xbb\xbfone\r\n\r\ntwo\xe2\x80\xa8half\nthree\r\rfour\x0bfive\r"
    lines = [(1, b"one"), (2, b""), (3, b"two\xe2\x80\xa8half"), (4, b"three\r\rfour\x0bfive")]
    assert list(read_lines(write(tmp_path, data))) == lines
    assert list(read_lines(write(tmp_path, gzip.compress(data)))) == lines
    assert list(read_lines(write(tmp_path, b""))) == []
    assert list(read_lines(write(tmp_path, b"\xef\xbb\xbf"))) == []


@settings(max_examples=60, deadline=None)
@given(data=st.lists(st.sampled_from([b"a", b"\n", b"\r", b"bc", b"\n\n"]), max_size=40), size=st.integers(1, 9))
def test_blocks_hold_whole_lines_and_their_number(
    data: list[bytes], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "blocks"
    text = b"x" + b"".join(data)
    path.write_bytes(text)
    blocks = list(read_blocks(path, size))
    assert b"".join(block for _, block in blocks) == text
    assert all(block.endswith(b"\n") for _, block in blocks[:-1])
    before = 0
    for number, block in blocks:
        assert number == text[:before].count(b"\n") + 1
        before += len(block)


def test_a_line_that_does_not_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = write(tmp_path, b"a\n" + b"x" * 5000)
    with pytest.raises(WorkbenchError, match=":2: the line is longer than"):
        list(read_blocks(path, 100))


def test_head_holds_a_whole_line(tmp_path: Path) -> None:
    long = b"\n\n" + b"x" * 5000 + b"\n" + TEXT
    head, whole = read_head(write(tmp_path, long), 100)
    assert head.count(b"\n") >= 3 and not whole
    assert read_head(write(tmp_path, TEXT), 1 << 20) == (TEXT, True)
    head, whole = read_head(write(tmp_path, b"[" + b"1," * 50_000), 100)
    assert len(head) < 1000 and not whole
