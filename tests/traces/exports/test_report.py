"""The report's page as text: whole in itself, closed to the network, and deaf to markup from outside."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from engine.records import Kind, Rejected
from tests.traces.exports.runs import Run, random_run
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.definitions import DEFINITIONS
from traces.exports import report as report_module
from traces.exports import report_figures, report_page
from traces.exports.report import write_report
from traces.metrics import LATENCIES, Metrics
from traces.slo import Slo

EVIL = "</script><img src=x onerror=alert(1)><b>&amp;"


class Page(HTMLParser):
    """Elements, tables by id, scripts, and everything that could fetch something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.marked: list[list[str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._inside = ""
        self._rows: list[list[str]] = []
        self._changed = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        self.tags.append((tag, have))
        self._inside = tag
        if tag == "table":
            self._rows = self.tables.setdefault(have.get("id") or "", [])
        elif tag == "tr":
            self._rows.append([])
            self._changed = have.get("class") == "changed"
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "script":
            self.scripts.append((have, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr" and self._changed:
            self.marked.append(self._rows[-1])
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            have, text = self.scripts[-1]
            self.scripts[-1] = have, text + data
        elif self._inside in ("td", "th"):
            self._rows[-1][-1] += data
        elif self._inside != "style":
            self.text += data

    @property
    def figures(self) -> dict[str, Any]:
        (data,) = [text for have, text in self.scripts if have.get("type") == "application/json"]
        figures: dict[str, Any] = json.loads(data)
        return figures


def page(run: Run, **options: Any) -> Page:
    out = io.StringIO()
    write_report(run.info, iter(run.records), out, **options)
    return Page(out.getvalue())


def test_nothing_is_fetched_and_only_our_scripts_run() -> None:
    told = page(random_run(1, count=5))
    for tag, have in told.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form", "a")
        assert not {"src", "href", "srcset", "data", "action"} & have.keys(), (tag, have)
        assert not [name for name in have if name.startswith("on")]
    (policy,) = [have["content"] for tag, have in told.tags if have.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    hashes = {
        "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for have, text in told.scripts
        if "type" not in have
    }
    assert set(re.findall(r"sha256-[A-Za-z0-9+/=]+", policy)) == hashes and len(hashes) == 2
    assert "unsafe-eval" not in policy and "http" not in policy


def test_markup_from_outside_stays_text() -> None:
    records = [
        record(0, 0.0, 1.0, arrived=(arrived(EVIL, 0.0, client=EVIL), arrived("b", 0.0, client="b")),
               rejected=(Rejected(EVIL + "2", EVIL, EVIL),), scheduled=(scheduled(EVIL, 4, kind=Kind.NEW),),
               tokens=(token(EVIL),), notices=(EVIL,)),
        record(1, 1.0, 2.0, scheduled=(scheduled(EVIL),), tokens=(token(EVIL),), fault=EVIL,
               finished=(finished(EVIL, output_len=2, client=EVIL),)),
    ]  # fmt: skip
    out = io.StringIO()
    run = Run(info(), records)
    write_report(run.info, run.records, out, title=EVIL)
    text = out.getvalue()
    assert text.count("</script>") == 3 and "<img" not in text.replace("plotly", "")[-60_000:]
    told = Page(text)
    assert "img" not in {tag for tag, _ in told.tags}
    assert EVIL in told.text and any(EVIL in row for row in told.tables["clients"])
    data = json.dumps(told.figures)
    assert "<img" not in data and "&lt;img" in data, "plotly reads markup too"


def test_metrics_tables_are_the_summary() -> None:
    run = random_run(3, count=60)
    metrics = Metrics(run.info)
    for it in run.records:
        metrics.add(it)
    summary = metrics.summary()
    told = page(run)
    rows = {row[0]: row for row in told.tables["metrics"][1:]}
    assert len(rows) == len(LATENCIES) + 1
    for name in (*LATENCIES, "itl_s"):
        definition = DEFINITIONS[name]
        _, n, mean, p50, *_, text = rows[definition.name]
        assert text == definition.text and int(n.replace(",", "")) == summary[name]["n"]
        assert float(mean.replace(",", "")) == pytest.approx(summary[name]["mean"] * 1000, rel=1e-3)
        assert float(p50.replace(",", "")) == pytest.approx(summary[name]["p50"] * 1000, rel=1e-3)
    assert rows["TTFT"][6] == "–" and rows["ITL"][6] != "–", "no p99 of fewer than 100 values"
    totals = {row[0]: row[1] for row in told.tables["totals"][1:]}
    assert totals["output tokens"] == f"{summary['tokens']['output']:,}" and totals["rejected"] == "1"
    causes = {row[0]: int(row[1]) for row in told.tables["causes"][1:]}
    assert causes == {cause: n for cause, n in summary["preemption"]["by_cause"].items() if n}
    most = told.tables["most-preempted"][1:]
    assert [int(row[2]) for row in most] == sorted((int(row[2]) for row in most), reverse=True)
    assert sum(int(row[6].replace(",", "")) for row in told.tables["clients"][1:]) == summary["preemptions"]


def test_knobs_that_changed_are_marked() -> None:
    run = random_run(3)
    told = page(run)
    marked = {row[0]: (row[1], row[2]) for row in told.marked}
    assert marked == {"num_blocks": ("30", "20"), "block_size": ("4", "8"), "num_cpu_blocks": ("40", "20")}
    assert ["max_num_seqs", "8", "4"] in [row[2:] for row in told.tables["changes"]]
    assert "engine built anew" in [row[2] for row in told.tables["changes"]]


def test_goodput_with_an_slo_only() -> None:
    run = random_run(1)
    assert "good requests" not in page(run).text
    told = page(run, slo=Slo(0.05, 0.02))
    assert "good requests" in told.text
    assert "Good requests: TTFT within 50 ms and TPOT within 20 ms (SLO custom)." in told.text
    assert {"goodput_rps", "slo_attainment"} <= {row[0] for row in told.tables["totals"]}


def test_long_runs_show_some_requests_and_say_so() -> None:
    run = random_run(1, count=50)
    told = page(run, requests=16)
    assert "13 of 51 requests, one in 4, in order of arrival" in told.text
    ids = [new.id for it in run.records for new in it.arrived]
    assert told.figures["requests"]["layout"]["yaxis"]["ticktext"] == ids[::4]
    assert "all requests, in order of arrival" in page(run).text


def test_a_timeline_of_too_many_phases_shows_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    run = random_run(1, count=50)
    every = [t for t in page(run).figures["requests"]["data"] if t["type"] == "bar"]
    lengths = sorted((length for t in every for length in t["x"]), reverse=True)
    monkeypatch.setattr(report_figures, "MOST_SPANS", 60)
    monkeypatch.setattr(report_page, "MOST_SPANS", 60)
    told = page(run)
    drawn = [length for t in told.figures["requests"]["data"] if t["type"] == "bar" for length in t["x"]]
    assert sorted(drawn, reverse=True) == lengths[:60] and len(lengths) > 100
    assert "Only the 60 longest phases are drawn." in told.text


def test_long_runs_keep_their_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = random_run(2, count=60)
    exact = page(run).figures
    monkeypatch.setattr(report_module, "BARS", 20)
    monkeypatch.setattr(report_module, "POINTS", 20)
    told = page(run)
    assert "each bar is the mean of 16 iterations" in told.text and "the least and the most of each" in told.text
    for id, name in (("kv", "used"), ("queues", "running"), ("queues", "waiting")):
        few, all_ = (next(t for t in figures[id]["data"] if t["name"] == name) for figures in (told.figures, exact))
        assert max(few["y"]) == max(all_["y"]) and len(few["y"]) <= 40 < len(all_["y"])
    assert len(next(t for t in told.figures["tokens"]["data"] if t["type"] == "bar")["x"]) <= 20
    line = next(t for t in told.figures["tokens"]["data"] if t["name"] == "most in one iteration")
    assert max(line["y"]) == max(it.total_tokens for it in run.records)


def test_a_run_without_records() -> None:
    told = page(Run(info(), []))
    assert told.figures == {} and "nothing to draw" in told.text


def test_the_same_run_gives_the_same_page() -> None:
    one, two = io.StringIO(), io.StringIO()
    for out in (one, two):
        run = random_run(3)
        write_report(run.info, run.records, out, title="x")
    assert one.getvalue() == two.getvalue()
