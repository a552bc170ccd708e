"""Shared by the engine's tests: invariants are checked after every step, and small models run in one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _check_invariants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CHECK", os.environ.get("WORKBENCH_CHECK", "1"))


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Operations on the tiny model take microseconds: on busy cores, waiting for a second thread makes tests ten times
    slower. The real model keeps its threads."""
    import torch

    threads = torch.get_num_threads()
    if request.node.get_closest_marker("model") is None:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
