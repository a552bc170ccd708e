"""A strict checker of Chrome Trace Event JSON, written from the format's description ("Trace Event Format").

It knows nothing of who wrote the file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NoReturn

NEEDED = {
    "X": ("name", "pid", "tid", "ts", "dur"),
    "i": ("name", "pid", "tid", "ts", "s"),
    "C": ("name", "pid", "ts", "args"),
    "M": ("name", "pid", "args"),
    "b": ("name", "cat", "id", "pid", "tid", "ts"),
    "n": ("name", "cat", "id", "pid", "tid", "ts"),
    "e": ("name", "cat", "id", "pid", "tid", "ts"),
}
METADATA = {
    "process_name": ("name", str), "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int), "thread_sort_index": ("sort_index", int),
}  # fmt: skip


def ns(microseconds: float) -> int:
    """Three places of a microsecond are all there is; more would be a mistake of units or of rounding."""
    whole = round(microseconds * 1000)
    assert abs(microseconds * 1000 - whole) < 1e-3, f"{microseconds} us has a part below a nanosecond"
    return whole


def check_trace(text: str) -> list[dict[str, Any]]:
    """The events, when the file is right; AssertionError otherwise."""
    file = json.loads(text, parse_constant=_no_constant)
    assert isinstance(file, dict) and isinstance(file["traceEvents"], list)
    assert file.get("displayTimeUnit") in ("ms", "ns")
    events: list[dict[str, Any]] = file["traceEvents"]
    for event in events:
        _check_event(event)
    _check_nesting(events)
    _check_async(events)
    named = {e["pid"] for e in events if e["name"] == "process_name"}
    assert {e["pid"] for e in events} <= named, "a process without a name"
    lanes = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= lanes, "slices on a thread without a name"
    return events


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def _check_event(event: dict[str, Any]) -> None:
    ph = event.get("ph")
    assert ph in NEEDED, f"unknown ph in {event}"
    for key in NEEDED[ph]:
        assert key in event, f"{key} is missing in {event}"
    assert isinstance(event["name"], str) and event["name"]
    for key in ("pid", "tid"):
        assert type(event.get(key, 0)) is int
    if "ts" in event:
        assert type(event["ts"]) in (int, float) and event["ts"] >= 0
        ns(event["ts"])
    match ph:
        case "X":
            assert type(event["dur"]) in (int, float) and event["dur"] >= 0
            ns(event["dur"])
        case "i":
            assert event["s"] in ("g", "p", "t")
        case "C":
            assert event["args"], "a counter without values"
            assert all(type(value) in (int, float) for value in event["args"].values()), event
        case "M":
            key, type_ = METADATA[event["name"]]
            assert isinstance(event["args"][key], type_)
        case _:
            assert isinstance(event["id"], str) and isinstance(event["cat"], str) and event["cat"]


def _check_nesting(events: list[dict[str, Any]]) -> None:
    """Slices of one thread lie beside or inside one another, and come in order."""
    threads: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"])
            threads[event["pid"], event["tid"]].append((start, start + ns(event["dur"]), event["name"]))
    for slices in threads.values():
        starts = [start for start, _, _ in slices]
        assert starts == sorted(starts), "slices out of order"
        open_: list[tuple[int, int, str]] = []
        for start, end, name in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1][1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1][1], f"{name} {start}..{end} sticks out of {open_[-1]}"
            open_.append((start, end, name))


def _check_async(events: list[dict[str, Any]]) -> None:
    """Nestable async events: begun and ended as a stack per (category, id), none left open, none back in time.

    A viewer sorts them by time and keeps the order of the file where times are equal.
    """
    tracks: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] in "bne":
            tracks[event["cat"], event["id"]].append(event)
    for key, track in tracks.items():
        times = [ns(event["ts"]) for event in track]
        assert times == sorted(times), f"events of {key} go back in time"
        stack: list[dict[str, Any]] = []
        for event in track:
            if event["ph"] == "b":
                stack.append(event)
            elif event["ph"] == "n":
                assert stack, f"{event['name']} of {key} is outside of everything"
            else:
                assert stack, f"{event['name']} of {key} ends but never began"
                begun = stack.pop()
                assert begun["name"] == event["name"], f"{begun['name']} is open when {event['name']} ends"
        assert not stack, f"{[e['name'] for e in stack]} of {key} never end"
