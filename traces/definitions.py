"""`DEFINITIONS`: what every figure means, in the words people are shown. The only place that says so.

The table under a printed summary, `--definitions`, docs/metrics.md and exports take their words from here. Keys are
paths in `Metrics.summary`, dots between the levels.
`python -m traces.definitions` prints the table of docs/metrics.md.
"""

from __future__ import annotations

from typing import NamedTuple

from traces.stats import KEEP, LEAST_FOR_P99


class Definition(NamedTuple):
    name: str
    """As it is printed."""
    unit: str
    """"" for words and for parts of 1."""
    text: str
    """Sentences. The first one stands for itself: it is what is shown under a table."""

    @property
    def short(self) -> str:
        return self.text.partition(". ")[0].rstrip(".")


DEFINITIONS: dict[str, Definition] = {
    "lag_s": Definition(
        "lag",
        "s",
        "Start of the step that took the request in - planned arrival. A request that falls due while an iteration "
        "runs is taken by the next one. The schedule of arrivals does not move with it: everything else counts from "
        "the planned arrival.",
    ),
    "queue_s": Definition(
        "queue",
        "s",
        "First scheduled - planned arrival. First scheduled is the start of the first iteration that ran any of its "
        "tokens. In a closed loop the planned arrival is the end of the request it follows, plus its delay.",
    ),
    "ttft_s": Definition(
        "TTFT",
        "s",
        "First sampled token - planned arrival. A token's time is the end of the iteration that sampled it, whether "
        "or not it already gives text.",
    ),
    "ttft_admit_s": Definition(
        "TTFT admit",
        "s",
        "First sampled token - first scheduled. TTFT = queue + TTFT admit. This is what a tool measures that sends "
        "its requests through a limit on concurrency and counts from the sending.",
    ),
    "requeue_s": Definition(
        "requeue",
        "s",
        "Waits after preemptions, until scheduled again or ended, added up. 0 for a request that was never preempted. "
        "Computing lost tokens again is not part of it.",
    ),
    "tpot_s": Definition(
        "TPOT",
        "s",
        "(Last token - first token) / (output tokens - 1), one value a request. Null below 2 tokens, and never "
        "counted as 0. A preemption is inside it: the tokens after it came later.",
    ),
    "itl_s": Definition(
        "ITL",
        "s",
        "Gaps between neighbouring tokens of a request, pooled over all completed requests. Long answers weigh more "
        f"than in TPOT. Percentiles are exact up to {KEEP:,} gaps, and within 0.5 % beyond; mean and max are exact.",
    ),
    "itl_max_s": Definition(
        "ITL max",
        "s",
        "Largest gap between tokens of a request, one value a request. The stall its reader felt; preemptions show "
        "here. Null below 2 tokens.",
    ),
    "e2e_s": Definition("E2E", "s", "Last token - planned arrival."),
    "norm_s": Definition(
        "norm",
        "s/token",
        "E2E / output tokens, one value a request. The normalised latency of the Orca and vLLM papers: queue and "
        "prompt are spread over the answer.",
    ),
    "percentiles": Definition(
        "p50 p90 p95 p99",
        "",
        "Linear interpolation between the two nearest values (numpy's default), over completed requests only. n is "
        f"how many values there are. No p99 below n = {LEAST_FOR_P99} (a dash, null in JSON): it would be the maximum "
        "under another name.",
    ),
    "with_failures": Definition(
        "with failures",
        "s",
        "The same percentiles over all planned requests, those that did not complete as +inf. That is failed, "
        "aborted, rejected and unfinished ones. In JSON +inf is the string inf; `inf` says how many there are, `n` "
        "counts them too.",
    ),
    "requests.planned": Definition(
        "planned", "requests", "All that were asked for: arrived, refused, or not yet due when the run ended."
    ),
    "requests.completed": Definition(
        "completed", "requests", "Ended by length, an end-of-sequence token or a stop. Only these enter latencies."
    ),
    "requests.failed": Definition("failed", "requests", "Ended by an error; `failures.failed` counts the reasons."),
    "requests.aborted": Definition("aborted", "requests", "Ended by a person or a client before they were complete."),
    "requests.rejected": Definition(
        "rejected", "requests", "Refused because they can never run; `failures.rejected` counts the reasons."
    ),
    "requests.unfinished": Definition(
        "unfinished", "requests", "Planned and without an end: the run ended, was interrupted or timed out first."
    ),
    "failures": Definition(
        "failures",
        "requests",
        "Why requests failed, were aborted or rejected. Numbers in a reason are told as N, so that the same reason is "
        "one line.",
    ),
    "arrivals": Definition(
        "arrivals",
        "requests",
        "Open loop: at a planned time, whatever the engine does. Closed loop: a delay after another request's end.",
    ),
    "tokens.prompt": Definition(
        "prompt tokens", "tokens", "Prompts read to their end, each once, cached tokens included."
    ),
    "tokens.cached": Definition(
        "cached tokens", "tokens", "Prompt tokens taken from the prefix cache when a request was first scheduled."
    ),
    "tokens.output": Definition(
        "output tokens",
        "tokens",
        "Every sampled token, end-of-sequence tokens included, whatever became of its request. Tokens computed again "
        "after a preemption are not sampled again.",
    ),
    "tokens.recomputed": Definition("recomputed tokens", "tokens", "Computed again after a preemption."),
    "wall_s": Definition("run", "s", "First planned arrival to the end of the last iteration."),
    "output_tok_s": Definition("output tok/s", "tokens/s", "All output tokens / run. Null when there are none."),
    "completed_output_tok_s": Definition(
        "completed tok/s", "tokens/s", "Output tokens of completed requests / run. Null when there are none."
    ),
    "total_tok_s": Definition(
        "total tok/s", "tokens/s", "(Prompt tokens, cached ones included, + all output tokens) / run."
    ),
    "completed_rps": Definition("completed/s", "requests/s", "Completed requests / run. Null when there are none."),
    "slo": Definition(
        "SLO",
        "",
        "Limits on TTFT and TPOT, the scale applied. A completed request is good when it is within both; one of a "
        "single token has no TPOT and is judged by TTFT alone. One that did not complete is never good.",
    ),
    "goodput_rps": Definition("goodput_rps", "requests/s", "Good requests / run."),
    "slo_attainment": Definition(
        "slo_attainment",
        "",
        "Good requests / planned requests. Of a client: of those it sent; of a priority class: of those that were "
        "taken in.",
    ),
    "preemption": Definition(
        "preemptions",
        "requests",
        "Times a running request lost its place, by recompute or by swap, and by cause. The milliseconds of recompute "
        "are an estimate: forward time x the recomputed share of the iteration's tokens. Those of swap are measured.",
    ),
    "clients.service": Definition(
        "service",
        "units",
        "w_p x prompt tokens processed + w_q x output tokens sampled (1 and 2), charged in the iteration that does "
        "it. What is computed again after a preemption is none. Cached prompt tokens count only if the knob "
        "count_cached_tokens says so.",
    ),
    "clients.demand": Definition(
        "demand",
        "units",
        "Service so far + what the requests that are here will still cost. Expected output where it is known, "
        "max_tokens otherwise.",
    ),
    "fairness.backlogged_difference": Definition(
        "difference",
        "units",
        "Most that one client's service got ahead of another's while both had requests in the queue. Counted from the "
        "moment both had; service over the client's weight.",
    ),
    "fairness.windows": Definition(
        "window difference",
        "units",
        "Sum over clients of min(most service of any - own service, |demand - own service|), per window. Mean, max "
        "and variance over windows in which anything was served.",
    ),
    "fairness.jain": Definition(
        "Jain index",
        "",
        "(sum x)^2 / (n sum x^2) of x = service / min(demand, fair share); 1 is fair. The fair share is max-min: what "
        "clients that want little leave over goes to the others. jain_mean and jain_min are over windows.",
    ),
    "fairness.jain_equal_share": Definition(
        "Jain index, equal share",
        "",
        "The same with the equal share of all service. Below 1 also when small clients got all they wanted and others "
        "shared what was left.",
    ),
    "fairness.priorities": Definition(
        "priority class",
        "",
        "Requests, largest queue age, deadlines and slo_attainment of each priority; a smaller number is more urgent.",
    ),
    "deadlines": Definition(
        "deadlines", "requests", "Met when the first token comes within the request's own deadline. Else missed."
    ),
    "starvation": Definition(
        "longest wait",
        "s",
        "Largest queue age: time in the queue since the planned arrival or the last preemption. Of any request, "
        "those included that still wait.",
    ),
}


def markdown() -> str:
    """The table as it stands in docs/metrics.md."""
    lines = ["| key | shown as | unit | definition |", "|---|---|---|---|"]
    for key, (name, unit, text) in DEFINITIONS.items():
        lines.append(f"| `{key}` | {name} | {unit or '-'} | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def as_dict() -> dict[str, dict[str, str]]:
    """For JSON: key to name, unit and text."""
    return {key: definition._asdict() for key, definition in DEFINITIONS.items()}


if __name__ == "__main__":
    print(markdown())
