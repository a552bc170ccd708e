"""What `workbench trace inspect` and `head` print: figures of a trace as text, 80 columns and more.

Invariant: nothing from a file acts on the terminal (`clean`), and in ASCII mode nothing else comes out.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traces.readers.times import show_span
from traces.tally import Bin
from traces.workload import RequestSpec
from workbench.text import clean, fit, wrap

EIGHTHS = " ▏▎▍▌▋▊▉█"
NAME = 10
"""Cells of the names at the left."""
SHOWN_CLIENTS = 5
_PLAIN = str.maketrans({"·": "|", "…": "~", "–": "-", "×": "x", "≈": "~"})


class Printer:
    """Lines on stdout, as wide as the terminal; 100 columns where there is none."""

    def __init__(self, *, ascii: bool = False) -> None:
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        self.ascii = ascii or encoding != "utf8"
        width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
        self.width = max(60, width)
        self._console = Console(width=self.width, highlight=False, markup=False, emoji=False)

    def plain(self, text: str) -> str:
        return text.translate(_PLAIN).encode("ascii", "replace").decode() if self.ascii else text

    def line(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(self.plain(text), style=style), soft_wrap=True)

    def named(self, name: str, text: str, style: str = "") -> None:
        """`name      text`, folded under itself."""
        for number, part in enumerate(wrap(text, self.width - NAME) or [""]):
            lead = Text(f"{'' if number else name:<{NAME}}", style=style or "bold")
            self._console.print(lead.append(self.plain(part), style=style or "not bold"), soft_wrap=True)

    def table(
        self, headings: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[str] = (), gap: int = 2
    ) -> None:
        """left: headings whose columns are text. gap: cells between columns."""
        table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        for heading in headings:
            table.add_column(self.plain(heading), justify="left" if heading in set(left) else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(self.plain(cell)) for cell in row))
        self._console.print(table)

    def bar(self, share: float, width: int) -> str:
        """A bar of `share` (0..1) of `width` cells; what is there at all is seen."""
        if self.ascii:
            return "#" * max(round(share * width), share > 0)
        eighths = max(round(share * width * 8), share > 0)
        return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def report(out: Printer, figures: dict[str, Any], bins: tuple[list[Bin], list[Bin]]) -> None:
    """The whole of `inspect`. figures: what `--json` prints. bins: of prompts and of outputs."""
    _file(out, figures)
    out.line()
    _lengths(out, figures, bins)
    _arrivals(out, figures)
    _clients(out, figures["clients"])
    _sessions(out, figures["sessions"])
    _prefix(out, figures["prefix"])
    for warning in figures["warnings"]:
        out.named("warning", warning, "bold yellow")


def _file(out: Printer, figures: dict[str, Any]) -> None:
    out.line(clean(figures["path"]), "bold")
    out.named("format", f"{figures['format']} · {clean(figures['title'])} · {figures['container']}")
    times = f"unit {figures['unit']}" if figures["unit"] else "the rows have no times"
    if figures["span_s"] is not None:
        times += f" · span {show_span(figures['span_s'])}"
        times += "" if figures["base"] in (None, 0) else f" · rebased from {figures['base']}"
        times += f" · {_rows(figures['inversions'])} out of order" if figures["inversions"] else ""
    out.named("times", times)
    dropped = sum(figures["dropped"].values())
    counts = f"{figures['read']:,} read = {figures['kept']:,} kept + {dropped:,} dropped"
    if figures["failed"]:
        counts += f" · {figures['failed']:,} of the kept failed at the source: known, not sent"
    out.named("rows", counts)
    for kind in ("dropped", "clamped"):
        for reason, count in sorted(figures[kind].items(), key=lambda item: -item[1]):
            out.named(kind, f"{count:,} · {clean(reason)}", "yellow")
            for example in figures["examples"].get(reason, ())[:2]:
                where = clean(example).removeprefix(f"{clean(figures['path'])}:")
                out.named("", f"line {where}")
    for note in figures["notes"]:
        out.named("note", clean(note))


def _lengths(out: Printer, figures: dict[str, Any], bins: tuple[list[Bin], list[Bin]]) -> None:
    names = ("n", "p50", "p90", "p95", "p99", "mean", "max")
    rows = [
        (kind, *(_number(figures[kind][name]) for name in names)) for kind in ("prompt", "output") if figures[kind]["n"]
    ]
    if not rows:
        out.named("tokens", "no row tells a length")
        return
    out.table(("tokens", *names), rows, left=("tokens",))
    if figures["in_out_ratio"] is not None:
        out.named("in:out", f"{figures['in_out_ratio']:.3g} prompt tokens for each output token")
    out.line()
    _histograms(out, bins)
    out.line()


def _histograms(out: Printer, bins: tuple[list[Bin], list[Bin]]) -> None:
    """Both side by side. Bins double in width from line to line."""
    width = min(60, (out.width - 3) // 2)
    sides = [_histogram(out, name, part, width) for name, part in zip(("prompt", "output"), bins, strict=True) if part]
    for row in range(max(map(len, sides), default=0)):
        out.line("   ".join(fit(side[row] if row < len(side) else "", width) for side in sides).rstrip())


def _histogram(out: Printer, name: str, bins: list[Bin], width: int) -> list[str]:
    total, most = sum(bin.rows for bin in bins), max(bin.rows for bin in bins)
    labels = [_span(bin.low, bin.high) for bin in bins]
    room = max(len(name), *map(len, labels))
    lines = [f"{name:>{room}}  share of rows"]
    for label, bin in zip(labels, bins, strict=True):
        bar = out.bar(bin.rows / most, width - room - 8)
        lines.append(f"{label:>{room}} {_percent(bin.rows / total):>6} {bar}")
    return lines


def _arrivals(out: Printer, figures: dict[str, Any]) -> None:
    arrivals = figures["arrivals"]
    if not arrivals["n"]:
        out.named("arrivals", "none: the rows have no times, so all are there at the start")
        return
    rate = "n/a" if figures["rate_per_s"] is None else f"{figures['rate_per_s']:.4g} requests/s"
    cv = "n/a" if arrivals["cv"] is None else f"{arrivals['cv']:.3g}"
    dispersion = (f"D{w} {'n/a' if (d := arrivals[f'd{w}']) is None else f'{d:.3g}'}" for w in (1, 10, 60))
    out.named("arrivals", f"{rate} · CV of gaps {cv} · {' · '.join(dispersion)} (Poisson: 1)")
    for note in arrivals["notes"]:
        out.named("", note)


def _clients(out: Printer, clients: dict[str, Any]) -> None:
    if not clients["given"]:
        out.named("clients", "one: the rows name none")
        return
    jain = "" if clients["jain"] is None else f" · Jain's index of rows {clients['jain']:.2f} (1 is even)"
    out.named("clients", f"{clients['count']:,}{jain}")
    top = clients["top"][:SHOWN_CLIENTS]
    room = min(24, max(len(clean(row["client"])) for row in top))
    for row in top:
        share = f"{_percent(row['share']):>6} of rows {_percent(row['token_share']):>6} of tokens"
        bar = out.bar(row["share"] / top[0]["share"], max(8, min(30, out.width - NAME - room - 38)))
        out.named("", f"{fit(clean(row['client']), room)} {share} {bar}")
    if clients["count"] > len(top):
        rest = max(0.0, 1 - sum(row["share"] for row in top))
        out.named("", f"{clients['count'] - len(top):,} more {_percent(rest)} of rows")


def _sessions(out: Printer, sessions: dict[str, Any]) -> None:
    if not sessions["rows"]:
        return
    turns = sessions["turns"]
    text = "too many to count" if sessions["count"] is None else f"{sessions['count']:,}"
    if turns["mean"] is not None:
        text += f" · rows each p50 {turns['p50']:g}, p90 {turns['p90']:g}, mean {turns['mean']:.3g}, max {turns['max']}"
    text += f" · {_rows(sessions['follow_ups'])} wait for the one before" if sessions["follow_ups"] else ""
    out.named("sessions", text)


def _prefix(out: Printer, prefix: dict[str, Any]) -> None:
    if not prefix["rows"]:
        out.named("prefix", "the rows have no prefix ids")
        return
    about = "about " if prefix["one_in"] > 1 else ""
    sizes = f" of {', '.join(map(str, prefix['block_sizes']))} tokens" if prefix["block_sizes"] else ""
    out.named(
        "prefix",
        f"an endless cache would have had {about}{_percent(prefix['token_share'] or 0)} of prompt tokens"
        f" · {_percent(prefix['block_share'] or 0)} of {prefix['blocks']:,} blocks{sizes}",
    )


def head_table(out: Printer, specs: Sequence[RequestSpec]) -> None:
    """Requests as a table; columns that say nothing are left out."""
    columns: list[tuple[str, list[str]]] = [
        ("line", [spec.where.rpartition(":")[2] for spec in specs]),
        ("arrival s", [f"{spec.arrival:.3f}" for spec in specs]),
        ("prompt", [_prompt_cell(spec) for spec in specs]),
        ("output", [_output_cell(spec) for spec in specs]),
        ("client", [clean(spec.client) if spec.client != "default" else "" for spec in specs]),
        ("session", [clean(spec.session or "") for spec in specs]),
        ("turn", ["" if spec.turn is None else str(spec.turn) for spec in specs]),
        ("after", [clean(spec.after or "") for spec in specs]),
        ("delay s", [f"{spec.delay:.3g}" if spec.after is not None else "" for spec in specs]),
        ("prio", [str(spec.priority) if spec.priority else "" for spec in specs]),
        ("deadline", ["" if spec.deadline is None else f"{spec.deadline:g}" for spec in specs]),
        ("prefix", [_prefix_cell(spec) for spec in specs]),
        ("", ["failed" if spec.failed else "" for spec in specs]),
    ]
    used = [(name, [fit_cell(cell) for cell in cells]) for name, cells in columns if any(cells)]
    used.append(("text", [_text_cell(spec) for spec in specs]))
    room = out.width - sum(max(len(name), *map(len, cells)) + 1 for name, cells in used[:-1]) - 1
    if room < 8 or not any(used[-1][1]):
        used.pop()
    else:
        used[-1] = ("text", [fit(cell, room).rstrip() for cell in used[-1][1]])
    left = ("client", "session", "after", "prefix", "text")
    out.table([name for name, _ in used], list(zip(*(cells for _, cells in used), strict=True)), left=left, gap=1)


def fit_cell(text: str) -> str:
    return text if len(text) <= 16 else fit(text, 16)


def _prompt_cell(spec: RequestSpec) -> str:
    if spec.prompt_len is not None:
        return f"{spec.prompt_len:,}"
    if spec.prompt_ids is not None:
        return f"{len(spec.prompt_ids):,} ids"
    if spec.messages is not None:
        return f"{len(spec.messages)} msgs"
    return "text" if spec.prompt is not None else "-"


def _output_cell(spec: RequestSpec) -> str:
    if spec.output_len is not None:
        return f"{spec.output_len:,}"
    return "-" if spec.max_tokens is None else f"<={spec.max_tokens:,}"


def _prefix_cell(spec: RequestSpec) -> str:
    if not spec.prefix_ids:
        return ""
    size = f" x {spec.prefix_lens[0]}" if len(set(spec.prefix_lens)) == 1 else " ids"
    return f"{len(spec.prefix_ids)}{size}"


def _text_cell(spec: RequestSpec) -> str:
    text = spec.prompt if spec.messages is None else spec.messages[-1][1]
    return clean((text or "")[:400])


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
