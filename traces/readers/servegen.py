"""ServeGen: a client's rates in windows of time and its lengths as distributions. These are parameters, not requests:
reading makes requests from them, the same ones each time.

`chunk-N-trace.csv` has no header: start s, rate/s, CV, Gamma or Weibull, shape, scale of the gaps; an idle window has
rate 0. `chunk-N-dataset.json` has windows of lengths whose probabilities are Python dicts written as text. Either file
or the folder of all clients is given.

Gaps are drawn from the window's distribution and stretched so that their mean is one over its rate: the published
scales do not agree with the rates. Prompt and output lengths are drawn independently, as the file has them apart.
"""

from __future__ import annotations

import ast
import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import WorkbenchError
from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.files import read_lines, read_pieces
from traces.readers.jsontext import decode
from traces.readers.lengths import to_length
from traces.rows import Drop, Row

SEED = 0
WINDOW = 600.0
"""Seconds of a window when there is no next one to tell."""
MOST_RATE = 100_000.0
_RATES, _LENGTHS = "-trace.csv", "-dataset.json"
_GAPS = ("Gamma", "Weibull", "Exponential", "")


class _Window(NamedTuple):
    line: int
    start: float
    rate: float
    gaps: str
    shape: float


class _Lengths(NamedTuple):
    """Of one window: values and the running sums of their probabilities."""

    start: float
    prompt: tuple[tuple[int, ...], tuple[float, ...]]
    output: tuple[tuple[int, ...], tuple[float, ...]]


class ServeGen(Reader):
    name = "servegen"
    title = "ServeGen clients (rates and length distributions, seconds): requests are drawn from them"
    unit = "s"
    containers = (Container.CSV, Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        if head.container is Container.CSV:
            rows = [row for row in head.records if len(row) == 6]
            return SURE if not head.has_header and rows and all(map(_is_window, rows[:5])) else NO
        if head.is_array or not head.first:
            return NO
        return SURE if all(map(_is_lengths, head.first.items())) else NO

    def takes_folder(self, path: Path) -> bool:
        return any(path.glob("*" + _RATES)) and any(path.glob("*" + _LENGTHS))

    def records(self, head: Head, context: Context) -> Iterator[tuple[int, Any]]:
        context.note(f"requests were drawn from ServeGen's rates and lengths with the seed {SEED}")
        if head.path.is_dir():
            pairs = [(rates, _mate(rates, _RATES, _LENGTHS)) for rates in sorted(head.path.glob("*" + _RATES))]
        elif head.container is Container.CSV:
            pairs = [(head.path, _mate(head.path, _RATES, _LENGTHS))]
        else:
            pairs = [(_mate(head.path, _LENGTHS, _RATES), head.path)]
        clients = [_requests(rates, lengths) for rates, lengths in pairs]
        return heapq.merge(*clients, key=lambda item: -1 if isinstance(item[1], Drop) else item[1].t_ns)


def _is_window(row: list[str]) -> bool:
    try:
        _window(0, row)
    except Drop:
        return False
    return True


def _is_lengths(item: tuple[str, Any]) -> bool:
    start, window = item
    return start.isdigit() and isinstance(window, dict) and isinstance(window.get("input_tokens"), str)


def _mate(path: Path, ending: str, other: str) -> Path:
    mate = path.with_name(path.name.removesuffix(ending) + other)
    if not path.name.endswith(ending) or not mate.is_file():
        raise WorkbenchError(
            f"{path} is half of a ServeGen client: it needs NAME{_RATES} and NAME{_LENGTHS} side by side"
            + (f", but there is no {mate.name}" if path.name.endswith(ending) else "")
        )
    return mate


def _requests(rates: Path, lengths: Path) -> Iterator[tuple[int, Row | Drop]]:
    client = rates.name.removesuffix(_RATES)
    draw = random.Random(f"servegen {SEED} {client}")
    known = _read_lengths(lengths)
    windows: list[_Window] = []
    for line, raw in read_lines(rates):
        if raw.strip():
            try:
                windows.append(_window(line, [cell.strip() for cell in raw.decode("utf-8", "replace").split(",")]))
            except Drop as fault:
                yield line, fault
    windows.sort(key=lambda window: window.start)
    for index, window in enumerate(windows):
        end = windows[index + 1].start if index + 1 < len(windows) else window.start + WINDOW
        if not window.rate:
            continue
        which = known[max(bisect_right([of.start for of in known], window.start) - 1, 0)]
        at = window.start
        while (at := at + _gap(draw, window)) < end:
            row = Row(round(at * 1e9), _pick(draw, *which.prompt), _pick(draw, *which.output))
            row.more = {"client": client}
            yield window.line, row


def _gap(draw: random.Random, window: _Window) -> float:
    if window.gaps == "Gamma":
        return draw.gammavariate(window.shape, 1 / (window.shape * window.rate))
    if window.gaps == "Weibull":
        return draw.weibullvariate(1 / (window.rate * math.gamma(1 + 1 / window.shape)), window.shape)
    return draw.expovariate(window.rate)


def _pick(draw: random.Random, values: tuple[int, ...], sums: tuple[float, ...]) -> int:
    return values[min(bisect_right(sums, draw.random() * sums[-1]), len(values) - 1)]


def _window(line: int, cells: list[str]) -> _Window:
    """Raises Drop."""
    if len(cells) != 6:
        raise Drop("another number of cells", f"{len(cells)} cells, a window of ServeGen has 6")
    try:
        start, rate, shape = (float(cells[index] or 0) for index in (0, 1, 4))
    except ValueError:
        raise Drop("bad window", "start, rate and shape must be numbers") from None
    gaps = cells[3]
    if gaps not in _GAPS:
        raise Drop("bad window", f"gaps are {gaps!r}, known are Gamma, Weibull and Exponential")
    if not (0 <= start < 1e9 and 0 <= rate <= MOST_RATE):
        raise Drop("bad window", f"start {start:g} s or rate {rate:g}/s is out of range")
    if rate and gaps in ("Gamma", "Weibull") and not 0.02 <= shape <= 1e6:  # below, single gaps are longer than ages
        raise Drop("bad window", f"shape {shape:g} is out of range, allowed: 0.02..1000000")
    return _Window(line, start, rate, gaps, shape)


def _read_lengths(path: Path) -> list[_Lengths]:
    """Windows with any lengths, in order of time."""
    try:
        windows = decode(b"".join(read_pieces(path)))
        if not isinstance(windows, dict) or not all(map(_is_lengths, windows.items())):
            raise Drop("", "it must map seconds to input_tokens and output_tokens")
        found = [
            _Lengths(float(start), _spread(of["input_tokens"]), _spread(of.get("output_tokens")))
            for start, of in windows.items()
            if of["input_tokens"].strip() not in ("", "{}")
        ]
    except Drop as fault:
        raise WorkbenchError(f"{path} is no ServeGen dataset: {fault.detail or fault.reason}") from None
    if not found:
        raise WorkbenchError(f"{path} holds no length distribution")
    return sorted(found, key=lambda window: window.start)


def _spread(text: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """`{81: 0.00145, ...}`. Only literals are read, nothing is run."""
    try:
        spread = ast.literal_eval(text) if isinstance(text, str) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        spread = None
    if not isinstance(spread, dict) or not spread:
        raise Drop("", "a distribution is not a dict of length to probability")
    shares = list(spread.values())
    if not all(isinstance(share, int | float) and 0 <= share <= 1e9 for share in shares) or not sum(shares):
        raise Drop("", "a probability is not a number of 0 or more")
    return tuple(to_length("length", value) for value in spread), tuple(accumulate(map(float, shares)))
