"""Times as whole nanoseconds: numbers of a unit, text that holds one, dates.

Invariant: no digit is lost. A float passes through its shortest decimal form (4.314579 s is 4,314,579,000 ns), dates
through integers: a float of seconds since 1970 has 200 ns steps. Dates without a zone are taken as UTC; all that counts
is that they are taken alike.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from engine.errors import WorkbenchError
from traces.rows import Drop

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DIGITS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Digits after the point that still count in each unit."""
MOST_NS = 1 << 62
"""146 years either way, so that differences stay within 64 bits; dates lie around 1970."""
NO_TIME_STAMP = "no time stamp"
BAD_TIME = "time that cannot be read"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?: ?(Z|z|UTC)|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def check_unit(unit: str | None) -> None:
    if unit is not None and unit not in UNITS:
        raise WorkbenchError(f"--time-unit: {unit!r} is none of {', '.join(UNITS)}")


def to_ns(value: Any, unit: str) -> int:
    """Nanoseconds. `unit` counts for numbers (also in text), not for dates. Raises Drop."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise Drop(NO_TIME_STAMP)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Drop(BAD_TIME, f"{_short(value)} is no time")
    if isinstance(value, int):
        return _checked(value * UNITS[unit], value, unit)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Drop(BAD_TIME, f"{value} is not a finite number")
        return _decimal(repr(value), unit)
    text = value.strip()
    if len(text) <= 64:
        if NUMBER.fullmatch(text):
            return _decimal(text, unit)
        if date := _DATE.fullmatch(text):
            return _date(text, date)
        if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            raise Drop(BAD_TIME, f"{text} is not a finite number")
    raise Drop(BAD_TIME, f"{_short(text)} is neither a number nor a date such as 2023-11-16 18:15:46.68")


def zone_of(text: str) -> bool | None:
    """Whether a date says its zone; None when this is no date."""
    date = _DATE.fullmatch(text.strip()) if len(text) <= 64 else None
    return None if date is None else bool(date[8] or date[9])


def show_ns(ns: int, unit: str) -> str:
    """As the source had it: a date, or a number of its unit."""
    if unit != "date":
        number = Decimal(ns) / UNITS[unit or "s"]
        return f"{number.normalize():f}" if number else "0"
    days, left = divmod(ns, 86_400 * 10**9)
    year, month, day = _civil(days)
    seconds, fraction = divmod(left, 10**9)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{year:04}-{month:02}-{day:02} {clock}" + (f".{fraction:09}".rstrip("0") if fraction else "")


def show_span(seconds: float) -> str:
    """58m57s, 6d23h, 0.25s: two units at most."""
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    for size, name, next_size, next_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // next_size
            return f"{whole // size}{name}" + (f"{rest:02}{next_name}" if rest else "")
    return f"{whole}s"


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of the Gregorian calendar, counted from March so that a leap day comes last."""
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _date(text: str, match: re.Match[str]) -> int:
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] + (leap and month == 2):
        raise Drop(BAD_TIME, f"{text}: there is no such day")
    if hour > 23 or minute > 59 or second > 60:  # 60: a leap second
        raise Drop(BAD_TIME, f"{text}: there is no such time of day")
    seconds = days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    if match[9]:
        if int(match[10]) > 23 or int(match[11]) > 59:
            raise Drop(BAD_TIME, f"{text}: there is no such zone")
        offset = int(match[10]) * 3600 + int(match[11]) * 60
        seconds += -offset if match[9] == "+" else offset
    return _checked(seconds * 10**9 + int((match[7] or "").ljust(9, "0")), text, "", date=True)


def _decimal(text: str, unit: str) -> int:
    try:
        number = Decimal(text) * UNITS[unit]
    except InvalidOperation:
        raise Drop(BAD_TIME, f"{text} is too large a number") from None
    if number.adjusted() > 30:
        raise Drop(BAD_TIME, f"{text} {unit} is out of range")
    return _checked(int(number.to_integral_value()), text, unit)


def _checked(ns: int, shown: Any, unit: str, date: bool = False) -> int:
    if ns < 0 and not date:
        raise Drop(BAD_TIME, f"{_short(shown)} {unit} is negative")
    if abs(ns) > MOST_NS:
        hint = "" if date else "; --time-unit says which unit it is in"
        raise Drop(BAD_TIME, f"{_short(shown)} {unit}".rstrip() + f" is out of range{hint}")
    return ns


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
