"""The page around the figures of a report: head, tables, notes, and the rule that keeps the network out."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from engine.knobs import KNOBS
from traces.definitions import DEFINITIONS
from traces.exports.report import KEPT_LINES, Report
from traces.exports.report_figures import MOST_CLIENTS, MOST_SPANS, figures, longest_spans
from traces.metrics import LATENCIES

HERE = Path(__file__).parent
PERCENTILES = ("mean", "p50", "p90", "p95", "p99", "max")
TOTALS = (
    "tokens.prompt", "tokens.cached", "tokens.output", "tokens.recomputed", "wall_s", "output_tok_s",
    "completed_output_tok_s", "total_tok_s", "completed_rps", "goodput_rps", "slo_attainment",
)  # fmt: skip
SHOWN_CLIENTS = 50


def write_page(report: Report, file: IO[str]) -> None:
    from plotly.offline import get_plotlyjs

    made = figures(report)
    summary = report.metrics.summary()
    scripts = (get_plotlyjs().replace("\r\n", "\n"), (HERE / "report.js").read_text("utf-8"))
    hashes = " ".join(f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    data = {name: figure.to_plotly_json() for name, figure in made.items()}
    name = f"{report.info.model} · {report.title}" if report.title else report.info.model
    write = file.write
    write("<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n")
    write(f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n')
    write('<meta name=viewport content="width=device-width, initial-scale=1">\n')
    write(f"<title>{_text(name)} — serving workbench</title>\n")
    write(f"<style>\n{(HERE / 'report.css').read_text('utf-8')}</style>\n</head>\n<body>\n")
    for part in (
        _head(report, summary, name),
        _figures(report, made),
        _metrics(summary),
        _preemptions(report, summary),
    ):
        write(part)
    write(_knobs(report))
    write(_notes(report, made))
    write(f"<script type=application/json id=figures>{_script(data)}</script>\n")
    for text in scripts:
        write(f"<script>{text}</script>\n")
    write("</body>\n</html>\n")


def _script(data: Any) -> str:
    """JSON that cannot end its element, whatever is in it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(value: object) -> str:
    """Text from outside: no markup, and what cannot be shown made visible."""
    plain = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return html.escape(plain)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = (), id: str = "") -> str:
    """numbers: columns set to the right. A row whose first cell is None is marked as changed, without that cell."""
    out = [f"<div class=scroll><table{f' id={id}' if id else ''}><thead><tr>"]
    out += [f"<th{_class(at in numbers)}>{_text(head)}</th>" for at, head in enumerate(heads)]
    out.append("</tr></thead>\n<tbody>\n")
    for row in rows:
        changed = row[0] is None
        cells = row[1:] if changed else row
        out.append("<tr class=changed>" if changed else "<tr>")
        out += [f"<td{_class(at in numbers)}>{_text(cell)}</td>" for at, cell in enumerate(cells)]
        out.append("</tr>\n")
    out.append("</tbody></table></div>\n")
    return "".join(out)


def _class(number: bool) -> str:
    return " class=number" if number else ""


def _figure(value: object) -> str:
    """A number as people read it; a dash for nothing measured."""
    match value:
        case None:
            return "–"
        case bool():
            return "on" if value else "off"
        case float():
            return plain(value)
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def plain(value: float) -> str:
    """Four digits that count, and never an exponent."""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _head(report: Report, summary: dict[str, Any], name: str) -> str:
    info, requests, kv = report.info, summary["requests"], summary["kv"]
    ended = ", ".join(f"{n:,} {what}" for what, n in requests.items() if n and what not in ("planned", "completed"))
    facts = (
        f"{info.model} in {info.dtype} on {info.device}, {info.threads} thread{'' if info.threads == 1 else 's'}",
        f"{info.parameters:,} parameters",
        f"KV pool of {info.config.num_blocks:,} blocks of {info.config.block_size} tokens "
        f"({info.kv_bytes / 1e6:,.1f} MB)",
    )
    pool = max((bucket.columns[1].high for bucket in report.kv), default=kv["allocated"] - 1)
    cards = (
        ("requests completed", f"{requests['completed']:,} of {requests['planned']:,}"),
        *([("of the others", ended)] if ended else []),
        ("iterations", _figure(summary["iterations"])),
        ("seconds", _figure(summary["wall_s"])),
        ("output tokens a second", _figure(summary["output_tok_s"])),
        ("TTFT p50 · p99, ms", _pair(summary["ttft_s"])),
        ("TPOT p50 · p99, ms", _pair(summary["tpot_s"])),
        ("KV blocks used at most", f"{kv['peak_used']:,} of {pool:,}"),
        ("preemptions", _figure(summary["preemptions"])),
        *([("good requests", _share(summary["slo_attainment"]))] if summary["slo"] is not None else []),
    )
    out = [f"<header><h1>{_text(name)}</h1>\n<p class=dim>{_text(' · '.join(facts))}</p></header>\n<div class=cards>\n"]
    out += [f"<div class=card><b>{_text(value)}</b><span>{_text(label)}</span></div>\n" for label, value in cards]
    out.append("</div>\n")
    return "".join(out)


