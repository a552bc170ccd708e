"""What an import must not pull in, each in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

UI = ("textual", "rich", "typer", "click", "fastapi", "starlette", "uvicorn")


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("engine", ("torch", "numpy", "transformers", "tokenizers", *UI)),
        ("engine.scheduler", ("torch", "numpy", "transformers", *UI)),
        ("engine.blocks", ("torch", "numpy", *UI)),
        ("engine.view", ("torch", "numpy", *UI)),
        ("engine.loop", ("torch", "transformers", *UI)),
        ("engine.commands", ("torch", *UI)),
        ("engine.build", UI),
        ("kernels.api", ("engine", "transformers", *UI)),
    ],
)
def test_import(module: str, absent: tuple[str, ...]) -> None:
    found = loaded_by(module)
    assert module.partition(".")[0] in found
    assert not found & set(absent)


def test_public_names() -> None:
    import engine

    assert all(hasattr(engine, name) for name in engine.__all__)
