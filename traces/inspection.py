"""What a trace holds, in figures: one pass over its chunks, a memory that does not grow with the file.

Lengths and prefix reuse are those of the rows that would be sent; arrivals and clients count rows that failed at their
source too, because they did arrive there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from traces.arrival_stats import WINDOWS, Arrivals
from traces.client_stats import ClientTally
from traces.readers.origin import Origin
from traces.readers.times import show_ns
from traces.readers.trace import Trace
from traces.reuse import Reuse
from traces.rows import UNKNOWN, Chunk, Ints
from traces.tally import KeyCounts, Lengths

CHARS_PER_TOKEN = 4
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

Measure = Callable[[dict[str, Any]], int]
"""Tokens of a row's `prompt` or `messages`."""


def estimate(row: dict[str, Any]) -> int:
    """Tokens of a row's text at four characters each, rounded up."""
    texts = [content for _, content in row["messages"]] if "messages" in row else [row.get("prompt", "")]
    return -(-sum(map(len, texts)) // CHARS_PER_TOKEN)


class Inspection:
    """Feed it chunks with `add`, then ask for the figures.

    measure: counts the tokens of text rows; None: `estimate`. max_model_len: rows longer than this are counted.
    """

    def __init__(self, *, measure: Measure | None = None, max_model_len: int | None = None) -> None:
        self._measure = measure or estimate
        self.estimated = measure is None
        self.max_model_len = max_model_len
        self.rows = 0
        self.prompt, self.output = Lengths(), Lengths()
        self.arrivals = Arrivals()
        self.clients = ClientTally()
        self.reuse = Reuse()
        self.text_rows = 0
        """Rows whose prompt length came from text."""
        self.limit_rows = 0
        """Rows with a limit instead of an output length."""
        self.no_output = 0
        """Rows with neither."""
        self.over_limit = 0
        self.longest = 0
        """Prompt and output together."""
        self._both = [0, 0]
        """Prompt and output tokens of the rows that have both."""
        self._sessions = KeyCounts()
        self._session_rows = self._follow_ups = 0

    def add(self, chunk: Chunk) -> None:
        if not len(chunk):
            return
        self.rows += len(chunk)
        self.arrivals.add(chunk.t_ns)
        sent = ~chunk.failed
        prompt = self._prompts(chunk, sent)
        output = chunk.output_len
        self.prompt.add(prompt[sent & (prompt != UNKNOWN)])
        self.output.add(output[sent & (output != UNKNOWN)])
        both = sent & (prompt != UNKNOWN) & (output != UNKNOWN)
        self._both[0] += int(prompt[both].sum())
        self._both[1] += int(output[both].sum())
        total = prompt + output
        if sent.any():
            self.longest = max(self.longest, int(total[sent].max()))
        if self.max_model_len is not None:
            self.over_limit += int((total[sent] > self.max_model_len).sum())
        self.clients.add(chunk.more, total)
        if chunk.more is None:
            self.no_output += int((sent & (output == UNKNOWN)).sum())
            return
        for place in np.flatnonzero(sent & (output == UNKNOWN)).tolist():
            if "max_tokens" in chunk.more[place]:
                self.limit_rows += 1
            else:
                self.no_output += 1
        self._add_sessions(chunk.more)
        if sent.all():
            self.reuse.add(chunk.more, prompt)
        else:
            places = np.flatnonzero(sent)
            self.reuse.add([chunk.more[place] for place in places.tolist()], prompt[places])

    def _prompts(self, chunk: Chunk, sent: Any) -> Ints:
        """Prompt lengths, those of text and token ids put in."""
        unknown = np.flatnonzero(sent & (chunk.prompt_len == UNKNOWN))
        if chunk.more is None or not len(unknown):
            return chunk.prompt_len
        prompt = chunk.prompt_len.copy()
        for place in unknown.tolist():
            row = chunk.more[place]
            if "prompt_ids" in row:
                prompt[place] = len(row["prompt_ids"])
            elif "prompt" in row or "messages" in row:
                self.text_rows += 1
                prompt[place] = self._measure(row)
        return prompt

    def _add_sessions(self, more: Sequence[dict[str, Any]]) -> None:
        # hash() differs from process to process; it only has to tell sessions apart within this one
        keys = [hash(row["session"]) for row in more if row.get("session") is not None]
        self._session_rows += len(keys)
        self._sessions.add(np.array(keys, np.int64))
        self._follow_ups += sum(row.get("after") is not None for row in more)

    def figures(self) -> dict[str, Any]:
        """span_s, rate_per_s, arrivals, prompt, output, in_out_ratio, clients, sessions, prefix, text: plain data."""
        times = self.arrivals.figures()
        return {
            "span_s": times.span_s,
            "rate_per_s": times.rate_per_s,
            "arrivals": {
                "n": times.n,
                "cv": times.cv,
                **{f"d{window}": times.dispersion[window] for window in WINDOWS},
                "quantum_s": times.quantum_s,
                "resolution_s": times.resolution_s,
                "equal_share": times.equal_share,
                "notes": list(times.notes),
            },
            "prompt": self.prompt.summary(),
            "output": self.output.summary(),
            "in_out_ratio": self._both[0] / self._both[1] if self._both[1] else None,
            "clients": self.clients.summary(),
            "sessions": self._session_figures(),
            "prefix": self._reuse_figures(),
            "text": {"rows": self.text_rows, "estimated": self.estimated and self.text_rows > 0},
        }

    def _session_figures(self) -> dict[str, Any]:
        _, turns = self._sessions.table()
        counted = Lengths()
        counted.add(turns)
        summary = counted.summary()
        figures = {"count": None if self._sessions.full else len(turns), "rows": self._session_rows}
        turn_figures = {name: summary[name] for name in ("p50", "p90", "mean", "max")}
        return {**figures, "turns": turn_figures, "follow_ups": self._follow_ups}

    def _reuse_figures(self) -> dict[str, Any]:
        reuse = self.reuse.figures()
        tokens = self.prompt.total
        return {
            "rows": reuse.rows,
            "blocks": reuse.blocks,
            "block_sizes": list(reuse.block_sizes),
            "block_share": min(1.0, reuse.hit_blocks / reuse.blocks) if reuse.blocks else None,
            "token_share": min(1.0, reuse.hit_tokens / tokens) if reuse.rows and tokens else None,
            "one_in": reuse.one_in,
        }

    def warnings(self) -> list[str]:
        """What a person should look at before using the file."""
        told = []
        if self.over_limit and self.max_model_len is not None:
            told.append(
                f"{self.over_limit} rows need more than max_model_len {self.max_model_len} "
                f"(the longest {self.longest} tokens)"
            )
        if self.limit_rows:
            told.append(f"{self.limit_rows} rows give a limit (max_tokens), not an output length")
        if self.no_output:
            told.append(f"{self.no_output} rows tell no output length")
        if self.text_rows and self.estimated:
            told.append(
                f"prompts of {self.text_rows} rows are text: their tokens are estimated as characters / "
                f"{CHARS_PER_TOKEN} (--model NAME counts them)"
            )
        if self.clients.overflow:
            told.append("more clients than are told apart: the rest is counted as (others)")
        if self._sessions.full:
            told.append("more sessions than are told apart: not counted")
        if self.reuse.figures().one_in > 1:
            told.append(f"prefix reuse is an estimate from one block in {self.reuse.figures().one_in}")
        return told


def describe(trace: Trace, inspection: Inspection) -> dict[str, Any]:
    """Everything about a trace whose chunks have been used up, as plain data: what `inspect --json` prints.

    `base` is what arrival 0 was in the file: text for dates, else a number of `unit`; None where nothing was moved.
    """
    report = trace.report
    figures = inspection.figures()
    first, span = inspection.arrivals.first_ns, figures["span_s"]
    moved = first is not None and not trace.reader.from_start
    origin = Origin(
        trace.format,
        trace.title,
        trace.unit if first is not None else "",
        first if moved else None,
        0 if span is None else round(span * 1e9),
        figures["arrivals"]["n"],
    )
    if trace.reader.closed_loop and figures["sessions"]["count"] is not None:
        # turns that follow each other by their place, without saying so row by row
        figures["sessions"]["follow_ups"] = figures["sessions"]["rows"] - figures["sessions"]["count"]
    return {
        "path": str(trace.path),
        "format": trace.format,
        "title": trace.title,
        "container": trace.container,
        "unit": origin.unit or None,
        "read": report.read,
        "kept": report.kept,
        "failed": report.failed,
        "clamped": dict(report.clamped),
        "dropped": dict(report.dropped),
        "examples": report.examples,
        "notes": report.notes,
        "warnings": ([origin.warning] if origin.warning else []) + inspection.warnings(),
        "inversions": report.inversions,
        "base": _base(origin.base_ns, origin.unit),
        **figures,
    }


def _base(ns: int | None, unit: str) -> str | int | float | None:
    if ns is None:
        return None
    shown = show_ns(ns, unit)
    if unit == "date":
        return shown
    number = ns / NANOSECONDS[unit]
    return int(number) if number == int(number) else number
