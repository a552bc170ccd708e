from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _same_terminal_everywhere(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
