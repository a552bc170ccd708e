"""The end of a run as Prometheus text (exposition format 0.0.4).

Names follow vLLM's where the meaning is the same, with a prefix of our own. Latency histograms hold completed requests
only, like all our latencies; vLLM's hold every request that got as far. Buckets are cumulative and end with +Inf.
Memory: the buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import IO

from engine.host import EngineInfo
from engine.records import Cause, Iteration
from engine.request import FinishReason
from traces.exports.lives import REJECTED, Life, Lives
from traces.exports.run import Job, run_exports
from traces.exports.target import Out
from traces.stats import COMPLETED

PREFIX = "workbench_"
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
DURATION = tuple(round(0.01 * 2**n, 2) for n in range(14))
"""0.01 to 81.92: the OpenTelemetry GenAI conventions' buckets, as the two above."""
TOKENS = tuple(float(2**n) for n in range(15))
"""1 to 16384."""

HISTOGRAMS: dict[str, tuple[Sequence[float], str]] = {
    "time_to_first_token_seconds": (TTFT, "From planned arrival to the first token, of completed requests."),
    "inter_token_latency_seconds": (TPOT, "Gaps between tokens, pooled over completed requests."),
    "request_time_per_output_token_seconds": (
        TPOT,
        "(last token - first token) / (output tokens - 1), of completed requests with 2 or more.",
    ),
    "e2e_request_latency_seconds": (DURATION, "From planned arrival to the last token, of completed requests."),
    "request_queue_time_seconds": (DURATION, "From planned arrival to first scheduled, of completed requests."),
    "request_requeue_time_seconds": (DURATION, "In the queue after preemptions, of completed requests."),
    "request_prefill_time_seconds": (DURATION, "From first scheduled to the first token, of completed requests."),
    "request_decode_time_seconds": (DURATION, "From the first token to the last, of completed requests."),
    "request_inference_time_seconds": (DURATION, "From first scheduled to the last token, of completed requests."),
    "request_prompt_tokens": (TOKENS, "Prompt lengths of completed requests."),
    "request_generation_tokens": (TOKENS, "Output lengths of completed requests."),
    "iteration_tokens_total": (TOKENS, "Tokens computed in an iteration that ran the model."),
    "iteration_duration_seconds": (DURATION, "Length of an iteration that ran the model."),
}


def write_prometheus(info: EngineInfo, iterations: Iterable[Iteration], out: Out, *, force: bool = False) -> None:
    run_exports(info, iterations, [Job(PrometheusText, out)], force=force)


