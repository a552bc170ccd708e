"""Which reader a file is for: the one that is surest by its content, or the one a person names.

A file that nobody knows is described, so that the person sees what is wrong: its columns, its fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.errors import WorkbenchError
from traces.readers.base import NO, Container, Head, Reader
from traces.readers.files import read_pieces
from traces.readers.heads import read_heads
from traces.rows import ReadOptions

_CALLED = {Container.CSV: "CSV", Container.JSONL: "JSON lines", Container.JSON: "JSON"}


def choose(path: Path, options: ReadOptions, readers: Sequence[Reader]) -> tuple[Reader, Head]:
    """Raises WorkbenchError: no such file, no such format, nobody's or several readers' file."""
    named = named_reader(options.format, readers) if options.format is not None else None
    if path.is_dir():
        for reader in readers if named is None else (named,):
            if reader.takes_folder(path):
                return reader, Head(path, reader.containers[0])
        next(read_pieces(path))  # says that it is a folder
    heads = read_heads(path, options)
    if named is not None:
        fitting = [head for head in heads if head.container in named.containers]
        if not fitting:
            kinds = " or ".join(_CALLED[container] for container in named.containers)
            raise WorkbenchError(f"{path}: --format {named.name} reads {kinds}; this file is {describe(heads[0])}")
        return named, max(fitting, key=named.sniff)
    sure = [
        (level, reader, head)
        for head in heads
        for reader in readers
        if head.container in reader.containers and (level := reader.sniff(head)) > NO
    ]
    if not sure:
        raise WorkbenchError(_unknown(path, heads[0], options, readers))
    best = max(level for level, _, _ in sure)
    equal = {reader.name: (reader, head) for level, reader, head in reversed(sure) if level == best}
    if len(equal) > 1:
        names = " or ".join(sorted(equal))
        raise WorkbenchError(f"{path} could be {names} ({describe(heads[0])}); say which with --format")
    return next(iter(equal.values()))


def named_reader(name: str, readers: Iterable[Reader]) -> Reader:
    by_name = {reader.name: reader for reader in readers}
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name.lower(), by_name, 3, 0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(by_name)}"
    raise WorkbenchError(f"--format: {name!r} is unknown; {hint}")


def describe(head: Head) -> str:
    if head.container is Container.CSV:
        if len(head.columns) > 1:
            return f"CSV with the columns {_list(head.columns)}"
        if not head.has_header and len(head.records[0]) > 1:
            return f"CSV without a header, of {len(head.records[0])} columns"
        return "text that is neither CSV nor JSON"
    names = f"with the fields {_list(head.first)}" if head.first else "without any field"
    if head.container is Container.JSONL:
        return f"JSON lines {names}"
    return f"a JSON {'array' if head.is_array else 'document'} {names}"


def _unknown(path: Path, head: Head, options: ReadOptions, readers: Iterable[Reader]) -> str:
    if head.container is Container.CSV and not head.has_header and not options.columns and len(head.records[0]) > 1:
        first = _list(head.records[0])
        return f"{path} has no header: its first line is data ({first}); name the columns with --columns A,B,..."
    names = ", ".join(reader.name for reader in readers)
    return f"{path} is {describe(head)}: no format that is read here. Read are: {names}"


def _list(names: Iterable[str]) -> str:
    shown = [name if len(name) <= 30 else name[:27] + "..." for name in map(str, names)]
    text = ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")
    return "".join(char if char.isprintable() else "?" for char in text)
