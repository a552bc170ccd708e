from __future__ import annotations

from pathlib import Path

import pytest

from workbench.log import TOO_BIG, log_path, write_fault
from workbench.say import plain


def test_log_is_where_the_message_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_LOG", str(tmp_path / "deep" / "l.txt"))
    name = write_fault(ValueError("broken"))
    assert name == str(log_path()) and "ValueError: broken" in Path(name).read_text()
    monkeypatch.delenv("WORKBENCH_LOG")
    assert "serving-workbench" in str(log_path())


def test_big_log_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l.txt"
    path.write_bytes(bytes(TOO_BIG + 1))
    monkeypatch.setenv("WORKBENCH_LOG", str(path))
    write_fault("trace")
    assert path.stat().st_size < 1000 and (tmp_path / "l.txt.old").stat().st_size == TOO_BIG + 1


def test_unwritable_log_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_LOG", "/proc/none/l.txt")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert Path(write_fault("trace")).parent == tmp_path


def test_control_codes_are_made_visible() -> None:
    assert plain("a\x1b[31mb\r\x07\u202e\nc[x]") == "a\\x1b[31mb\\x0d\\x07\\x202e\nc[x]"
