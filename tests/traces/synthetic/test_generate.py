"""What may be asked of presets, what is refused, and that the same question always has the same answer."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import WorkbenchError
from traces.readers.loading import read_workload
from traces.synthetic import PRESETS, generate, write_preset
from traces.workload import RequestSpec

NAMES = [name for name, preset in PRESETS.items() if preset.make is not None]
OPEN = [name for name in NAMES if not PRESETS[name].closed_loop]

WRITE_ALL = """
import hashlib, sys
from pathlib import Path
from traces.synthetic import PRESETS, write_preset
folder = Path(sys.argv[1])
for name in PRESETS:
    for path in write_preset(name, folder / f"{name}.jsonl", seed=7):
        print(name, hashlib.sha256(path.read_bytes()).hexdigest())
"""


def test_the_ten() -> None:
    assert list(PRESETS) == ["chat", "code", "batch", "rag", "longdoc", "agent", "reason", "fair", "bursty", "dirty"]
    assert all(preset.name == name and preset.shows for name, preset in PRESETS.items())


def test_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    made = []
    for hash_seed in ("0", "4711"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", WRITE_ALL, str(folder)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        made.append(run.stdout.splitlines())
    assert made[0] == made[1] and len(made[0]) == 10
    here = write_preset("chat", tmp_path / "here.jsonl", seed=7)[0]
    assert f"chat {hashlib.sha256(here.read_bytes()).hexdigest()}" == made[0][0]


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_workload(name: str) -> None:
    assert generate(name, n=50, seed=1).specs != generate(name, n=50, seed=2).specs


@pytest.mark.parametrize("name", NAMES)
def test_files_read_back_as_they_were(name: str, tmp_path: Path) -> None:
    written = write_preset(name, tmp_path / "x.jsonl", n=300, seed=3, len_scale=0.125)
    assert written == (tmp_path / "x.jsonl",)
    back = read_workload(written[0])
    assert back.report is not None and (back.report.read, back.report.kept) == (300, 300)
    assert not back.report.clamped and back.report.inversions == 0
    specs = generate(name, n=300, seed=3, len_scale=0.125).specs
    assert tuple(dataclasses.replace(spec, where="") for spec in back.specs) == specs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_any_number_of_rows(name: str, n: int) -> None:
    specs = generate(name, n=n).specs
    assert len(specs) == n and specs[0].arrival == 0.0
    assert len({spec.id for spec in specs}) == n
    before: set[str | None] = {None}
    for spec in specs:
        assert spec.after in before
        before.add(spec.id)


def test_default_number_of_rows_and_the_note() -> None:
    workload = generate("fair")
    assert len(workload.specs) == PRESETS["fair"].n == 1500
    assert workload.notes == ("preset fair arena, seed 0, 2.5 requests/s (that of the VTC arena sample)",)
    workload = generate("chat", seed=5, rate=0.5, len_scale=0.125, max_len=512, slo_scale=10)
    (note,) = workload.notes
    assert note == "preset chat, seed 5, 0.5 requests/s, lengths x 0.125, at most 512 tokens, deadlines x 10"


@pytest.mark.parametrize("name", OPEN)
def test_rate_and_duration(name: str) -> None:
    def span(**options: float) -> tuple[int, float]:
        specs = generate(name, **options).specs  # type: ignore[arg-type]
        return len(specs), max(spec.arrival for spec in specs)

    n, last = span(rate=4.0, duration=100.0)
    assert n == 400 and last == pytest.approx(100, rel=0.06)
    n, last = span(n=400, duration=50.0)
    assert n == 400 and last == pytest.approx(50, rel=0.06) and last <= 50
    n, last = span(duration=1000.0)
    assert n == pytest.approx((PRESETS[name].rate or 0) * 1000, abs=1)


def test_a_closed_loop_stops_in_time() -> None:
    specs = generate("agent", duration=300).specs
    assert 250 < specs[-1].arrival < 300
    assert len(generate("agent", duration=300, n=20).specs) == 20


@pytest.mark.parametrize("name", NAMES)
def test_scaled_lengths(name: str) -> None:
    whole, scaled = generate(name, n=400).specs, generate(name, n=400, len_scale=1 / 8).specs
    for one, other in zip(whole, scaled, strict=True):
        assert (one.id, one.arrival, one.after, one.client) == (other.id, other.arrival, other.after, other.client)
        assert abs((one.prompt_len or 0) / 8 - (other.prompt_len or 0)) <= 1
        assert abs((one.output_len or 0) / 8 - (other.output_len or 0)) <= 1
    check_pieces(scaled)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("max_len", [2, 256, 4096])
def test_the_window_holds_prompt_and_answer(name: str, max_len: int) -> None:
    cut = generate(name, n=400, max_len=max_len).specs
    for one, other in zip(generate(name, n=400).specs, cut, strict=True):
        prompt, output = other.prompt_len or 0, other.output_len or 0
        assert prompt >= 1 and output >= 1 and prompt + output <= max_len
        assert prompt <= (one.prompt_len or 0) and output <= (one.output_len or 0)
        if (one.prompt_len or 0) + (one.output_len or 0) <= max_len:
            assert one == other
        elif (one.output_len or 0) <= max_len // 2:
            assert output == one.output_len  # the prompt gave way
    check_pieces(cut)


def check_pieces(specs: tuple[RequestSpec, ...]) -> None:
    """The same content id has the same length everywhere, and every piece begins inside its prompt."""
    lens: dict[int, int] = {}
    for spec in specs:
        assert len(spec.prefix_ids) == len(spec.prefix_lens)
        assert sum(spec.prefix_lens[:-1]) < (spec.prompt_len or 0)
        for id, size in zip(spec.prefix_ids, spec.prefix_lens, strict=True):
            assert size >= 1 and abs(lens.setdefault(id, size) - size) <= 1


def test_deadlines_scale() -> None:
    assert {spec.deadline for spec in generate("rag", n=20, slo_scale=7.5).specs} == {15.0}
    assert {spec.deadline for spec in generate("reason", n=20, slo_scale=7.5).specs} == {None}


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("chatt", {}, "there is no preset 'chatt'; there are chat, code"),
        ("dirty", {}, "is a file of broken rows"),
        ("chat", {"n": 0}, "n: 0 is out of range, allowed: 1.."),
        ("chat", {"rate": 0.0}, "rate: 0.0 is out of range, allowed: above 0"),
        ("chat", {"duration": float("inf")}, "duration: inf is out of range"),
        ("chat", {"len_scale": -1.0}, "len_scale: -1.0 is out of range"),
        ("chat", {"slo_scale": float("nan")}, "slo_scale: nan is out of range"),
        ("chat", {"max_len": 1}, "max_len: 1 leaves no room"),
        ("chat", {"n": 5, "rate": 1.0, "duration": 9.0}, "any two of them give the third"),
        ("chat", {"rate": 1e6, "duration": 1e6}, "rate and duration make 1000000000000 rows"),
        ("chat", {"variant": "once"}, "variant: 'once' is none of preset 'chat'; this preset has none"),
        ("fair", {"variant": "pig"}, "variant: 'pig' is none of preset 'fair'; there are arena, hog"),
        ("agent", {"rate": 1.0}, "closed loop of 5 sessions"),
    ],
)
def test_refused(name: str, options: dict, says: str) -> None:
    with pytest.raises(WorkbenchError) as error:
        generate(name, **options)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for name in ("chat", "dirty"):
        with pytest.raises(WorkbenchError, match="cannot be written: No such file"):
            write_preset(name, tmp_path / "nowhere" / "x.jsonl")
    with pytest.raises(WorkbenchError, match="leave out n, rate"):
        write_preset("dirty", tmp_path / "x.jsonl", n=5, rate=2.0, seed=1)
    assert not list(tmp_path.iterdir())


def test_prompts_beyond_what_can_be_read_are_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"len_scale: 1e\+09 makes a prompt of"):
        generate("chat", n=5, len_scale=1e9)
    assert generate("chat", n=5, len_scale=1e9, max_len=100).specs
