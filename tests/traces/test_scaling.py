"""Traces made to fit: each number by hand from the rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.errors import WorkbenchError
from engine.sampling_params import SamplingParams
from tests.traces.test_workload import Codec
from traces.fitting import Fitting
from traces.loops import closed_loop, loop_told, open_loop
from traces.prompts import PromptMaker
from traces.scaling import Scaling, duration, zipf
from traces.workload import RequestSpec, Workload, late_requests


def rows(*arrivals: float, **fields: Any) -> Workload:
    specs = [RequestSpec(f"r{n}", arrival=at, prompt_len=10, output_len=5, **fields) for n, at in enumerate(arrivals)]
    return Workload("w", tuple(specs))


def conversation() -> Workload:
    """Two sessions of three turns each, interleaved, and a row by itself."""
    return Workload(
        "w",
        (
            RequestSpec("a0", arrival=0.0, prompt_len=10, session="a"),
            RequestSpec("b0", arrival=5.0, prompt_len=10, session="b"),
            RequestSpec("a1", arrival=8.0, prompt_len=10, session="a", after="a0", delay=2.0),
            RequestSpec("x", arrival=9.0, prompt_len=10),
            RequestSpec("b1", arrival=20.0, prompt_len=10, session="b", after="b0", delay=1.0),
            RequestSpec("a2", arrival=30.0, prompt_len=10, session="a", after="a1", delay=4.0),
            RequestSpec("b2", arrival=40.0, prompt_len=10, session="b", after="b1", delay=1.0),
        ),
    )


def ids(workload: Workload) -> list[str]:
    return [spec.id for spec in workload.specs]


def test_nothing_asked_changes_nothing() -> None:
    workload = conversation()
    assert Scaling().apply(workload) == (workload, [])


def test_speed_shortens_arrivals_and_delays() -> None:
    workload, told = Scaling(speed=4.0).apply(conversation())
    assert [spec.arrival for spec in workload.specs] == [0.0, 1.25, 2.0, 2.25, 5.0, 7.5, 10.0]
    assert [spec.delay for spec in workload.specs] == [0.0, 0.0, 0.5, 0.0, 0.25, 1.0, 0.25]
    assert told == ["--speed 4: arrivals over 40 s come over 10 s"]


def test_a_window_is_counted_from_the_first_request_and_starts_anew() -> None:
    workload, told = Scaling(start=2.0, end=7.0).apply(rows(100.0, 101.0, 103.0, 106.5, 107.0))
    assert [(spec.id, spec.arrival) for spec in workload.specs] == [("r2", 0.0), ("r3", 3.5)]
    assert told == ["--from 2 --to 7: 3 of 5 rows left out (the trace spans 7 s)"]


def test_a_window_takes_the_sessions_that_begin_in_it() -> None:
    workload, _ = Scaling(start=4.0, end=9.0).apply(conversation())
    assert ids(workload) == ["b0", "b1", "b2"]
    assert [(spec.after, spec.delay) for spec in workload.specs] == [(None, 0.0), ("b0", 1.0), ("b1", 1.0)]


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (7, ["a0", "b0", "a1", "x", "b1", "a2", "b2"]),
        (6, ["a0", "b0", "a1", "b1", "a2", "b2"]),
        (5, ["a0", "a1", "a2"]),
        (3, ["a0", "a1", "a2"]),
        (2, ["a0", "a1"]),
        (1, ["a0"]),
    ],
)  # fmt: skip
def test_a_limit_takes_whole_sessions_or_part_of_the_first(limit: int, left: list[str]) -> None:
    workload, _ = Scaling(limit=limit).apply(conversation())
    assert ids(workload) == left


def test_a_limit_on_rows_that_wait_for_nobody_is_the_first_rows() -> None:
    workload, told = Scaling(limit=2).apply(rows(0.0, 1.0, 2.0))
    assert ids(workload) == ["r0", "r1"]
    assert told == ["--limit 2: the first 2 of 3 rows"]


def test_when_nothing_is_left_the_option_is_named() -> None:
    with pytest.raises(WorkbenchError) as caught:
        Scaling(start=50.0, end=60.0).apply(rows(0.0, 1.0, 10.0))
    assert str(caught.value) == (
        "w: no request is left: --from 50 --to 60: 3 of 3 rows left out (the trace spans 10 s)"
    )


def test_equal_stamps_are_spread_inside_their_tick() -> None:
    """Mooncake's clock ticks every 3 s, now and then a millisecond early."""
    workload, told = Scaling(spread=3.0).apply(rows(0.0, 0.0, 0.0, 2.999, 5.999, 5.999))
    third = 2.999 / 3
    assert [spec.arrival for spec in workload.specs] == pytest.approx([0.0, third, 2 * third, 2.999, 5.999, 7.499])
    assert told == ["--spread: 3 rows of 3 stamps moved within 3 s"]


