"""BLIS TraceV2 (inference-sim): a YAML header and a CSV of requests, in two files side by side or in one.

Strict as its own reader: a header key nobody knows is an error, since it may change what the rows mean. `input_tokens`
is what follows the shared prefix of `prefix_length` tokens of a `prefix_group`. 0 stands for "not recorded" in
deadlines. Rows whose status is not ok are known to have failed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.errors import WorkbenchError
from traces.readers.base import LIKELY, NO, SURE, Container, Context, Head, Reader
from traces.readers.files import read_head, read_lines
from traces.readers.heads import cells_of
from traces.readers.sources import csv_records
from traces.rows import Row

_NEEDED = {"request_id", "input_tokens", "output_tokens", "arrival_time_us"}
_KEYS = {
    "trace_version", "time_unit", "created_at", "mode", "warm_up_requests", "workload_seed", "workload_spec", "server",
    "network", "goodput_slo_targets",
}  # fmt: skip
_VERSIONS = (2, 3)
_UNITS = {"us": "us", "microseconds": "us", "ticks": "us", "ms": "ms", "milliseconds": "ms", "s": "s", "ns": "ns"}
_FAILED = ("error", "timeout", "incomplete")
_LONGEST_HEADER = 1 << 20


class Blis(Reader):
    name = "blis"
    title = "BLIS TraceV2 (YAML header and CSV, microseconds)"
    unit = "us"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        if set(head.columns) >= _NEEDED:
            return SURE
        # a header, alone or before the rows, is seen as CSV of one column
        return LIKELY if _begins_as_header(head) else NO

    def records(self, head: Head, context: Context) -> Iterator[tuple[int, Any]]:
        data, header, skip = _find(head)
        unit = "us"
        if header is not None:
            unit = _unit(head.path, header)
        else:
            context.note("the YAML header is not beside the file: times are taken as microseconds")
        context.state["unit"] = unit
        yield from csv_records(data, skip=skip)

    def parse(self, record: Any, context: Context) -> Row:
        unit = context.state["unit"]
        t_ns = context.time(record["arrival_time_us"], unit)
        prefix = context.length("prefix_length", record.get("prefix_length") or 0)
        prompt_len = context.length("input_tokens", record["input_tokens"]) + prefix
        output_len = context.length("output_tokens", record["output_tokens"])
        more: dict[str, Any] = {"id": record["request_id"]}
        if client := record.get("client_id") or record.get("tenant_id"):
            more["client"] = client
        if session := record.get("session_id"):
            more["session"] = session
            more["turn"] = context.length("round_index", record.get("round_index") or 0)
        if record.get("vllm_priority"):
            more["priority"] = context.length("vllm_priority", record["vllm_priority"])
        if (deadline := _deadline(record, t_ns, unit, context)) > 0:
            more["deadline"] = deadline
        if (group := record.get("prefix_group")) and prefix:
            more |= {"prefix_ids": (_group_id(group),), "prefix_lens": (prefix,)}
        return Row(t_ns, prompt_len, output_len, record.get("status", "ok") in _FAILED, more=more)


def _deadline(record: Mapping[str, str], t_ns: int, unit: str, context: Context) -> float:
    """Seconds after arrival: the target for the first token, else when the row would have been given up; 0 for none."""
    if target := context.seconds(record.get("slo_target_us") or 0, unit):
        return target
    return (context.time(record.get("deadline_us") or 0, unit) - t_ns) / 1e9


def _group_id(group: str) -> int:
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big")


def _begins_as_header(head: Head) -> bool:
    first = (head.columns[0] if head.columns else "", *(row[0] for row in head.records[:2] if row))
    return any(cell.split(":")[0].lstrip("# ") == "trace_version" for cell in first)


def _find(head: Head) -> tuple[Head, Any, int]:
    """(the CSV, what its header says, lines before the CSV): rows given, header given, or both in one file."""
    path = head.path
    if set(head.columns) >= _NEEDED:
        mate = next((mate for mate in _mates(path, (".yaml", ".yml")) if _is_header(mate)), None)
        return head, None if mate is None else _load(mate, mate.read_bytes()), 0
    lines: list[bytes] = []
    for number, raw in read_lines(path):
        columns = [cell.strip().lstrip("# ") for cell in raw.decode("utf-8", "replace").split(",")]
        if set(columns) >= _NEEDED:
            rows = dataclasses.replace(head, columns=tuple(columns), delimiter=",", has_header=True)
            return rows, _load(path, b"\n".join(lines)), number - 1
        if raw.strip() not in (b"---", b"..."):
            lines.append(raw.removeprefix(b"# ").removeprefix(b"#"))
        if number > 10_000:
            break
    header = _load(path, b"\n".join(lines))
    for mate in _mates(path, (".csv",)):
        with_rows, _ = read_head(mate, 4096)
        columns = cells_of(with_rows.split(b"\n")[0].decode("utf-8", "replace").strip(), ",")
        if set(columns) >= _NEEDED:
            return Head(mate, Container.CSV, tuple(columns)), header, 0
    raise WorkbenchError(f"{path} is a BLIS header without rows: put its CSV beside it, as {path.with_suffix('.csv')}")


def _mates(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Files beside this one that may be the other half: same stem, or `header` for `data`, `trace` and back."""
    stems = [path.stem, f"{path.stem}_header", f"{path.stem}-header", path.stem.removesuffix("_header")]
    stems += [
        path.stem.removesuffix("-header"),
        path.stem.replace("data", "header"),
        path.stem.replace("header", "data"),
    ]
    for stem in dict.fromkeys(stems):
        for suffix in suffixes:
            mate = path.with_name(stem + suffix)
            if mate != path and mate.is_file():
                yield mate


def _is_header(path: Path) -> bool:
    return path.stat().st_size <= _LONGEST_HEADER and b"trace_version" in path.read_bytes()


def _load(path: Path, raw: bytes) -> dict[str, Any]:
    """The header, checked: every key known, a version and a unit that are understood."""
    if len(raw) > _LONGEST_HEADER:
        raise WorkbenchError(f"{path}: the header is longer than {_LONGEST_HEADER >> 10} KiB")
    try:
        header = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WorkbenchError(f"{path}: the header is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(header, dict):
        raise WorkbenchError(f"{path}: the header is not a YAML mapping")
    if unknown := [str(key) for key in header if key not in _KEYS]:
        raise WorkbenchError(
            f"{path}: the header's key {unknown[0]!r} is unknown; known are {', '.join(sorted(_KEYS))}"
        )
    version = header.get("trace_version")
    if not isinstance(version, int) or version not in _VERSIONS:
        raise WorkbenchError(
            f"{path}: trace_version must be 2 or 3" + (f", not {version}" if isinstance(version, int | str) else "")
        )
    return header


def _unit(path: Path, header: Mapping[str, Any]) -> str:
    said = header.get("time_unit", "us")
    unit = _UNITS.get(said.lower()) if isinstance(said, str) else None
    if unit is None:
        raise WorkbenchError(f"{path}: time_unit is none of {', '.join(_UNITS)}")
    return unit
