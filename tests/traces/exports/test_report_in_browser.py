"""The report in headless Chromium: it opens from a folder, asks the network for nothing, draws, and draws what is true.

Skipped only where there is no Chromium or Chrome on the PATH; `make test` looks for one and installs it where it can.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.records import Kind, Phase, Rejected
from tests.traces.exports.runs import Run, random_run
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.exports.report import LATENCIES, write_report
from traces.metrics import Metrics

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb",
]  # fmt: skip
DRAWN = "body[data-drawn]"
MARKS = """id => {
  const place = document.getElementById(id);
  const drawn = selector => [...place.querySelectorAll(selector)].filter(e => {
    const box = e.getBBox ? e.getBBox() : {width: 1, height: 1};
    return box.width + box.height > 0;
  }).length;
  return drawn(".bars path, .scatterlayer path.js-line, .scatterlayer path.point, canvas");
}"""
EVIL = "</script><img src=x onerror=\"window.hacked=1\"><a href='javascript:window.hacked=1'>x</a>"

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on the PATH: the report is not looked at"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=60_000)
        yield browser
        browser.close()


class Opened:
    """A report in a page of its own; `troubles` is what a person would find in the console."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme=scheme)
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(DRAWN, state="attached", timeout=60_000)

    def data(self, id: str) -> list[dict[str, Any]]:
        """What plotly has drawn there, as it holds it itself."""
        traces: list[dict[str, Any]] = self.page.evaluate(
            "id => document.getElementById(id)._fullData.map(t => ({name: t.name, type: t.type, "
            "x: [...t.x], y: [...t.y], base: t.base && [...t.base]}))",
            id,
        )
        return traces


def opened(browser: Any, tmp_path: Path, run: Run, **options: Any) -> Opened:
    path = tmp_path / "report.html"
    write_report(run.info, run.records, path)
    return Opened(browser, path, **options)


def test_it_draws_everything_and_asks_for_nothing(browser: Any, tmp_path: Path) -> None:
    run = random_run(3, count=60)
    report = opened(browser, tmp_path, run)
    assert report.troubles == []
    assert report.requests == [(tmp_path / "report.html").as_uri()]
    ids = ("requests", "tokens", "queues", "kv", *(f"cdf-{name}" for name in LATENCIES))
    assert report.page.evaluate("document.body.dataset.drawn") == str(len(ids))
    for id in ids:
        assert report.page.evaluate("id => document.getElementById(id).querySelectorAll('svg.main-svg').length", id) > 0
        assert report.page.evaluate(MARKS, id) >= 2, f"{id} is empty"
    wide = report.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 1400, "the page is wider than its window"
    report.page.close()


