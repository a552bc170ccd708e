"""The Prometheus text: by the format's rules, with the values the records have."""

from __future__ import annotations

import io

import pytest

from engine.records import Kind
from tests.traces.exports.prometheus_text import Family, parse
from tests.traces.exports.runs import Run, random_run
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.exports.prometheus import write_prometheus
from traces.metrics import Metrics

OTEL_TTFT = (
    "0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "7.5",
    "10.0", "+Inf",
)  # fmt: skip
OTEL_TPOT = (
    "0.01", "0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.4", "0.5", "0.75", "1.0", "2.5", "+Inf",
)  # fmt: skip
OTEL_DURATION = (
    "0.01", "0.02", "0.04", "0.08", "0.16", "0.32", "0.64", "1.28", "2.56", "5.12", "10.24", "20.48", "40.96",
    "81.92", "+Inf",
)  # fmt: skip


def families(run: Run) -> dict[str, Family]:
    out = io.StringIO()
    write_prometheus(run.info, iter(run.records), out)
    return {name.removeprefix("workbench_"): family for name, family in parse(out.getvalue()).items()}


def histogram(family: Family) -> tuple[dict[str, int], float]:
    """What is in each bucket by itself, those with nothing left out, and the sum."""
    inside, before, total = {}, 0, 0.0
    for sample, labels, value in family.samples:
        if sample.endswith("_bucket"):
            if value > before:
                inside[labels["le"]] = int(value) - before
            before = int(value)
        elif sample.endswith("_sum"):
            total = value
    return inside, total


def test_vllms_names_and_opentelemetrys_buckets() -> None:
    told = families(Run(info(), []))
    for name in (
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total",
        "request_success_total", "iteration_tokens_total", "time_to_first_token_seconds",
        "inter_token_latency_seconds", "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_inference_time_seconds",
    ):  # fmt: skip
        assert told[name].help
    for name, bounds in (
        ("time_to_first_token_seconds", OTEL_TTFT), ("inter_token_latency_seconds", OTEL_TPOT),
        ("request_time_per_output_token_seconds", OTEL_TPOT), ("e2e_request_latency_seconds", OTEL_DURATION),
    ):  # fmt: skip
        assert tuple(labels["le"] for _, labels, _ in told[name].samples[:-2]) == bounds


def test_a_run_by_hand() -> None:
    """Planned for 0.5 s, tokens at 1, 1.5 and 3: the gap of 0.5 s is on the bound of a bucket, so in it."""
    records = [
        record(0, 0.5, 1.0, arrived=(arrived("r", 0.5, 6, client="c"), arrived("w", 0.5, client="c")),
               scheduled=(scheduled("r", 6, kind=Kind.NEW),), tokens=(token("r"),), free=5, running=("r",)),
        record(1, 1.0, 1.5, scheduled=(scheduled("r"),), tokens=(token("r"),), free=5),
        record(2, 1.5, 3.0, scheduled=(scheduled("r"),), tokens=(token("r"),), free=3, num_waiting=1,
               finished=(finished("r", prompt_len=6, output_len=3, client="c"),)),
    ]  # fmt: skip
    told = families(Run(info(num_blocks=8), records))
    assert histogram(told["time_to_first_token_seconds"]) == ({"0.5": 1}, 0.5)
    assert histogram(told["inter_token_latency_seconds"]) == ({"0.5": 1, "2.5": 1}, 2.0)
    assert histogram(told["request_time_per_output_token_seconds"]) == ({"1.0": 1}, 1.0)
    assert histogram(told["e2e_request_latency_seconds"]) == ({"2.56": 1}, 2.5)
    assert histogram(told["request_queue_time_seconds"]) == ({"0.01": 1}, 0.0)
    assert histogram(told["iteration_tokens_total"]) == ({"1.0": 2, "8.0": 1}, 8.0)
    assert told["prompt_tokens_total"].value() == 6 and told["generation_tokens_total"].value() == 3
    assert told["num_requests_running"].value() == 0 and told["num_requests_waiting"].value() == 1
    assert told["kv_cache_usage_perc"].value() == pytest.approx(4 / 7)
    assert told["request_success_total"].value(finished_reason="length") == 1
    assert told["request_success_total"].value(finished_reason="stop") == 0
    assert told["client_requests_total"].value(client="c") == 2
    assert told["run_seconds"].value() == 2.5


@pytest.mark.parametrize("seed", range(4))
def test_the_same_as_the_metrics(seed: int) -> None:
    run = random_run(seed)
    told = families(run)
    metrics = Metrics(run.info)
    for it in run.records:
        metrics.add(it)
    summary = metrics.summary()
    for name, key in (
        ("time_to_first_token_seconds", "ttft_s"), ("inter_token_latency_seconds", "itl_s"),
        ("request_time_per_output_token_seconds", "tpot_s"), ("e2e_request_latency_seconds", "e2e_s"),
        ("request_queue_time_seconds", "queue_s"), ("request_requeue_time_seconds", "requeue_s"),
        ("request_prefill_time_seconds", "ttft_admit_s"),
    ):  # fmt: skip
        inside, total = histogram(told[name])
        assert sum(inside.values()) == summary[key]["n"] > 0
        assert total / summary[key]["n"] == pytest.approx(summary[key]["mean"], abs=1e-6), name
    tokens = summary["tokens"]
    assert told["prompt_tokens_total"].value() == tokens["prompt"]
    assert told["generation_tokens_total"].value() == tokens["output"]
    assert told["recomputed_tokens_total"].value() == tokens["recomputed"]
    assert told["num_preemptions_total"].value() == summary["preemptions"]
    for cause, count in summary["preemption"]["by_cause"].items():
        assert told["preemptions_by_cause_total"].value(cause=cause) == count
    assert told["swap_out_blocks_total"].value() == summary["preemption"]["swap"]["blocks_out"]
    assert told["iterations_total"].value() == summary["iterations"]
    ended = told["requests_ended_total"]
    assert ended.value(finished_reason="abort") == summary["requests"]["aborted"]
    assert ended.value(finished_reason="rejected") == summary["requests"]["rejected"] == 1


def test_labels_from_outside_are_escaped() -> None:
    name = 'a"b\\c\nd{e="f"} 1'
    records = [record(0, 0.0, 1.0, arrived=(arrived("r", 0.0, client=name), arrived("s", 0.0, client="\ud800")))]
    told = families(Run(info(), records))
    assert told["client_requests_total"].value(client=name) == 1
    assert told["client_requests_total"].value(client="?") == 1, "half a surrogate pair cannot be written"
