from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _same_terminal_everywhere(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture(autouse=True)
def _log_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_LOG", str(tmp_path / "workbench.log"))


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    """Pilot waits for a calm process in naps of 20 ms; a key press takes several."""
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 1 / 125)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", 1 / 1000)