def _pair(row: dict[str, Any]) -> str:
    return " · ".join("–" if row[name] is None else plain(row[name] * 1000) for name in ("p50", "p99"))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _figures(report: Report, made: dict[str, Any]) -> str:
    shown = len(report.shown)
    which = (
        "all requests" if report.stride == 1 else f"{shown:,} of {report.arrivals:,} requests, one in {report.stride}"
    )
    bars, per = report.tokens.per, max(report.queues.per, report.kv.per)
    tokens = (
        "one bar an iteration"
        if bars == 1
        else f"long run: each bar is the mean of {bars} iterations, the line above it the most of them in one"
    )
    lines = "every value" if per == 1 else f"long run: the least and the most of each {per} values"
    cut = f" Only the {MOST_SPANS:,} longest phases are drawn." if len(longest_spans(report)) == MOST_SPANS else ""
    texts = {
        "requests": ("Requests", f"{which}, in order of arrival. Dotted lines are knob changes.{cut}"),
        "tokens": ("Tokens an iteration", f"By phase, against the token budget; {tokens}."),
        "queues": ("Queues", f"Requests that run, wait and are swapped out; {lines}."),
        "kv": ("KV use", f"Blocks in use, at the height of an iteration and after it, and the capacity; {lines}."),
    }
    out = []
    for id, (title, caption) in texts.items():
        if id in made:
            frame = " class=tall" if id == "requests" and made[id].layout.height > 760 else ""
            out.append(f"<h2>{title}</h2>\n<figure><figcaption>{_text(caption)}</figcaption>")
            out.append(f"<div{frame}><div id={id}></div></div></figure>\n")
    cdfs = [id for id in made if id.startswith("cdf-")]
    if cdfs:
        few = "" if len(report.client_pools) <= MOST_CLIENTS else f", the {MOST_CLIENTS} clients with the most of them"
        caption = f"Share of values at or below x, completed requests only; all of them and by client{few}."
        out.append(f"<h2>Latencies</h2>\n<p class=dim>{_text(caption)}</p>\n<div class=grid>\n")
        for id in cdfs:
            name = DEFINITIONS[id.removeprefix("cdf-")].name
            out.append(f"<figure><figcaption><b>{name}</b></figcaption><div id={id}></div></figure>\n")
        out.append("</div>\n")
    return "".join(out)


def _metrics(summary: dict[str, Any]) -> str:
    out = ["<h2>Metrics</h2>\n<p class=dim>Latencies in milliseconds, of completed requests.</p>\n"]
    names = sorted((*LATENCIES, "itl_s"), key=list(DEFINITIONS).index)
    rows = [
        [
            DEFINITIONS[name].name,
            f"{summary[name]['n']:,}",
            *("–" if summary[name][p] is None else plain(summary[name][p] * 1000) for p in PERCENTILES),
            DEFINITIONS[name].text,
        ]
        for name in names
    ]
    numbers = range(1, 2 + len(PERCENTILES))
    out.append(_table(("", "n", *PERCENTILES, "definition"), rows, numbers, "metrics"))
    out.append(f"<p class=dim>{_text(DEFINITIONS['percentiles'].text)}</p>\n")
    totals = []
    for key in (
        "requests.planned",
        *(f"requests.{name}" for name in summary["requests"] if name != "planned"),
        *TOTALS,
    ):
        value: Any = summary
        for part in key.split("."):
            value = value[part]
        if key in ("goodput_rps", "slo_attainment") and summary["slo"] is None:
            continue
        definition = DEFINITIONS[key]
        totals.append([definition.name, _figure(value), definition.unit, definition.text])
    out.append(_table(("", "", "unit", "definition"), totals, (1,), "totals"))
    if summary["slo"] is not None:
        out.append(f"<p class=dim>{_text(_limits(summary['slo']))}</p>\n")
    if any(summary["failures"].values()):
        reasons = [(how, f"{count:,}", why) for how, all in summary["failures"].items() for why, count in all.items()]
        out.append(_table(("did not complete", "requests", "reason"), reasons, (1,), "reasons"))
    clients = summary["clients"]
    if len(clients) > 1:
        accounts = [
            (
                name, _figure(row["requests"]["arrived"]), _figure(row["requests"]["completed"]),
                _figure(row["tokens"]["prompt"]), _figure(row["tokens"]["output"]), _share(row["share"]),
                _figure(row["preemptions"]["suffered"]), _figure(row["preemptions"]["caused"]),
            )
            for name, row in sorted(clients.items(), key=lambda item: -item[1]["service"])[:SHOWN_CLIENTS]
        ]  # fmt: skip
        heads = ("client", "requests", "completed", "prompt tokens", "output tokens", "share of service", "preempted")
        out.append("<h2>Clients</h2>\n")
        out.append(_table((*heads, "preempted others"), accounts, range(1, 8), "clients"))
        if len(clients) > SHOWN_CLIENTS:
            out.append(f"<p class=dim>and {len(clients) - SHOWN_CLIENTS:,} more clients</p>\n")
    return "".join(out)