def test_order_of_spread_and_speed() -> None:
    workload, _ = Scaling(spread=3.0, speed=3.0).apply(rows(0.0, 0.0, 9.0))
    assert [spec.arrival for spec in workload.specs] == [0.0, 0.5, 3.0]


# ---- lengths ----------------------------------------------------------------------------------------


def test_lengths_are_scaled_and_never_below_one() -> None:
    specs = (
        RequestSpec("a", prompt_len=1000, output_len=100, expected_output=80),
        RequestSpec("b", prompt_len=10, output_len=3),
        RequestSpec("t", prompt="text", max_tokens=9),
    )
    workload, told = Scaling(len_scale=0.02).apply(Workload("w", specs))
    a, b, text = workload.specs
    assert (a.prompt_len, a.output_len, a.expected_output) == (20, 2, 2)
    assert (b.prompt_len, b.output_len) == (1, 1)
    assert text == specs[2]
    assert told == [
        "--len-scale 0.02: lengths of 2 rows changed",
        "--len-scale: 1 prompts are text or ids and keep their length",
    ]


def test_scaled_prefixes_are_as_long_wherever_they_appear() -> None:
    """512-token blocks at 1/32: 16 tokens. Row one of the Mooncake sample has 6,758 tokens: 13 blocks and 102 more."""
    first = RequestSpec("a", prompt_len=6758, prefix_ids=tuple(range(14)), prefix_lens=(512,), output_len=500)
    full = RequestSpec("b", prompt_len=1024, prefix_ids=(0, 1), prefix_lens=(512,))
    tail = RequestSpec("c", prompt_len=1024 + 320, prefix_ids=(0, 1), prefix_lens=(512,))
    workload, _ = Scaling(len_scale=1 / 32).apply(Workload("w", (first, full, tail)))
    one, two, three = workload.specs
    assert one.prefix_lens == two.prefix_lens == (16,)
    assert one.prompt_len == 13 * 16 + round(16 * 102 / 512)
    assert len(one.prefix_ids) == -(-one.prompt_len // 16), "the rule of such traces: ceil(prompt / block) ids"
    assert two.prompt_len == 32 and three.prompt_len == 32 + 10


def test_scaled_prefixes_of_many_lengths() -> None:
    spec = RequestSpec("a", prompt_len=1461 + 200 + 50, prefix_ids=(7, 8), prefix_lens=(1461, 200))
    workload, _ = Scaling(len_scale=0.1).apply(Workload("w", (spec,)))
    (scaled,) = workload.specs
    assert scaled.prefix_lens == (146, 20) and scaled.prompt_len == 146 + 20 + 5


# ---- clients ----------------------------------------------------------------------------------------


def test_invented_clients_are_marked_steady_and_unequal_as_asked() -> None:
    workload = rows(*map(float, range(20_000)))
    given, told = Scaling(clients=10, client_skew=1.0).apply(workload)
    again, _ = Scaling(clients=10, client_skew=1.0).apply(workload)
    other, _ = Scaling(clients=10, client_skew=1.0, seed=1).apply(workload)
    assert given == again != other
    counts = Counter(spec.client for spec in given.specs)
    assert set(counts) == {f"invented-{n:02}" for n in range(1, 11)}
    harmonic = sum(1 / n for n in range(1, 11))
    for rank in (1, 2, 10):
        assert counts[f"invented-{rank:02}"] / 20_000 == pytest.approx(1 / rank / harmonic, rel=0.1)
    assert told == ["--clients: 20,000 rows given to 10 invented clients, Zipf 1"]


def test_a_session_has_one_invented_client() -> None:
    given, _ = Scaling(clients=50).apply(conversation())
    assert len({spec.client for spec in given.specs if spec.session == "a"}) == 1
    assert len({spec.client for spec in given.specs}) == 3


def test_an_invented_prefix_is_shared_by_a_clients_prompts_only() -> None:
    specs = (
        RequestSpec("a", prompt_len=100, client="x"),
        RequestSpec("b", prompt_len=30, client="x"),
        RequestSpec("c", prompt_len=100, client="y"),
        RequestSpec("own", prompt_len=100, client="x", prefix_ids=(1,), prefix_lens=(100,)),
    )
    workload, (told,) = Scaling(synth_prefix=40).apply(Workload("w", specs))
    maker = PromptMaker(Codec(), 10_000)
    a, b, c, own = (maker.make(spec, spec.prompt_len or 0) for spec in workload.specs)
    assert a[:16] == b[:16] and a[16:30] != b[16:30]  # the second block of b ends after 14 tokens: another content
    assert a[:16] != c[:16] and own[:16] != a[:16]
    assert told.startswith("--synth-prefix: 3 prompts begin with 40 invented tokens")


@pytest.mark.parametrize("text", ["zipf", "zipf:", "zipf:-1", "pareto:2", "zipf:nan", "zipf:1e9"])
def test_bad_skews(text: str) -> None:
    with pytest.raises(WorkbenchError, match="--client-skew"):
        zipf(text)


def test_durations() -> None:
    assert [duration("--spread", text) for text in ("3s", "500ms", "2m", "1h", "3", "1e3", "0")] == [
        3.0, 0.5, 120.0, 3600.0, 3.0, 1000.0, 0.0,
    ]  # fmt: skip
    for text in ("", "s", "-1", "3 days", "nan", "inf", "ms"):
        with pytest.raises(WorkbenchError, match="--spread"):
            duration("--spread", text)


# ---- what is too long -------------------------------------------------------------------------------


def fit(over: str, *lengths: tuple[int, int], max_prompt: int | None = None) -> tuple[list[tuple[int, int]], Fitting]:
    specs = [RequestSpec(f"r{n}", prompt_len=p, output_len=o, where=f"f:{n}") for n, (p, o) in enumerate(lengths)]
    fitting = Fitting(100, max_prompt=max_prompt, over=over)
    requests = late_requests(Workload("w", tuple(specs)), PromptMaker(Codec(), 1000), fitting=fitting)
    for request in requests:
        request.fill()
        assert len(request.token_ids) == request.num_prompt and request.expected_output == request.params.max_tokens
    return [(request.num_prompt, request.params.max_tokens or 0) for request in requests], fitting


def test_over_the_limit() -> None:
    lengths = ((90, 10), (90, 11), (150, 10), (20, 500), (300, 400))
    assert fit("reject", *lengths)[0] == list(lengths)
    assert fit("drop", *lengths)[0] == [(90, 10)]
    # The prompt is cut until the output fits, but not below a half; then the output.
    assert fit("clamp", *lengths)[0] == [(90, 10), (89, 11), (90, 10), (20, 80), (50, 50)]
    _, fitting = fit("drop", *lengths)
    (told,) = fitting.told()
    assert told == "over max_model_len 100: 4 requests (the largest has 700 tokens, the first is f:1), dropped"


def test_clamped_prompts_keep_their_beginning() -> None:
    maker = PromptMaker(Codec(), 1000)
    spec = RequestSpec("a", prompt_len=150, prefix_ids=(1, 2), prefix_lens=(40,), output_len=10)
    fitted = Fitting(100, over="clamp").fit(spec, maker.prompt(spec), SamplingParams(max_tokens=10))
    assert fitted is not None
    assert fitted[0].ids() == maker.make(spec, 150)[:90]


def test_max_prompt_cuts_first() -> None:
    lengths, fitting = fit("reject", (90, 5), (150, 5), (30, 5), max_prompt=60)
    assert lengths == [(60, 5), (60, 5), (30, 5)]
    assert fitting.told() == ["--max-prompt: 2 prompts cut to 60 tokens (the longest had 150)"]


def test_who_came_after_a_dropped_request_comes_after_its_leader() -> None:
    specs = (
        RequestSpec("a", prompt_len=5, output_len=5, arrival=3.0),
        RequestSpec("b", prompt_len=500, output_len=5, after="a", delay=2.0),
        RequestSpec("c", prompt_len=5, output_len=5, after="b", delay=1.0),
        RequestSpec("huge", prompt_len=500, output_len=5, arrival=7.0),
        RequestSpec("d", prompt_len=5, output_len=5, after="huge", delay=1.0),
    )
    requests = late_requests(
        Workload("w", specs), PromptMaker(Codec(), 1000), fitting=Fitting(100, over="drop")
    )  # fmt: skip
    assert [(r.id, r.after, r.delay, r.arrival) for r in requests] == [
        ("a", None, 0.0, 3.0), ("c", "a", 3.0, 0.0), ("d", None, 0.0, 7.0),
    ]  # fmt: skip


# ---- loops ------------------------------------------------------------------------------------------


def test_opening_a_loop_keeps_the_recorded_times() -> None:
    workload, told = open_loop(conversation())
    assert all(spec.after is None and spec.delay == 0 for spec in workload.specs)
    assert [spec.arrival for spec in workload.specs] == [0.0, 5.0, 8.0, 9.0, 20.0, 30.0, 40.0]
    assert told == ["--open-loop: 4 rows that wait for others come at their own times"]
    assert loop_told(workload) == ["open loop: every request comes at its own time"]


def test_opening_a_loop_of_rows_without_times() -> None:
    specs = (
        RequestSpec("a", arrival=7.0, prompt_len=1),
        RequestSpec("c", prompt_len=1, after="b", delay=2.0),
        RequestSpec("b", prompt_len=1, after="a", delay=1.0),
    )
    workload, told = open_loop(Workload("w", specs))
    assert [spec.arrival for spec in workload.specs] == [7.0, 10.0, 8.0]
    assert told[1].startswith("--open-loop: 2 rows have no time")


def test_closing_a_loop_ties_the_turns_of_each_session() -> None:
    specs = (
        RequestSpec("a0", arrival=0.0, prompt_len=1, session="a"),
        RequestSpec("b0", arrival=1.0, prompt_len=1, session="b"),
        RequestSpec("a1", arrival=5.0, prompt_len=1, session="a"),
        RequestSpec("a2", arrival=12.0, prompt_len=1, session="a"),
        RequestSpec("x", arrival=2.0, prompt_len=1),
    )
    workload, told = closed_loop(Workload("w", specs))
    assert [(spec.id, spec.after, spec.delay) for spec in workload.specs] == [
        ("a0", None, 0.0), ("b0", None, 0.0), ("a1", "a0", 5.0), ("a2", "a1", 7.0), ("x", None, 0.0),
    ]  # fmt: skip
    assert told[0].startswith("--closed-loop: 2 rows wait")
    assert loop_told(workload) == ["open loop: 3 rows; closed loop: 2 rows in 1 sessions wait for others"]
    assert loop_told(conversation()) == ["open loop: 3 rows; closed loop: 4 rows in 2 sessions wait for others"]
    assert "nothing is closed" in closed_loop(rows(0.0, 1.0))[1][0]


def test_a_limit_on_turns_that_stand_before_the_row_they_follow() -> None:
    """Turns without a time of their own come first in a file's order of arrival, and some are asked for twice."""
    specs = (
        RequestSpec("a2", arrival=0.0, prompt_len=10, after="a1"),
        RequestSpec("a1", arrival=0.0, prompt_len=10, after="a0"),
        RequestSpec("a0", arrival=1.0, prompt_len=10),
        RequestSpec("x", arrival=2.0, prompt_len=10),
    )
    assert ids(Scaling(limit=3).apply(Workload("w", specs))[0]) == ["a2", "a1", "a0"]