def test_what_is_drawn_is_what_the_metrics_say(browser: Any, tmp_path: Path) -> None:
    run = random_run(3, count=60)
    metrics = Metrics(run.info)
    ended = [row for it in run.records for row in metrics.add(it)]
    summary = metrics.summary()
    report = opened(browser, tmp_path, run)
    tokens = {trace["name"]: trace for trace in report.data("tokens")}
    executed = [it for it in run.records if it.executed]
    for phase in Phase:
        assert tokens[phase]["y"] == [it.tokens_in(phase) for it in executed]
    assert len(tokens["prefill"]["y"]) == summary["iterations"]
    assert set(tokens["budget"]["y"]) == {it.budget for it in executed}
    kv = {trace["name"]: trace for trace in report.data("kv")}
    assert max(kv["used"]["y"]) == summary["kv"]["peak_used"]
    assert kv["capacity"]["y"][-1] == summary["kv"]["num_blocks"] - 1
    queues = {trace["name"]: trace for trace in report.data("queues")}
    assert max(queues["running"]["y"]) == max(len(it.running) for it in run.records)
    assert max(queues["waiting"]["y"]) == max(it.num_waiting for it in run.records)
    for name in LATENCIES:
        curve = report.data(f"cdf-{name}")[-1]
        assert curve["name"] == f"all (n {summary[name]['n']:,})"
        assert curve["y"][0] == 0 and curve["y"][-1] == 100
        assert curve["x"][-1] == pytest.approx(summary[name]["max"], abs=1e-6)
        half = next(x for x, y in zip(curve["x"], curve["y"], strict=True) if y >= 50)
        assert half == pytest.approx(summary[name]["p50"], rel=0.1)
    ttft = report.data("cdf-ttft_s")[-1]
    completed = sorted(row.ttft_s for row in ended if row.finish_reason == "length" and row.ttft_s is not None)
    assert ttft["x"][1:] == [round(value, 9) for value in completed]
    bars = [trace for trace in report.data("requests") if trace["type"] == "bar"]
    spent = {trace["name"]: sum(trace["x"]) for trace in bars}
    lost = sum(row.requeue_s for row in ended if row.finish_reason == "length")
    assert spent["preempted"] + spent["swapped"] == pytest.approx(lost, abs=0.02), "an aborted one may wait too"
    ends = {trace["name"]: len(trace["x"]) for trace in report.data("requests") if trace["type"] == "scatter"}
    assert ends == {"completed": summary["requests"]["completed"], "aborted": summary["requests"]["aborted"]}
    report.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_day_and_by_night(browser: Any, tmp_path: Path, scheme: str) -> None:
    """Text stands out from what is behind it (WCAG's 4.5 to 1), on the page and in the figures."""
    report = opened(browser, tmp_path, random_run(1, count=10), scheme=scheme)
    contrasts = report.page.evaluate(
        """() => {
          const light = text => {
            const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const back = light(getComputedStyle(document.body).backgroundColor);
          const of = (selector, what) => {
            const front = light(getComputedStyle(document.querySelector(selector))[what]);
            return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
          };
          return {body: of("body", "color"), dim: of("figcaption", "color"), tick: of("#kv .xtick text", "fill"),
                  legend: of("#kv .legendtext", "fill"), mark: of("tr.changed td, th", "color")};
        }"""
    )
    assert min(contrasts.values()) >= 4.5, contrasts
    behind = report.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert behind == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 26)")
    assert report.troubles == []
    report.page.close()


def test_colours_follow_the_system(browser: Any, tmp_path: Path) -> None:
    report = opened(browser, tmp_path, random_run(1, count=5))
    tick = "getComputedStyle(document.querySelector('#kv .xtick text')).fill"
    before = report.page.evaluate(tick)
    report.page.emulate_media(color_scheme="dark")
    for _ in range(200):  # the page's rule lets no text be run, so playwright cannot wait for a condition
        if report.page.evaluate(tick) != before:
            break
        report.page.wait_for_timeout(50)
    assert report.page.evaluate(tick) != before
    report.page.close()


def test_markup_from_outside_does_nothing(browser: Any, tmp_path: Path) -> None:
    records = [
        record(0, 0.0, 1.0, arrived=(arrived(EVIL, 0.0, client=EVIL), arrived("b", 0.0, client="b")),
               rejected=(Rejected(EVIL + "2", EVIL, EVIL),), notices=(EVIL,), tokens=(token(EVIL), token("b")),
               scheduled=(scheduled(EVIL, 4, kind=Kind.NEW), scheduled("b", 4, kind=Kind.NEW))),
        record(1, 1.0, 2.0, scheduled=(scheduled(EVIL), scheduled("b")), tokens=(token(EVIL), token("b")),
               finished=(finished(EVIL, output_len=2, client=EVIL), finished("b", output_len=2, client="b"))),
    ]  # fmt: skip
    report = opened(browser, tmp_path, Run(info(), records))
    page = report.page
    bar = page.locator("#requests .bars path").first
    bar.scroll_into_view_if_needed()
    bar.hover(force=True)
    page.wait_for_selector("#requests .hoverlayer text", state="attached")
    assert page.evaluate("window.hacked") is None
    assert (
        page.evaluate("document.querySelectorAll('img, a[href^=\"javascript\"], .user-select-none a[href]').length")
        == 0
    )
    labels = page.evaluate("[...document.querySelectorAll('#requests .ytick text')].map(e => e.textContent)")
    assert labels == ["</script><img s…", "b"], "shown as it is"
    assert "<img src=x" in page.evaluate("document.querySelector('#requests .hoverlayer').textContent")
    assert report.troubles == [] and len(report.requests) == 1
    page.close()
