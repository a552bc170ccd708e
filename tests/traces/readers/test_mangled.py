"""Every format, cut and damaged at random: an account of every row or one clear line, never a traceback."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import WorkbenchError
from tests.traces.readers.help import DATA
from tests.traces.readers.test_csv_readers import BLIS_HEADER, BLIS_ROWS
from traces.readers import open_trace, read_workload
from traces.rows import ReadOptions

NATIVE = b"""{"id": "a", "t_ns": 5, "prompt_len": 30, "prefix_ids": [1, 2], "output_len": 4, "session": "s", "turn": 1}
{"id": "b", "prompt": "x", "after": "a", "delay": 0.5, "client": "c", "priority": 1, "deadline": 2, "max_tokens": 3}
{"messages": [{"role": "user", "content": "hi \\u00e9"}], "stop": ["x"], "seed": 4, "arrival": 1.5}
"""
TRACELAB = b"""id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len
s1,128,20,0,0,1500,0
s1,300,10,2000,1,0,128
"""
SAMPLES = {
    "native": NATIVE,
    "tracelab": TRACELAB,
    "blis": ("---\n" + BLIS_HEADER + "---\n" + "\n".join(BLIS_ROWS)).encode(),
}


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


for _path in sorted(DATA.glob("*")):
    if _path.is_file() and _path.suffix != ".md":
        SAMPLES[_path.name] = _unpacked(_path)[:3000]

EDITS = st.lists(
    st.tuples(
        st.floats(0, 1), st.integers(0, 20), st.binary(max_size=6) | st.sampled_from([b"\n", b",", b'"', b"}", b"NaN"])
    ),
    max_size=6,
)


@pytest.mark.parametrize("name", sorted(SAMPLES))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=EDITS,
    cut=st.floats(0.02, 1),
    options=st.builds(
        ReadOptions,
        failed=st.sampled_from(["keep", "drop", "min1"]),
        short_ids=st.sampled_from(["reject", "tail"]),
        time_unit=st.sampled_from([None, "ms"]),
        client_from=st.sampled_from([None, None, "session"]),
    ),
    pack=st.sampled_from([bytes, gzip.compress]),
)
def test_mangled_files(
    name: str,
    edits: list[tuple[float, int, bytes]],
    cut: float,
    options: ReadOptions,
    pack: type[bytes],
    tmp_path: Path,
) -> None:
    data = SAMPLES[name]
    for at, length, instead in edits:
        place = round(at * len(data))
        data = data[:place] + instead + data[place + length :]
    path = tmp_path / name.removesuffix(".gz")
    if name.endswith("-dataset.json"):  # the half that says nothing of how many requests there are
        shutil.copy(DATA / "deepseek-r1_chunk-9-trace.csv", tmp_path)
    path.write_bytes(pack(data[: round(cut * len(data))]))
    try:
        trace = open_trace(path, options)
        kept = 0
        for chunk in trace.chunks():
            kept += len(chunk)
            assert trace.report.read == trace.report.kept + sum(trace.report.dropped.values())
        assert kept == trace.report.kept
        workload = read_workload(path, options)
    except WorkbenchError as error:
        assert str(path.parent) in str(error) or "--" in str(error)
    else:
        assert len(workload.specs) == kept
        assert workload.specs[0].arrival >= 0
        assert len({spec.id for spec in workload.specs}) == kept
        ids = {spec.id for spec in workload.specs}
        assert all(spec.after is None or spec.after in ids for spec in workload.specs)
        for spec in workload.specs:
            if not spec.failed:
                spec.sampling()
