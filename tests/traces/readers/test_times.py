"""Times, against Python's own datetime and exact fractions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import WorkbenchError
from traces.readers.times import check_unit, show_ns, show_span, to_ns
from traces.rows import Drop

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "unit", "ns"),
    [
        (1178625, "ms", 1_178_625_000_000),
        (4.314579, "s", 4_314_579_000),
        ("4.314579", "s", 4_314_579_000),
        (" 82 ", "s", 82_000_000_000),
        ("19440110.0", "s", 19_440_110_000_000_000),
        (0.1, "ns", 0),
        ("1e3", "us", 1_000_000),
        (1787267980.0827403, "s", 1_787_267_980_082_740_300),
        ("1970-01-01 00:00:00", "s", 0),
        ("2023-11-16 18:15:46.6805900", "s", 1_700_158_546_680_590_000),
        ("2024-05-10 00:00:00+00:00", "s", 1_715_299_200_000_000_000),
        ("2024-10-15T12:00:00.269Z", "s", 1_728_993_600_269_000_000),
        ("2024-02-29 23:59:60.5 UTC", "s", 1_709_251_200_500_000_000),
        ("2024-05-10T02:00:00.1+0200", "s", 1_715_299_200_100_000_000),
    ],
)
def test_known_times(value: Any, unit: str, ns: int) -> None:
    assert to_ns(value, unit) == ns


@pytest.mark.parametrize("digits", range(10))
def test_fractions_of_any_length_keep_their_digits(digits: int) -> None:
    """Kind 4 and 5: with a fraction cut to two digits 1, 2, 9 and 11 ms became 0, 0, 0 and 10."""
    fraction = "123456789"[:digits]
    text = "2024-05-10 00:00:00" + (f".{fraction}" if digits else "") + "Z"
    assert to_ns(text, "s") - 1_715_299_200 * 10**9 == int((fraction + "0" * 9)[:9])


@given(
    moment=st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    minutes=st.integers(-14 * 60, 14 * 60),
    separator=st.sampled_from(" T"),
)
def test_dates_as_datetime_has_them(moment: datetime, minutes: int, separator: str) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    apart = zoned - EPOCH
    ns = (apart.days * 86_400 + apart.seconds) * 10**9 + apart.microseconds * 1000
    assert to_ns(zoned.isoformat(separator), "s") == ns
    shown = show_ns(ns, "date")
    assert to_ns(shown, "s") == ns


@given(number=st.integers(0, 10**9), places=st.integers(0, 12), unit=st.sampled_from(["s", "ms", "us", "ns"]))
def test_decimals_are_exact(number: int, places: int, unit: str) -> None:
    digits = str(number).rjust(places + 1, "0")
    text = f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else digits
    exact = Fraction(number, 10**places) * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    assert abs(to_ns(text, unit) - exact) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "no time stamp"),
        ("", "no time stamp"),
        ("  ", "no time stamp"),
        (True, "is no time"),
        ([1], "is no time"),
        (-1, "negative"),
        ("-0.5", "negative"),
        (float("nan"), "not a finite number"),
        (float("inf"), "not a finite number"),
        ("NaN", "not a finite number"),
        ("yesterday", "neither a number nor a date"),
        ("2023-13-01 00:00:00", "no such day"),
        ("2023-02-29 00:00:00", "no such day"),
        ("2023-02-28 24:00:00", "no such time of day"),
        ("2023-02-28 00:00:00+99:00", "no such zone"),
        ("2023-02-28 00:00:00.1234567890", "neither a number nor a date"),
        ("0001-01-01 00:00:00", "out of range"),
        ("1e999", "out of range"),
        (10**30, "--time-unit says which unit"),
        ("١٢", "neither a number nor a date"),
        ("1_000", "neither a number nor a date"),
    ],
)
def test_bad_times_are_dropped_with_a_reason(value: Any, said: str) -> None:
    with pytest.raises(Drop) as caught:
        to_ns(value, "s")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3537, "58m57s"), (0.25, "0.25s"), (59.5, "59.5s"), (604_800, "7d"), (86_400 + 7200, "1d02h"), (3600, "1h")],
)
def test_spans(seconds: float, shown: str) -> None:
    assert show_span(seconds) == shown


def test_shown_as_the_source_has_it() -> None:
    assert show_ns(1_178_625_000_000, "ms") == "1178625"
    assert show_ns(19_440_110_500_000_000, "s") == "19440110.5"
    assert show_ns(0, "s") == "0"
    assert show_ns(1_700_158_546_680_590_000, "date") == "2023-11-16 18:15:46.68059"


def test_units() -> None:
    with pytest.raises(WorkbenchError, match="--time-unit: 'h' is none of s, ms, us, ns"):
        check_unit("h")
