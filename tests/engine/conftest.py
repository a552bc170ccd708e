"""Shared by the engine's tests: invariants are checked after every step."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _check_invariants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CHECK", os.environ.get("WORKBENCH_CHECK", "1"))
