"""Where an export is written: a file that is whole or not there, or a stream of the caller's.

A file is written under a temporary name beside its place and renamed at the end; on any failure nothing is left and a
file that was there before is untouched. A name that ends in .gz is compressed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from engine.errors import WorkbenchError
from traces.places import beside, is_direct, open_direct

Out = Path | IO[Any]


def check_target(out: Out, *, force: bool = False) -> None:
    """WorkbenchError when `out` cannot be written: it is there already (without force), or has no folder."""
    if not isinstance(out, Path):
        return
    if out.is_dir():
        raise WorkbenchError(f"{out} is a folder; give a file")
    if out == Path("-"):
        raise WorkbenchError("- is no file; give a name, or /dev/stdout for the standard output")
    if out.is_file() and not is_direct(out) and not force:
        raise WorkbenchError(f"{out} is there already; give another name, or --force to replace it")
    if not out.parent.is_dir():
        raise WorkbenchError(f"{out} cannot be written: there is no folder {out.parent}")


@contextlib.contextmanager
def open_target(out: Out, *, binary: bool = False, force: bool = False) -> Iterator[IO[Any]]:
    """A file object for `out`; the caller's stream is neither closed nor flushed.

    Text is UTF-8 with lines ended by whoever writes them; what UTF-8 cannot hold (half a surrogate pair) is written as
    a backslash escape. WorkbenchError when the file cannot be made or ended; what the caller's own writing raises is
    passed on.
    """
    check_target(out, force=force)
    if not isinstance(out, Path):
        yield out
        return
    if is_direct(out):
        with writing(out):
            device = open_direct(out)
        with _closed(out) as stack:
            yield stack.enter_context(_layers(stack.enter_context(device), out, binary))
        return
    mode = 0o666 & ~_umask()
    place = beside(out)
    try:
        number, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    except OSError as problem:
        raise WorkbenchError(f"{out} cannot be written: {problem.strerror}") from None
    part = Path(name)
    try:
        with _closed(out) as stack:
            raw = stack.enter_context(os.fdopen(number, "wb"))
            yield stack.enter_context(_layers(raw, out, binary))
        with writing(out):
            part.chmod(mode)
            os.replace(part, place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def writing(out: Out) -> Iterator[None]:
    """Makes a WorkbenchError of what the operating system refuses."""
    try:
        yield
    except OSError as problem:
        where = out if isinstance(out, Path) else getattr(out, "name", "the output")
        raise WorkbenchError(f"{where} could not be written: {problem.strerror or problem}") from problem


@contextlib.contextmanager
def _closed(out: Path) -> Iterator[contextlib.ExitStack]:
    """A stack of files to close. What was not written yet may fail then: told, but not in place of an error before."""
    stack = contextlib.ExitStack()
    try:
        yield stack
    except BaseException:
        with contextlib.suppress(OSError):
            stack.close()
        raise
    with writing(out):
        stack.close()


@contextlib.contextmanager
def _layers(raw: IO[bytes], out: Path, binary: bool) -> Iterator[IO[Any]]:
    with contextlib.ExitStack() as stack:
        file: Any = raw
        if out.suffix == ".gz":
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0))  # no name, no time: repeatable
        if not binary:
            file = stack.enter_context(
                io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=False)
            )
        yield file


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
