"""Stop strings: whatever the cuts, the text before the first match, and nothing held without need."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import WorkbenchError
from engine.stop import StopStrings

TEXT = st.text(alphabet="ab\n👩", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\n👩", min_size=1, max_size=5), max_size=4)


def before_first_match(text: str, stops: tuple[str, ...]) -> str:
    starts = [text.find(stop) for stop in stops if stop in text]
    return text[: min(starts)] if starts else text


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(c % (len(text) + 1) for c in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def run(pieces: list[str], stops: tuple[str, ...]) -> tuple[str, StopStrings]:
    filter_ = StopStrings(stops)
    shown = ""
    for piece in pieces:
        text, stopped = filter_.push(piece)
        shown += text
        if stopped:
            break
    else:
        shown += filter_.finish()
    return shown, filter_


@given(TEXT, STOPS, st.lists(st.integers(0, 100), max_size=10))
def test_same_as_cutting_the_whole_text(text: str, stops: list[str], cuts: list[int]) -> None:
    shown, filter_ = run(cut(text, cuts), tuple(stops))
    assert shown == before_first_match(text, tuple(stops))
    assert filter_.stopped == any(stop in text for stop in stops)


@given(TEXT, STOPS)
def test_holds_only_a_possible_match(text: str, stops: list[str]) -> None:
    filter_ = StopStrings(tuple(stops))
    shown = ""
    for count, character in enumerate(text, start=1):
        piece, stopped = filter_.push(character)
        shown += piece
        if stopped:
            break
        held = text[len(shown) : count]
        assert shown + held == text[:count]
        if held:  # some way to go on makes a stop that starts right here
            assert any(stop.startswith(held) for stop in stops) or any(stop in held for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "stops", "shown"),
    [
        (["Hello wor", "ld, bye"], ("world",), "Hello "),
        (["one ", "tw", "o thr", "ee"], ("two three",), "one "),  # over three pieces
        (["a END b"], ("END",), "a "),  # inside one piece: its tail goes too
        (["EN", "Dx"], ("END",), ""),  # at character 0
        (["EN", "Ex"], ("END",), "ENEx"),  # a prefix that fails
        (["aa", "ab"], ("aab",), "a"),  # the match starts inside the held prefix
        (["x\n", "\ny"], ("\n\n",), "x"),
        (["a👩", "\u200d👧b"], ("👩\u200d👧",), "a"),
        (["stop"], ("top", "st"), ""),
        (["abcd"], ("bc", "abcd"), ""),
        (["ab", "c"], ("bc", "abcd"), "a"),  # the longer one never comes
    ],
)
def test_cases(pieces: list[str], stops: tuple[str, ...], shown: str) -> None:
    assert run(pieces, stops)[0] == shown


def test_released_as_soon_as_disproved() -> None:
    filter_ = StopStrings(("END",))
    assert filter_.push("xE") == ("x", False)
    assert filter_.push("N") == ("", False)
    assert filter_.push("T") == ("ENT", False)


def test_names_the_match_and_ignores_what_follows() -> None:
    filter_ = StopStrings(("b", "bc"))
    assert filter_.push("abc") == ("a", True)
    assert filter_.matched == "bc"
    assert filter_.push("d") == ("", True)
    assert filter_.finish() == ""


def test_empty_stop_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="empty"):
        StopStrings(("a", ""))


def test_no_stops_pass_everything() -> None:
    assert StopStrings().push("text") == ("text", False)
