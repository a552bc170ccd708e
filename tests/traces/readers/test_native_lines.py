"""Native rows by the block are the rows that are read one by one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.readers.help import rows_of
from traces.readers.native import Native
from traces.readers.native_lines import NativeLines

NAMES = st.sampled_from(["a", "b", "s:1", "  ", "", "\u3000", "x\ty", 7, None, 'q"', '":', "é"])
VALUES: dict[str, Any] = {
    "id": NAMES,
    "client": NAMES,
    "session": NAMES,
    "after": NAMES,
    "arrival": st.sampled_from(
        [0, 1.5, 4.314579, 1e5 + 0.1234567, 0.1234567895, 2.5e-9, 31e6 + 0.1, -1, "1", 1e9, None]
    )
    | st.floats(0, 1e6),
    "t_ns": st.sampled_from([0, 5, 5.0, 10**18, -1, None]),
    "prompt_len": st.sampled_from([1, 5, 5.0, 600, 1 << 20, (1 << 20) + 1, 0, 5.5, "5", None]),
    "output_len": st.sampled_from([1, 7, 0, None, 1 << 25]),
    "priority": st.sampled_from([0, -3, 2**31]),
    "deadline": st.sampled_from([0, 0.5, 2, None]),
    "turn": st.sampled_from([0, 3, -1]),
    "delay": st.sampled_from([0, 0.25, -1]),
    "prefix_ids": st.sampled_from([[1], [1, 2, 3], [], [2**64 - 1], [2**64], [True], [-1], None]),
    "prefix_lens": st.sampled_from([512, 2, 0, [2], None]),
    "max_tokens": st.just(3),
    "nonsense": st.just(1),
}
CLEAN = {"prompt_len": 9, "output_len": 2}
EXTRAS = st.lists(st.sampled_from(sorted(VALUES)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: VALUES[name] for name in names})
)
ODD = st.sampled_from(["", " ", '{"prompt_len": 1, "prompt_len": 2}', '{"prompt_len":1,"prompt_len"\t:2}', "{", "7"])


def both(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    at_once = rows_of(path, format="native", **options)
    with monkeypatch.context() as patch:
        patch.setattr(Native, "lines", None)
        assert rows_of(path, format="native", **options) == at_once


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(EXTRAS.map(lambda extra: json.dumps(CLEAN | extra)) | ODD, min_size=1, max_size=4),
    spaces=st.sampled_from([(", ", ": "), (",", ":"), (" , ", " : ")]),
    unit=st.sampled_from([None, "ms"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_rows(
    lines: list[str],
    spaces: tuple[str, str],
    unit: str | None,
    end: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path_factory.getbasetemp() / "native.jsonl"
    again = [json.dumps(json.loads(line), separators=spaces) if line[:3] == '{"o' else line for line in lines]
    path.write_text(end.join([*again, *['{"prompt_len": 1}'] * 5]))
    both(path, monkeypatch, time_unit=unit)


def test_rows_as_programs_write_them_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    lines = []
    for row in range(5000):
        fields = {"id": f"r{row}", "arrival": draw.random() * 1e6, "prompt_len": draw.randrange(1, 5000), "client": "c"}
        lines.append(json.dumps(fields | ({"output_len": 5} if row % 3 else {}) | ({"priority": 1} if row % 7 else {})))
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    assert NativeLines().columns(path.read_bytes(), "s") is not None
    both(path, monkeypatch)
    (path).write_text("\n".join(json.dumps({"prompt_len": 1000, "prefix_ids": [n, n + 1]}) for n in range(100)))
    columns = NativeLines().columns(path.read_bytes(), "s")
    assert columns is not None and columns.more[7] == {"prefix_ids": (7, 8), "prefix_lens": (512,)}
    both(path, monkeypatch)