def _limits(slo: dict[str, Any]) -> str:
    limits = [
        f"{name} within {slo[key] * 1000:,.6g} ms"
        for name, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"))
        if slo[key] is not None
    ]
    scaled = f", scaled by {slo['scale']:g}" if slo["scale"] != 1 else ""
    return f"Good requests: {' and '.join(limits)} (SLO {slo['name']}{scaled})."


def _preemptions(report: Report, summary: dict[str, Any]) -> str:
    out = ["<h2>Preemptions</h2>\n"]
    if not summary["preemptions"]:
        return "".join([*out, "<p>none</p>\n"])
    rows = [(cause, *(f"{count:,}" for count in counts)) for cause, counts in report.preempted_by.items() if counts[0]]
    out.append(
        _table(("cause", "preemptions", "of them swapped", "tokens lost", "blocks freed"), rows, range(1, 5), "causes")
    )
    again, swap = summary["preemption"]["recompute"], summary["preemption"]["swap"]
    out.append(
        f"<p>Computed again: {again['tokens']:,} tokens, about {_figure(again['ms'])} ms. Copied: "
        f"{swap['blocks_out']:,} blocks out, {swap['blocks_in']:,} back, {_figure(swap['ms'])} ms.</p>\n"
    )
    worst = sorted(report.preempted, key=lambda item: item[:2], reverse=True)
    lines = [
        (
            life.row.id, life.row.client, f"{count:,}", f"{life.row.swapped_out:,}", f"{life.row.recomputed_tokens:,}",
            plain(life.row.requeue_s * 1000), life.row.finish_reason,
        )
        for count, _, life in worst
    ]  # fmt: skip
    heads = ("most preempted", "client", "preemptions", "of them swapped", "recomputed tokens", "requeue ms", "ended")
    out.append(_table(heads, lines, range(2, 6), "most-preempted"))
    return "".join(out)


def _knobs(report: Report) -> str:
    now = report.metrics.knobs
    rows: list[Sequence[object]] = []
    for name, start in report.knobs.items():
        changed = now.get(name) != start
        cells = (name, _figure(start), _figure(now.get(name)) if changed else "", KNOBS[name].help)
        rows.append((None, *cells) if changed else cells)
    out = ["<h2>Knobs</h2>\n<p class=dim>Those that ended up different are marked.</p>\n"]
    out.append(_table(("knob", "at start", "at the end", "what it does"), rows, (1, 2), "knobs"))
    if report.changes:
        changes = [
            (f"{c.at:.4f}", c.step, "engine built anew", "", c.new)
            if not c.name
            else (f"{c.at:.4f}", c.step, c.name, _figure(c.old), _figure(c.new))
            for c in report.changes
        ]
        out.append(_table(("seconds", "after step", "change", "from", "to"), changes, (0, 1), "changes"))
        out.append(_more(report.num_changes, "changes"))
    return "".join(out)


def _notes(report: Report, made: dict[str, Any]) -> str:
    out = ["<h2>Notes</h2>\n"]
    lines = [_text(note) for note in report.info.notes]
    lines += [f"{at:.4f} s: {_text(notice)}" for at, notice in report.notices]
    if report.strangers:
        lines.append(
            f"The records begin in the middle of a run. {report.strangers:,} requests that were there already are "
            "left out wherever requests, clients, latencies and tokens are counted."
        )
    lines.append("Times are seconds on the engine's clock.")
    out.append("<ul>\n" + "".join(f"<li>{line}</li>\n" for line in lines) + "</ul>\n")
    out.append(_more(report.num_notices, "notices"))
    if not made:
        out.append("<p>The run has no iterations: there is nothing to draw.</p>\n")
    if report.fault is not None:
        out.append(f"<h2 class=fault>The engine failed</h2>\n<pre>{_text(report.fault)}</pre>\n")
    return "".join(out)


def _more(count: int, what: str) -> str:
    return f"<p class=dim>and {count - KEPT_LINES:,} more {what}</p>\n" if count > KEPT_LINES else ""
