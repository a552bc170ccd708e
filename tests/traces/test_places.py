"""Links are followed, and /dev/stdout is never replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import WorkbenchError
from traces.exports.target import open_target
from traces.places import beside, is_direct
from traces.writers.output import output


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    with output(link) as file:
        file.write("new")
    assert link.is_symlink() and real.read_text() == "new"
    with open_target(link, force=True) as file:
        file.write("newer")
    assert link.is_symlink() and real.read_text() == "newer"
    assert beside(link) == real and sorted(tmp_path.iterdir()) == [link, real]


def test_the_standard_output_in_a_file_is_written_directly(tmp_path: Path) -> None:
    assert is_direct(Path("/dev/stdout"))
    code = (
        "import sys; from pathlib import Path; from traces.exports.target import open_target\n"
        "print('before')\n"
        "with open_target(Path('/dev/stdout')) as file: file.write('rows\\n')\n"
        "print('after')"
    )
    out = tmp_path / "out"
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text() == "before\nrows\nafter\n"


def test_a_device_that_is_full_is_told_whoever_finds_out() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    for write in (lambda: open_target(full, binary=True), lambda: open_target(full), lambda: output(full)):
        with pytest.raises(WorkbenchError, match="No space left"), write() as file:
            file.write(b"x" if "b" in getattr(file, "mode", "") else "x")
    with pytest.raises(ValueError, match="the first error"), open_target(full, binary=True) as file:
        file.write(b"x")
        raise ValueError("the first error")
