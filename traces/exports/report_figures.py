"""The figures of a report, as plotly figures. Colours of text and grid are the page's: they follow light and dark.

All text from outside goes through `shown`: plotly reads a little HTML in labels.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from engine.records import Phase
from traces.exports.lives import Doing, Life, Span
from traces.exports.report import LATENCIES, PHASES, Report
from traces.stats import COMPLETED, Pool

COLOURS = {
    Doing.QUEUED: "#9aa0a6",
    Doing.PREFILL: "#2f7ed8",
    Doing.DECODE: "#1b9e77",
    Doing.RECOMPUTE: "#e6a117",
    Doing.PREEMPTED: "#d1495b",
    Doing.SWAPPED: "#a463c6",
}
"""Told apart by people who see red and green alike, and on white and black."""
CLIENT_COLOURS = ("#2f7ed8", "#1b9e77", "#e6a117", "#d1495b", "#a463c6", "#17a2b8", "#8d6e63", "#7cb342")
MOST_CLIENTS = len(CLIENT_COLOURS)
NEUTRAL = "#7a8088"
CURVE = 400
"""Points of a distribution."""
ROW = 14
"""Pixels of a request's row."""
MOST_SPANS = 6000
"""Bars of the timeline: more make a browser slow, and those left out are narrower than a line."""
LABEL = 16
"""Letters of an id beside its row."""


