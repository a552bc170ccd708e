"""Lengths (kinds 10 and 11) and how many prefix ids a prompt needs (kind 22)."""

from __future__ import annotations

from typing import Any

import pytest

from traces.readers.lengths import MOST_TOKENS, covered, to_length
from traces.rows import Drop, ReadOptions


@pytest.mark.parametrize("value", [5, 5.0, "5", "5.0", "5.", " 5 ", "5e0", "05"])
def test_ways_to_write_five(value: Any) -> None:
    assert to_length("n", value) == 5


def test_zero_and_the_most() -> None:
    assert to_length("n", 0) == to_length("n", "0.0") == to_length("n", -0.0) == 0
    assert to_length("n", MOST_TOKENS) == MOST_TOKENS


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "no n"),
        ("", "no n"),
        (5.5, "n 5.5 is not a whole number"),
        ("5.5", "n 5.5 is not a whole number"),
        (-5, "n -5 is negative"),
        ("-5", "n -5 is negative"),
        (float("nan"), "n nan is not a finite number"),
        ("NaN", "n nan is not a finite number"),
        ("inf", "n inf is not a finite number"),
        ("1e999", "n inf is not a finite number"),
        (float("inf"), "n inf is not a finite number"),
        (True, "n True is not a number"),
        ("five", "n 'five' is not a number"),
        ("1_000", "n '1_000' is not a number"),
        ("٥", "is not a number"),
        ("0x5", "n '0x5' is not a number"),
        ([5], "n [5] is not a number"),
        (MOST_TOKENS + 1, "is above 16,777,216"),
        (10**400, "with more than 40 digits is above"),
        (1e300, "is above"),
    ],
)
def test_what_is_no_length(value: Any, said: str) -> None:
    with pytest.raises(Drop) as caught:
        to_length("n", value)
    assert said in str(caught.value)


def test_ids_have_to_reach_the_end_of_the_prompt() -> None:
    """6,955 tokens are 14 blocks of 512 in the first row of the Mooncake conversation trace; 502 of 16 are 32."""
    fourteen = tuple(range(14))
    assert covered(6955, fourteen, 512, ReadOptions()) == (fourteen, ())
    assert covered(502, tuple(range(32)), 16, ReadOptions())[1] == ()
    with pytest.raises(Drop, match="13 ids of 512 tokens do not reach 6955"):
        covered(6955, fourteen[:13], 512, ReadOptions())
    ids, why = covered(6955, fourteen[:13], 512, ReadOptions(short_ids="tail"))
    assert ids == fourteen[:13] and why
    ids, why = covered(6955, tuple(range(16)), 512, ReadOptions())
    assert ids == fourteen and why
