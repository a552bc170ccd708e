"""Lists of integers in few characters: token ids packed, block numbers as ranges."""

from __future__ import annotations

import binascii
import sys
from array import array
from collections.abc import Iterable, Sequence

_LITTLE = sys.byteorder == "little"


def pack(values: Sequence[int]) -> str | list[int]:
    """Base 64 of 2 or 3 little-endian bytes each, after a digit that says which; the list itself beyond 24 bits."""
    try:
        short = array("H", values)
    except OverflowError:
        return _pack_longer(values)
    if not _LITTLE:
        short.byteswap()
    return "2" + binascii.b2a_base64(short, newline=False).decode("ascii")


def _pack_longer(values: Sequence[int]) -> str | list[int]:
    if not values or min(values) < 0 or max(values) >= 1 << 24:
        return list(values)
    wide = array("I", values)
    if not _LITTLE:
        wide.byteswap()
    four = wide.tobytes()
    three = bytearray(3 * len(values))
    for byte in range(3):
        three[byte::3] = four[byte::4]
    return "3" + binascii.b2a_base64(three, newline=False).decode("ascii")


def unpack(packed: str | list[int]) -> list[int]:
    """ValueError when it is nothing that `pack` gives."""
    if isinstance(packed, list):
        return packed
    data = binascii.a2b_base64(packed[1:])
    if packed[:1] == "2" and len(data) % 2 == 0:
        values = array("H", data)
    elif packed[:1] == "3" and len(data) % 3 == 0:
        four = bytearray(len(data) // 3 * 4)
        for byte in range(3):
            four[byte::4] = data[byte::3]
        values = array("I", bytes(four))
    else:
        raise ValueError("no packed integers")
    if not _LITTLE:
        values.byteswap()
    return values.tolist()


def to_ranges(values: Iterable[int]) -> list[int]:
    """Numbers >= 0 in order; -n after one stands for the n numbers that follow it. [5, -2, 9] is 5 6 7 9."""
    out: list[int] = []
    expected, more = -1, 0
    for value in values:
        if value == expected:
            more += 1
        else:
            if more:
                out.append(-more)
                more = 0
            out.append(value)
        expected = value + 1
    if more:
        out.append(-more)
    return out


def from_ranges(ranges: Iterable[int], most: int = 1 << 22) -> list[int]:
    """ValueError when it stands for more than `most` numbers, or begins with a length."""
    out: list[int] = []
    for value in ranges:
        if value >= 0:
            out.append(value)
        elif not out or len(out) - value > most:
            raise ValueError("no ranges of numbers")
        else:
            out.extend(range(out[-1] + 1, out[-1] + 1 - value))
    return out


def to_short(values: Sequence[int]) -> str | list[int]:
    """Ranges, or packed where hardly any number follows another."""
    ranges = to_ranges(values)
    return ranges if len(ranges) < 8 or 2 * len(ranges) < len(values) else pack(values)


def from_short(short: str | list[int]) -> list[int]:
    return unpack(short) if isinstance(short, str) else from_ranges(short)


def flag_ranges(flags: Iterable[bool | int]) -> list[int]:
    """Where flags are set, as ranges, looked for in C: pools have many blocks."""
    data = bytes(flags)
    out: list[int] = []
    at = data.find(1)
    while at >= 0:
        end = data.find(0, at)
        if end < 0:
            end = len(data)
        out.append(at)
        if end - at > 1:
            out.append(at + 1 - end)
        at = data.find(1, end)
    return out


def splice(predicted: Sequence[object], real: Sequence[object]) -> tuple[int, int, Sequence[object]] | None:
    """(from where, how many go, what comes instead) that makes `real` of `predicted`; None when they are equal."""
    if predicted == real:
        return None
    most = min(len(predicted), len(real))
    start = 0
    while start < most and predicted[start] == real[start]:
        start += 1
    end = 0
    while end < most - start and predicted[-1 - end] == real[-1 - end]:
        end += 1
    return start, len(predicted) - start - end, real[start : len(real) - end]
