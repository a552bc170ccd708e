"""The summary of a run for people: totals, latencies, clients. Fits 80 columns. A dash is "nothing was measured".

What the figures mean stands beneath, in the words of traces/definitions.py.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from traces.definitions import DEFINITIONS
from traces.metrics import LATENCIES, WITH_FAILURES
from traces.stats import INFINITE, LEAST_FOR_P99
from workbench.text import clean, seconds

SHOWN_CLIENTS = 12
NAME_CELLS = 14
SHOWN_REASONS = 5
PERCENTILES = ("p50", "p90", "p95", "p99")


def summary_tables(summary: dict[str, Any], definitions: bool = False) -> list[Any]:
    """What `Metrics.summary` says, as things rich can print. definitions: all of them in full, at the end."""
    requests, tokens, kv = summary["requests"], summary["tokens"], summary["kv"]
    totals = Table(box=None, show_header=False, pad_edge=False)
    totals.add_column(style="bold", no_wrap=True)
    totals.add_column()
    ended = ", ".join(
        f"{requests[name]} {name}" for name in list(requests)[1:] if requests[name] or name == "completed"
    )
    rows = (
        ("model", f"{summary['model']} on {summary['device']} in {summary['dtype']}"),
        ("requests", f"{requests['planned']} planned: {ended}"),
        *([("reasons", reasons)] if (reasons := _reasons(summary["failures"])) else []),
        ("arrivals", _arrivals(summary)),
        ("tokens", f"{tokens['prompt']} prompt ({tokens['cached']} cached), {tokens['output']} output"),
        (
            "throughput",
            f"{_rate(summary['output_tok_s'])} output tok/s ({_rate(summary['completed_output_tok_s'])} of completed "
            f"requests), {_rate(summary['total_tok_s'])} total tok/s, {_rate(summary['completed_rps'])} completed/s",
        ),
        *([("goodput", _goodput(summary))] if summary["slo"] is not None else []),
        ("run", f"{summary['iterations']} iterations in {_figure(summary['wall_s'])} s"),
        ("preemptions", _preemptions(summary)),
        ("slot-steps", _slot_steps(summary["slot_steps"])),
        ("KV blocks", f"at most {kv['peak_used']} used, the pool has {kv['num_blocks'] - 1}"),
        ("longest wait", _longest_wait(summary)),
        *([("fairness", _fairness(summary["fairness"]))] if len(summary["clients"]) > 1 else []),
    )
    for name, text in rows:
        totals.add_row(name, Text(text))
    tables: list[Any] = [totals, Text(""), _latency_table(summary)]
    if requests["planned"] > requests["completed"]:
        tables += [Text(""), _failures_table(summary)]
    if summary["clients"]:
        tables += [Text(""), _client_table(summary["clients"])]
        if len(summary["clients"]) > SHOWN_CLIENTS:
            tables.append(
                Text(f"and {len(summary['clients']) - SHOWN_CLIENTS} more clients with less service (--json)")
            )
    if len(summary["fairness"]["priorities"]) > 1:
        tables += [Text(""), _class_table(summary["fairness"]["priorities"])]
    return [*tables, Text(""), definitions_table() if definitions else _legend()]


def definitions_table() -> Any:
    """Every definition in full."""
    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold", max_width=16)
    table.add_column("unit", max_width=10)
    table.add_column("definition")
    for name, unit, text in DEFINITIONS.values():
        table.add_row(name, unit or "-", Text(text))
    return table


def _legend() -> Any:
    """What stands in the latency table, a sentence each."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for key in ("lag_s", "queue_s", "ttft_s", "ttft_admit_s", "requeue_s", "tpot_s", "itl_s", "itl_max_s", "e2e_s",
                "norm_s", "percentiles"):  # fmt: skip
        definition = DEFINITIONS[key]
        name = "p50 ... p99" if key == "percentiles" else definition.name
        table.add_row(Text(name, "dim"), Text(definition.short, "dim"))
    table.add_row(Text("p99", "dim"), Text(f"a dash below n = {LEAST_FOR_P99}; --definitions tells all", "dim"))
    return table


def _latency_table(summary: dict[str, Any]) -> Any:
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("seconds", style="bold", no_wrap=True)
    columns = ("mean", *PERCENTILES, "max", "n")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    names = list(LATENCIES)
    names.insert(names.index("itl_max_s"), "itl_s")
    for key in names:
        values = summary[key]
        table.add_row(DEFINITIONS[key].name, *(str(values[c]) if c == "n" else _seconds(values[c]) for c in columns))
    return table


def _failures_table(summary: dict[str, Any]) -> Any:
    """Percentiles over all planned requests."""
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("all planned", style="bold", no_wrap=True)
    for column in (*PERCENTILES, "n", "of them +inf"):
        table.add_column(column, justify="right", no_wrap=True)
    for key in WITH_FAILURES:
        values = summary["with_failures"][key]
        shown = ("+inf" if values[c] == INFINITE else _seconds(values[c]) for c in PERCENTILES)
        table.add_row(DEFINITIONS[key].name, *shown, str(values["n"]), str(values["inf"]))
    return table


def _class_table(classes: dict[str, Any]) -> Any:
    """Priority classes, the most urgent first."""
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("priority", style="bold", no_wrap=True)
    for name in ("done", "longest wait", "deadlines met", "SLO attained"):
        table.add_column(name, justify="right", no_wrap=True)
    for priority, group in classes.items():
        table.add_row(
            priority,
            f"{group['completed']}/{group['arrived']}",
            seconds(group["max_queue_age_s"]),
            _share(group["deadlines"]["attainment"]),
            _share(group["slo_attainment"]),
        )
    return table


