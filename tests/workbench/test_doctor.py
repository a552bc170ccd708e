from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import doctor
from workbench.doctor import Finding, Level, examine, run_doctor


def test_doctor_covers_the_machine_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    start = time.process_time()
    code = run_doctor(as_json=True)
    assert time.process_time() - start < 10  # CPU seconds, torch's import included
    found = json.loads(capsys.readouterr().out)
    names = {check["name"] for check in found["checks"]}
    assert {
        "python",
        "cpu",
        "memory",
        "torch",
        "device",
        "bf16",
        "triton",
        "terminal",
        "colours",
        "cache",
        "log",
    } <= names
    assert code == (1 if found["status"] == "FAIL" else 0)
    assert all(check["fix"] for check in found["checks"] if check["level"] != "OK")


def _failing() -> Iterator[Finding]:
    yield Finding(Level.FAIL, "torch", "cannot be imported", "install it")


def _broken() -> Iterator[Finding]:
    raise OSError("no such thing")
    yield


def test_failures_and_broken_checks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (_failing, _broken))
    assert run_doctor() == 1
    text = capsys.readouterr().out
    assert "FAIL  torch     cannot be imported" in text and "-> install it" in text
    assert "WARN  broken    could not be examined: OSError: no such thing" in text


def test_unwritable_cache_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(doctor, "CHECKS", (doctor._folders,))
    cache = next(finding for finding in examine() if finding.name == "cache")
    assert cache.level is Level.FAIL and "WORKBENCH_CACHE" in cache.fix
