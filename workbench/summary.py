"""The summary of a run for people: totals, latencies, clients. Fits 80 columns. A dash is "nothing was measured"."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from workbench.text import clean, seconds

SHOWN_CLIENTS = 12
NAME_CELLS = 14


def summary_tables(summary: dict[str, Any]) -> list[Any]:
    """What `Metrics.summary` says, as things rich can print."""
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
        ("tokens", f"{tokens['prompt']} prompt ({tokens['cached']} cached), {tokens['output']} output"),
        (
            "throughput",
            f"{_figure(summary['output_tok_s'])} output tok/s, {_figure(summary['total_tok_s'])} total tok/s",
        ),
        ("run", f"{summary['iterations']} iterations in {_figure(summary['wall_s'])} s"),
        ("preemptions", _preemptions(summary)),
        ("slot-steps", _slot_steps(summary["slot_steps"])),
        ("KV blocks", f"at most {kv['peak_used']} used, the pool has {kv['num_blocks'] - 1}"),
        ("longest wait", _longest_wait(summary)),
        *([("fairness", _fairness(summary["fairness"]))] if len(summary["clients"]) > 1 else []),
    )
    for name, text in rows:
        totals.add_row(name, Text(text))
    latency = Table(box=None, pad_edge=False)
    latency.add_column("seconds", style="bold")
    columns = ("mean", "p50", "p90", "p95", "p99", "n")
    for column in columns:
        latency.add_column(column, justify="right")
    for name in ("queue", "ttft", "tpot", "itl", "e2e"):
        values = summary[f"{name}_s"]
        latency.add_row(
            name if name == "queue" else name.upper(),
            *(str(values[c]) if c == "n" else _seconds(values[c]) for c in columns),
        )
    tables = [totals, Text(""), latency]
    if summary["clients"]:
        tables += [Text(""), _client_table(summary["clients"])]
        if len(summary["clients"]) > SHOWN_CLIENTS:
            tables.append(
                Text(f"and {len(summary['clients']) - SHOWN_CLIENTS} more clients with less service (--json)")
            )
    return tables


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
            f"\n{windows['mean']:,.0f} apart in a window of {windows['length_s']:g} s, at most {windows['max']:,.0f}"
        )
        # Over a run in which everybody got all he asked for it is 1 whatever the policy: windows tell them apart.
        if windows["jain_mean"] is not None:
            text += f"\nJain index in a window {_index(windows['jain_mean'])}, at least {_index(windows['jain_min'])}"
    return text


def _index(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value >= 0.0995 else f"{value:.4f}"
