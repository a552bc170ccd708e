"""JSON values, against Python's own reader (kinds 11, 18 and 19, and what JSON allows a text to hide)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.readers.jsontext import decode
from traces.rows import Drop

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(value=VALUES, ascii=st.booleans())
def test_values_are_those_of_the_text(value: Any, ascii: bool) -> None:
    try:
        raw = json.dumps(value, ensure_ascii=ascii).encode()
    except UnicodeEncodeError:
        return  # half a surrogate pair has no UTF-8
    got = decode(raw)
    assert got == value and type(got) is type(value)


def test_types_are_kept() -> None:
    """Kind 19: a reader of tables made 7 of "007"; kind 24: 64-bit ids keep all their bits."""
    value = decode(b'{"prompt": "007", "a": 7, "b": 7.0, "hash": 18446744073709551615, "big": 123456789012345678901}')
    assert value["prompt"] == "007" and type(value["a"]) is int and type(value["b"]) is float
    assert value["hash"] == 2**64 - 1 and value["big"] == 123456789012345678901


def test_line_separators_stay_inside_of_texts() -> None:
    assert decode('{"a": "x\u2028y\u2029z"}'.encode()) == {"a": "x\u2028y\u2029z"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1', "not JSON: Expecting ',' delimiter at column 8"),
        (b'{"a": 1} x', "not JSON: Extra data"),
        (b'{"a": 1, "b": 2, "a": 3}', 'field "a": given twice'),
        (b'{"a": [{"b": 1, "b": 2}]}', 'field "b": given twice'),
        (b'{"a": "x:y", "a": "z"}', 'field "a": given twice'),
        (b'{"\xff": 1}', "not UTF-8 text at byte 2"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8 text"),
        (b'{"a": "\\ud800"}', "field 'a': holds half of a surrogate pair at character 0"),
        (b'{"a": [{"b": "x\\udc00"}]}', "field 'a': holds half of a surrogate pair at character 1"),
        (b"[" * 100_000, "not readable JSON"),
        (b'{"a": ' * 50_000, "not readable JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not readable JSON"),
        (b'{"a": "\x01"}', "not JSON: Invalid control character"),
    ],
)
def test_faults_are_named(raw: bytes, said: str) -> None:
    with pytest.raises(Drop) as caught:
        decode(raw)
    assert said in str(caught.value)


def test_whole_surrogate_pairs_are_text() -> None:
    assert decode(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_what_is_not_finite_reaches_the_field_that_holds_it() -> None:
    value = decode(b'{"a": NaN, "b": -Infinity, "c": 1e400}')
    assert value["a"] != value["a"] and value["b"] == float("-inf") and value["c"] == float("inf")