def _client_table(clients: dict[str, Any]) -> Any:
    """Those with most service. Preempted: requests of the client, and other requests for the sake of its own."""
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("\nclient", style="bold", no_wrap=True)
    names = ("requests\ndone", "\nservice", "\nshare", "longest\nwait", "TTFT\np50", "TTFT\np99", "ITL\np50")
    for name in (*names, "preempted\n/ caused"):
        table.add_column(name, justify="right", no_wrap=True)
    most = sorted(clients.items(), key=lambda item: -item[1]["service"])
    for name, account in most[:SHOWN_CLIENTS]:
        requests, share = account["requests"], account["share"]
        shown = Text(clean(name))
        shown.truncate(NAME_CELLS, overflow="ellipsis")
        table.add_row(
            shown,
            f"{requests['completed']}/{requests['arrived'] + requests['rejected']}",
            f"{account['service']:,.0f}",
            "-" if share is None else f"{share:.1%}",
            seconds(account["max_queue_age_s"]),
            seconds(account["ttft_s"]["p50"]),
            seconds(account["ttft_s"]["p99"]),
            seconds(account["itl_s"]["p50"]),
            f"{account['preemptions']['suffered']} / {account['preemptions']['caused']}",
        )
    return table


def _reasons(failures: dict[str, dict[str, int]]) -> str:
    """The most frequent ones, one a line."""
    told = [(count, how, why) for how, kinds in failures.items() for why, count in kinds.items()]
    told.sort(key=lambda reason: -reason[0])
    lines = [f"{count} {how}: {clean(why)}" for count, how, why in told[:SHOWN_REASONS]]
    if len(told) > SHOWN_REASONS:
        lines.append(f"and {len(told) - SHOWN_REASONS} more (--json)")
    return "\n".join(lines)


def _arrivals(summary: dict[str, Any]) -> str:
    arrivals, lag = summary["arrivals"], summary["lag_s"]
    kinds = [f"{arrivals['open_loop']} open loop"]
    if arrivals["closed_loop"]:
        kinds.append(f"{arrivals['closed_loop']} closed loop (after another's end)")
    late = (
        ""
        if not lag["n"]
        else f"; taken in {_seconds(lag['mean'])} s late on average, {_seconds(lag['max'])} s at most"
    )
    return ", ".join(kinds) + late


def _goodput(summary: dict[str, Any]) -> str:
    slo = summary["slo"]
    limits = [
        f"{name} <= {slo[key] * 1000:,.6g} ms"
        for name, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"))
        if slo[key] is not None
    ]
    scaled = f" x {slo['scale']:g}" if slo["scale"] != 1 else ""
    return (
        f"goodput_rps {_rate(summary['goodput_rps'])}, slo_attainment {_share(summary['slo_attainment'])}: "
        f"{summary['good']} of {summary['requests']['planned']} planned requests within {' and '.join(limits)} "
        f"({slo['name']}{scaled})"
    )


def _preemptions(summary: dict[str, Any]) -> str:
    again, swap = summary["preemption"]["recompute"], summary["preemption"]["swap"]
    if not summary["preemptions"]:
        return "0"
    parts = []
    if again["count"] or again["tokens"]:
        parts.append(f"{again['count']} by recompute: {again['tokens']:,} tokens again, about {again['ms']:,.1f} ms")
    if swap["count"]:
        parts.append(
            f"{swap['count']} by swap: {swap['blocks_out']:,} blocks out, {swap['blocks_in']:,} copied back, "
            f"{swap['bytes'] / (1 << 20):,.1f} MiB, {swap['ms']:,.1f} ms"
        )
    return "\n".join(parts)


def _slot_steps(slots: dict[str, int]) -> str:
    if not slots["total"]:
        return "-"
    padding = f"; {slots['padding']:,} prompt tokens of padding" if slots["padding"] else ""
    return f"{slots['used']:,} of {slots['total']:,} used ({slots['used'] / slots['total']:.1%}){padding}"


def _longest_wait(summary: dict[str, Any]) -> str:
    starved = summary["starvation"]
    if starved["seconds"] is None:
        return "-"
    return f"{_seconds(starved['seconds'])} s, request {clean(starved['id'])} of {clean(starved['client'])}"


def _fairness(fairness: dict[str, Any]) -> str:
    """In units of service over weight."""
    found, windows = fairness["backlogged_difference"], fairness["windows"]
    if found["max"] is None:
        text = "no two clients were backlogged at once"
    else:
        text = f"at most {found['max']:,.0f} units apart while both were backlogged"
        if found["max"]:
            text += f" ({clean(found['ahead'])} ahead of {clean(found['behind'])})"
    if windows["n"] > 1:
        text += (
            f"\n{windows['mean']:,.0f} apart in a window of {windows['length_s']:g} s, at most {windows['max']:,.0f}, "
            f"variance {windows['variance']:,.0f}"
        )
        # Over a run in which everybody got all he asked for it is 1 whatever the policy: windows tell them apart.
        if windows["jain_mean"] is not None:
            text += f"\nJain index in a window {_index(windows['jain_mean'])}, at least {_index(windows['jain_min'])}"
    return f"{text}\ncached prompt tokens {'count' if fairness['count_cached'] else 'do not count'} as service"


def _index(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _rate(value: float | None) -> str:
    """Per second. Nothing that could be counted is n/a, not 0."""
    return "n/a" if value is None else f"{value:,.1f}" if value >= 9.95 else f"{value:,.2f}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value >= 0.0995 else f"{value:.4f}"
