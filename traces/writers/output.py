"""A text file that appears when it is whole: written beside its place, packed by its name, then renamed."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from engine.errors import WorkbenchError
from traces.places import beside, is_direct, open_direct

STDOUT = Path("-")


def check_output(path: Path, *, force: bool = False, inputs: Iterable[Path] = ()) -> None:
    """Raises WorkbenchError when `path` is no place to write: a folder, one of the inputs, or there already."""
    if path == STDOUT:
        return
    if path.is_dir():
        raise WorkbenchError(f"{path} is a folder; give a file")
    if not path.parent.is_dir():
        raise WorkbenchError(f"{path}: there is no folder {path.parent}")
    if path.exists():
        if any(given.exists() and path.samefile(given) for given in inputs):
            raise WorkbenchError(f"{path} is the input itself; give another file")
        if path.is_file() and not is_direct(path) and not force:
            raise WorkbenchError(f"{path} exists; --force replaces it")


@contextlib.contextmanager
def output(path: Path) -> Iterator[IO[str]]:
    """A file for text. Nothing is left behind, and nothing is replaced, when the block raises.

    `-` is the standard output: it too gets all or nothing. Names ending in .gz and .zst are compressed; the same text
    gives the same bytes. A pipe or a device is written directly.
    """
    try:
        if path == STDOUT:
            with tempfile.TemporaryFile() as spool:
                with _text(spool, "") as text:
                    yield text
                spool.seek(0)
                shutil.copyfileobj(spool, sys.stdout.buffer)
                sys.stdout.flush()
            return
        if is_direct(path):
            with open_direct(path) as device, _text(device, path.suffix) as text:
                yield text
            return
        place = beside(path)
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                with _text(file, path.suffix) as text:
                    yield text
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WorkbenchError(f"{path} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def _text(file: Any, suffix: str) -> Iterator[IO[str]]:
    """`file` stays open: the caller flushes it to the disk. Half a surrogate pair is written as its JSON escape."""
    packer: Any = None
    if suffix == ".gz":
        packer = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)  # no time or name inside
    elif suffix in (".zst", ".zstd"):
        import zstandard

        packer = zstandard.ZstdCompressor().stream_writer(file, closefd=False)
    text = io.TextIOWrapper(packer or file, encoding="utf-8", errors="backslashreplace", newline="")
    try:
        yield text
        text.flush()
    finally:
        text.detach()
        if packer is not None:
            packer.close()
