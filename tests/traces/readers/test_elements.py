"""Elements of JSON arrays and documents, cut out of pieces of any size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import WorkbenchError
from traces.readers import elements as module
from traces.readers.elements import elements

HERE = Path("a.json")
TEXTS = st.text(st.sampled_from('ab"\\{}[],: \n\u2028'), max_size=8)
VALUES = st.recursive(
    st.integers(0, 99) | st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def pieces(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


@settings(deadline=None)
@given(values=st.lists(VALUES, max_size=6), size=st.integers(1, 30), indent=st.sampled_from([None, 1]))
def test_elements_of_an_array(values: list[Any], size: int, indent: int | None) -> None:
    raw = json.dumps(values, indent=indent, ensure_ascii=False).encode()
    found = list(elements(pieces(raw, size), HERE, array=True))
    assert [json.loads(element) for _, element, _ in found] == values
    assert [number for number, _, _ in found] == list(range(1, len(values) + 1))
    assert all(whole for _, _, whole in found)


@settings(deadline=None)
@given(values=st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=5), size=st.integers(1, 30))
def test_documents_one_after_the_other(values: list[Any], size: int) -> None:
    raw = "\n".join(json.dumps(value, indent=2) for value in values).encode()
    assert [json.loads(element) for _, element, _ in elements(pieces(raw, size), HERE, array=False)] == values


@settings(deadline=None)
@given(values=st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), min_size=1, max_size=5), cut=st.floats(0, 1))
def test_a_cut_array_loses_its_last_element_only(values: list[Any], cut: float) -> None:
    raw = json.dumps(values).encode()
    raw = raw[: round(cut * len(raw))]
    found = list(elements([raw], HERE, array=True))
    whole = [json.loads(element) for _, element, is_whole in found if is_whole]
    assert whole == values[: len(whole)]
    assert [is_whole for _, _, is_whole in found] in ([True] * len(whole), [True] * len(whole) + [False])


@pytest.mark.parametrize("bad", [b'{"a": "never ends}', b'{"a": }', b"{]", b'{"a" 1}'])
def test_a_broken_element_does_not_take_the_others_along(bad: bytes) -> None:
    raw = b'[{"n": 1},\n' + bad + b',\n{"n": 3},\n{"n": 4}]'
    found = [element for _, element, _ in elements([raw], HERE, array=True)]
    assert found[0] == b'{"n": 1}' and found[-1].endswith(b'{"n": 4}')


def test_an_element_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 1000)
    with pytest.raises(WorkbenchError, match="element 2 is longer than"):
        list(elements([b'[1,{"a": "', *[b"x" * 100] * 50], HERE, array=True))