class Histogram:
    """Counts by bucket; a value equal to a bound is in it."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float | None) -> None:
        """None is nothing measured."""
        if value is not None:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value


class PrometheusText:
    """See `Export`. `file` takes text and gets all of it at the end."""

    def __init__(self, info: EngineInfo, file: IO[str]) -> None:
        self._info, self._file = info, file
        self._histograms = {name: Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()}
        self._ended: Counter[str] = Counter(dict.fromkeys((*FinishReason, REJECTED), 0))
        self._preempted: Counter[str] = Counter(dict.fromkeys(Cause, 0))
        self._clients: dict[str, Counter[str]] = {}
        self._totals: Counter[str] = Counter()
        self._swap_s = 0.0
        self._last: Iteration | None = None
        self._knobs = info.config.values()
        self._model = (info.model, info.dtype)

    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        self._last = it
        if it.rebuilt is not None:
            self._model = (it.rebuilt.model, it.rebuilt.dtype)
            self._knobs.update(it.rebuilt.knobs)
        self._knobs.update({change.name: change.new for change in it.knobs})
        for victim in it.preempted:
            self._preempted[victim.cause] += 1
            self._totals["swapped"] += victim.swapped_blocks > 0
        for item in it.scheduled:
            self._totals["recomputed"] += item.recomputed
        for life in lives.arrived:
            self._client(life)["requests"] += 1
        totals = self._totals
        totals["generation"] += len(it.tokens)
        totals["queries"] += it.prefix.queries
        totals["hits"] += it.prefix.hits
        totals["out_blocks"] += it.copied.out_blocks
        totals["in_blocks"] += it.copied.in_blocks
        totals["knob_changes"] += len(it.knobs)
        self._swap_s += it.timings.swap
        if it.executed:
            totals["iterations"] += 1
            self._histograms["iteration_tokens_total"].observe(it.total_tokens)
            self._histograms["iteration_duration_seconds"].observe(it.duration)
        for change in lives.changes:
            if change.new == "decode" and change.life.first_token == change.at:
                totals["prompt"] += change.life.row.prompt_len or 0
        for life in lives.ended:
            self._end(life)

    def finish(self, lives: Lives) -> None:
        it, write = self._last, self._gauge
        model, dtype = self._model
        labels = {"model": model, "dtype": dtype, "device": self._info.device}
        write("info", "What ran; always 1.", 1, labels)
        for name, text, value in (
            ("num_requests_running", "Requests admitted, at the end.", len(it.running) if it else 0),
            ("num_requests_waiting", "Requests in the queue, at the end.", it.num_waiting if it else 0),
            ("num_requests_swapped", "Requests swapped out, at the end.", len(it.swapped) if it else 0),
            ("kv_cache_usage_perc", "Share of the KV blocks in use at the end, 0 to 1.", _usage(it, lives)),
            ("kv_blocks_used", "KV blocks in use at the end.", lives.used_blocks(it) if it else 0),
            ("kv_blocks", "KV blocks that requests can have.", lives.usable_blocks(it) if it else lives.allocated - 1),
            ("run_seconds", "From the first record or arrival to the end.", lives.now - (lives.start or 0.0)),
        ):
            write(name, text, value)
        self._family("knob", "gauge", "Knobs that are numbers, as they are at the end.")
        for name, knob in self._knobs.items():
            if isinstance(knob, int | float):
                self._sample("knob", float(knob), {"name": name})
        totals = self._totals
        for name, text, total in (
            ("prompt_tokens", "Prompt tokens of prompts that were read to their end, cached ones included.", "prompt"),
            ("generation_tokens", "Tokens sampled.", "generation"),
            ("recomputed_tokens", "Tokens computed again after a preemption.", "recomputed"),
            ("prefix_cache_queries", "Tokens looked up in the prefix cache.", "queries"),
            ("prefix_cache_hits", "Tokens found in the prefix cache.", "hits"),
            ("swapped_out_requests", "Preemptions that kept the KV in the swap pool.", "swapped"),
            ("swap_out_blocks", "Blocks copied to the swap pool.", "out_blocks"),
            ("swap_in_blocks", "Blocks copied back.", "in_blocks"),
            ("knob_changes", "Changes of knobs.", "knob_changes"),
            ("iterations", "Iterations that ran the model.", "iterations"),
        ):
            self._counter(name, text, totals[total])
        self._counter("swap_seconds", "Time spent copying KV.", self._swap_s)
        self._counter("num_preemptions", "Preemptions.", sum(self._preempted.values()))
        self._counters("preemptions_by_cause", "Preemptions by cause.", "cause", self._preempted)
        self._counters(
            "request_success",
            "Completed requests by reason.",
            "finished_reason",
            {str(reason): self._ended[reason] for reason in COMPLETED},
        )
        self._counters("requests_ended", "All ends of requests by reason.", "finished_reason", self._ended)
        for name, text in (
            ("requests", "Requests that arrived, by client."),
            ("ended", "Requests that ended, refused ones included, by client."),
            ("generation_tokens", "Tokens sampled for requests that ended, by client."),
        ):
            values = {client: counts[name] for client, counts in self._clients.items()}
            self._counters(f"client_{name}", text, "client", values)
        for name, histogram in self._histograms.items():
            self._histogram(name, HISTOGRAMS[name][1], histogram)

    def _client(self, life: Life) -> Counter[str]:
        return self._clients.setdefault(life.row.client, Counter())

    def _end(self, life: Life) -> None:
        row, client = life.row, self._client(life)
        self._ended[str(row.finish_reason)] += 1
        client["ended"] += 1
        client["generation_tokens"] += life.output_len
        if row.finish_reason not in COMPLETED:
            return
        for name, value in (
            ("time_to_first_token_seconds", row.ttft_s),
            ("request_time_per_output_token_seconds", row.tpot_s),
            ("e2e_request_latency_seconds", row.e2e_s),
            ("request_queue_time_seconds", row.queue_s),
            ("request_requeue_time_seconds", row.requeue_s),
            ("request_prefill_time_seconds", life.prefill_s),
            ("request_decode_time_seconds", life.decode_s),
            ("request_inference_time_seconds", life.inference_s),
            ("request_prompt_tokens", row.prompt_len),
            ("request_generation_tokens", life.output_len),
        ):
            self._histograms[name].observe(value)
        gaps = self._histograms["inter_token_latency_seconds"]
        for earlier, later in pairwise(row.times):
            gaps.observe(later - earlier)

    # ---- the format -------------------------------------------------------------------------------

    def _family(self, name: str, type: str, text: str) -> None:
        escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
        self._file.write(f"# HELP {PREFIX}{name} {escaped}\n# TYPE {PREFIX}{name} {type}\n")

    def _sample(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        inside = ",".join(f'{key}="{_escape(text)}"' for key, text in (labels or {}).items())
        self._file.write(
            f"{PREFIX}{name}{{{inside}}} {_number(value)}\n" if inside else f"{PREFIX}{name} {_number(value)}\n"
        )

    def _gauge(self, name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        self._family(name, "gauge", text)
        self._sample(name, value, labels)

    def _counter(self, name: str, text: str, value: float) -> None:
        self._family(f"{name}_total", "counter", text)
        self._sample(f"{name}_total", value)

    def _counters(self, name: str, text: str, label: str, values: Mapping[str, int]) -> None:
        self._family(f"{name}_total", "counter", text)
        for key, value in values.items():
            self._sample(f"{name}_total", value, {label: str(key)})

    def _histogram(self, name: str, text: str, histogram: Histogram) -> None:
        self._family(name, "histogram", text)
        counts = list(accumulate(histogram.counts))
        for bound, count in zip((*histogram.bounds, None), counts, strict=True):
            self._sample(f"{name}_bucket", count, {"le": "+Inf" if bound is None else _number(bound)})
        self._sample(f"{name}_sum", histogram.sum)
        self._sample(f"{name}_count", counts[-1])


def _usage(it: Iteration | None, lives: Lives) -> float:
    return lives.used_blocks(it) / max(1, lives.usable_blocks(it)) if it else 0.0


def _escape(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
