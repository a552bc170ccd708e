"""Fixtures every room shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The machines that run this share their cores; a slow example is not a failure. The same examples every time, unless
# somebody asks for new ones.
settings.register_profile("repository", deadline=None, derandomize="WORKBENCH_EXAMPLES" not in os.environ)
settings.load_profile("repository")


@pytest.fixture(scope="session")
def default_model_dir() -> Path:
    """The default model's folder, fetched the first time. A failed fetch fails the tests that need it:
    skipping them would hide that the product's main path was not tested."""
    from workbench.model_store import DEFAULT_MODEL, resolve

    folder = resolve(DEFAULT_MODEL).path
    assert folder is not None
    return folder