def figures(report: Report) -> dict[str, go.Figure]:
    """By the id of the element they are drawn in; those with nothing to show are left out."""
    made = {
        "requests": requests_figure(report) if report.shown else None,
        "tokens": tokens_figure(report) if len(report.tokens) else None,
        "queues": queues_figure(report) if len(report.queues) else None,
        "kv": kv_figure(report) if len(report.kv) else None,
        **{f"cdf-{name}": cdf_figure(report, name) if len(report.pools[name]) else None for name in LATENCIES},
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def shown(text: str, most: int = 80) -> str:
    """Text from outside, as a label shows it: no markup, no control codes, cut to `most` letters."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    if len(plain) > most:
        plain = plain[: most - 1] + "…"
    return html.escape(plain)


def requests_figure(report: Report) -> go.Figure:
    """A row a request, in order of arrival from the top: its phases (prefill ends with the first token) and its end."""
    lives = list(report.shown.values())
    rows: dict[Doing, list[tuple[int, Span]]] = {doing: [] for doing in Doing}
    for number, span in longest_spans(report):
        rows[span.doing].append((number, span))
    figure = go.Figure()
    labels = [_label(life) for life in lives]
    for doing, spans in rows.items():
        if spans:
            figure.add_bar(
                name=doing,
                orientation="h",
                base=[_round(span.start) for _, span in spans],
                x=[_round(span.end - span.start) for _, span in spans],
                y=[number for number, _ in spans],
                width=0.78,
                marker={"color": COLOURS[doing], "line": {"width": 0}},
                hovertext=[
                    f"{labels[number]}<br>{doing} {_seconds(span.end - span.start)} from {span.start:.4f} s"
                    for number, span in spans
                ],
                hoverinfo="text",
            )
    for name, symbol, colour, members in (
        ("completed", "circle", COLOURS[Doing.DECODE], COMPLETED),
        ("aborted", "x", NEUTRAL, ("abort",)),
        ("failed", "x", COLOURS[Doing.PREEMPTED], ("error",)),
        ("not ended", "triangle-right-open", NEUTRAL, (None,)),
    ):
        ends = [
            (number, report.end if life.ended is None else life.ended)
            for number, life in enumerate(lives)
            if life.row.finish_reason in members
        ]
        _marks(figure, name, ends, symbol, colour, labels)
    for change in report.changes:
        figure.add_vline(x=change.at, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.update_layout(barmode="overlay", height=max(220, ROW * len(lives) + 110), hovermode="closest")
    ids = [shown(life.row.id, LABEL) for life in lives]
    figure.update_yaxes(range=[len(ids) - 0.4, -0.6], tickmode="array", tickvals=list(range(len(ids))), ticktext=ids)
    figure.update_yaxes(tickfont={"size": 9}, showgrid=False, zeroline=False)
    return _over_time(figure, report)


def longest_spans(report: Report) -> list[tuple[int, Span]]:
    """Phases with the rows they are in, in order; the MOST_SPANS longest ones when there are more."""
    spans = [
        (number, span)
        for number, life in enumerate(report.shown.values())
        for span in spans_of(life, report.end)
        if span.end > span.start
    ]
    if len(spans) > MOST_SPANS:
        order = sorted(range(len(spans)), key=lambda at: spans[at][1].start - spans[at][1].end)
        spans = [spans[at] for at in sorted(order[:MOST_SPANS])]
    return spans


def spans_of(life: Life, end: float) -> list[Span]:
    """Its phases; the one it is in is cut at `end`."""
    if life.ended is not None:
        return life.spans
    return [*life.spans, Span(life.doing, life.since, max(life.since, end))]


def _label(life: Life) -> str:
    row = life.row
    facts = [f"{row.prompt_len} prompt, {life.output_len} output tokens"]
    facts += [f"TTFT {_seconds(row.ttft_s)}"] if row.ttft_s is not None else []
    facts += [f"{row.preemptions} preemptions"] if row.preemptions else []
    facts += [f"ended: {row.finish_reason}"] if row.finish_reason else ["not ended"]
    return f"<b>{shown(row.id)}</b> of {shown(row.client)}<br>{', '.join(facts)}"


def _marks(
    figure: go.Figure,
    name: str,
    points: Sequence[tuple[int, float]],
    symbol: str,
    colour: str,
    labels: Sequence[str],
) -> None:
    if points:
        figure.add_scatter(
            name=name,
            mode="markers",
            x=[_round(at) for _, at in points],
            y=[number for number, _ in points],
            marker={"symbol": symbol, "color": colour, "size": 6, "line": {"width": 1.5, "color": colour}},
            hovertext=[f"{labels[number]}<br>{name} at {at:.4f} s" for number, at in points],
            hoverinfo="text",
        )


def tokens_figure(report: Report) -> go.Figure:
    """Stacked bars as wide as the iterations: exact for a short run, means of neighbours for a long one."""
    buckets = list(report.tokens)
    exact = report.tokens.per == 1
    figure = go.Figure()
    middle = [_round((bucket.start + bucket.end) / 2) for bucket in buckets]
    width = [max(_round(bucket.end - bucket.start), 1e-9) for bucket in buckets]
    steps = ["" if exact else f"<br>mean of {bucket.number} iterations" for bucket in buckets]
    for column, phase in enumerate(PHASES):
        values = [bucket.mean(column) for bucket in buckets]
        if phase is Phase.RECOMPUTE and not any(values):
            continue
        figure.add_bar(
            name=phase,
            x=middle,
            y=values,
            width=width,
            marker={"color": COLOURS[Doing(phase)], "line": {"width": 0}},
            hovertext=[f"{value:g} {phase} tokens{step}" for value, step in zip(values, steps, strict=True)],
            hoverinfo="text+x",
        )
    all_tokens, budget = 3, 4
    for name, column, line in (
        ("most in one iteration", all_tokens, {"color": NEUTRAL, "width": 1}),
        ("budget", budget, {"color": COLOURS[Doing.PREEMPTED], "width": 1.5, "dash": "dash"}),
    ):
        if column == all_tokens and exact:
            continue
        figure.add_scatter(
            name=name,
            x=[_round(at) for bucket in buckets for at in (bucket.start, bucket.end)],
            y=[bucket.columns[column].high for bucket in buckets for _ in range(2)],
            mode="lines",
            line=line,
        )
    figure.update_layout(barmode="stack", bargap=0)
    figure.update_yaxes(title="tokens an iteration", rangemode="tozero")
    return _over_time(figure, report)


def queues_figure(report: Report) -> go.Figure:
    figure = go.Figure()
    for column, (name, doing) in enumerate(
        (("running", Doing.DECODE), ("waiting", Doing.QUEUED), ("swapped out", Doing.SWAPPED))
    ):
        x, y = report.queues.line(column)
        if column < 2 or any(y):
            _steps(figure, name, x, y, COLOURS[doing])
    figure.update_yaxes(title="requests", rangemode="tozero")
    return _over_time(figure, report)


def kv_figure(report: Report) -> go.Figure:
    figure = go.Figure()
    x, y = report.kv.line(0)
    _steps(figure, "used", x, y, COLOURS[Doing.PREFILL], fill="tozeroy")
    x, y = report.kv.line(1)
    _steps(figure, "capacity", x, y, COLOURS[Doing.PREEMPTED], dash="dash")
    figure.update_yaxes(title="KV blocks", rangemode="tozero")
    return _over_time(figure, report)


def cdf_figure(report: Report, name: str) -> go.Figure:
    """Share of values at or below x: of all completed requests, and of each client that has the most of them."""
    figure = go.Figure()
    clients = sorted(report.client_pools, key=lambda client: (-len(report.client_pools[client][name]), client))
    if len(clients) > 1:
        for client, colour in zip(clients, CLIENT_COLOURS, strict=False):
            pool = report.client_pools[client][name]
            if len(pool):
                _curve(figure, shown(client, 30), pool, {"color": colour, "width": 1.3})
    _curve(figure, "all", report.pools[name], {"color": NEUTRAL, "width": 3})
    figure.update_xaxes(rangemode="tozero", tickformat="~s", ticksuffix="s", nticks=7)
    figure.update_yaxes(range=[0, 101], ticksuffix=" %", dtick=25)
    figure = _style(figure, height=280)
    return figure.update_layout(margin={"l": 52})


def _curve(figure: go.Figure, name: str, pool: Pool, line: dict[str, Any]) -> None:
    ordered = pool.ordered()
    n = len(ordered)
    places = range(n) if n <= CURVE else [round(at * (n - 1) / (CURVE - 1)) for at in range(CURVE)]
    figure.add_scatter(
        name=f"{name} (n {n:,})",
        x=[_round(float(ordered[at])) for at in (0, *places)],
        y=[0.0, *(round(100 * (at + 1) / n, 4) for at in places)],
        mode="lines",
        line={**line, "shape": "hv"},
        hovertemplate="%{y:.1f} % within %{x:.4s}s",
    )


def _steps(
    figure: go.Figure,
    name: str,
    x: list[float],
    y: list[float],
    colour: str,
    *,
    dash: str = "solid",
    fill: str = "none",
) -> None:
    figure.add_scatter(
        name=name,
        x=[_round(at) for at in x],
        y=y,
        mode="lines",
        line={"color": colour, "width": 1.5, "shape": "hv", "dash": dash},
        fill=fill,
        fillcolor=colour + "33" if fill != "none" else None,
    )


def _over_time(figure: go.Figure, report: Report) -> go.Figure:
    """All with the same axis, so that they can be compared one above the other."""
    start, end = report.start or 0.0, report.end
    room = 0.01 * (end - start) or 0.5
    figure.update_xaxes(title="seconds on the engine's clock", ticksuffix=" s", zeroline=False)
    figure.update_xaxes(range=[start - room, end + room])
    return _style(figure, height=figure.layout.height or 300)


def _style(figure: go.Figure, *, height: int) -> go.Figure:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 100, "r": 16, "t": 40, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#9AA3AB", "activecolor": "#59626B"},
        legend={
            "orientation": "h",
            "traceorder": "normal",
            "yanchor": "bottom",
            "y": 1.01,
            "x": 0,
            "font": {"size": 11},
        },
        font={"size": 11},
    )
    return figure


def _round(seconds: float) -> float:
    return round(seconds, 9)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f} s" if value >= 1 else f"{value * 1000:.2f} ms"
