"""Pictures of the screen made without a terminal."""

from __future__ import annotations

import asyncio
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engine.errors import WorkbenchError
from tests.traces.exports.runs import random_run
from tests.workbench.driving import SMALL, WIDE, live_screen
from traces.recording import Header, Recorder, Recording
from workbench.app import Options, WorkbenchApp
from workbench.glyphs import GROUND, Mode
from workbench.playing import session_of
from workbench.shots import read_size, write_shot


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    run = random_run(1)
    path = tmp_path_factory.mktemp("shots") / "run.wbrec.jsonl"
    with Recorder(path, Header(run.info)) as recorder:
        for it in run.records:
            recorder.add(it)
    opened = Recording.open(path)
    yield opened
    opened.close()


def shot(recording: Recording, step: int | None, size: tuple[int, int], glyphs: Mode = Mode.COLOUR) -> str:
    out = io.StringIO()
    write_shot(recording, out, step=step, size=size, glyphs=glyphs)
    return out.getvalue()


def rows(svg: str) -> list[str]:
    """What stands in the picture, row by row, without blanks."""
    found: dict[float, str] = defaultdict(str)
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        found[float(element.get("y") or 0)] += element.text or ""
    return [re.sub(r"[\s\xa0]", "", text) for _, text in sorted(found.items())]


@pytest.mark.parametrize("glyphs", [Mode.ASCII, Mode.COLOUR])
@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_a_picture_is_what_a_person_would_have_seen(
    recording: Recording, size: tuple[int, int], glyphs: Mode
) -> None:
    """Every row of the screen that plays the recording, stepped to step 41 by hand, stands in the picture of it."""
    svg = await asyncio.to_thread(shot, recording, 41, size, glyphs)
    app = WorkbenchApp(lambda progress: session_of(recording), Options(fps=0, glyphs=glyphs))
    async with app.run_test(size=size) as pilot:
        screen = await live_screen(app, pilot)
        screen.look_at(40)
        screen.tick()
        await pilot.press("full_stop")
        await pilot.pause()
        screen.tick()
        await pilot.pause()
        lines = [re.sub(r"\s", "", strip.text) for strip in app.screen._compositor.render_strips()]
    assert set(filter(None, lines)) <= set(rows(svg))
    assert any("41" in line for line in lines[:1]), "the header tells the step"
    width, height = (float(value) for value in re.findall(r"[\d.]+", re.findall('viewBox="([^"]+)"', svg)[0])[2:])
    assert width > 10 * size[0] and height > 20 * size[1]


def test_the_last_step_is_shown_by_default(recording: Recording) -> None:
    assert rows(shot(recording, None, SMALL)) == rows(shot(recording, recording.last_step, SMALL))
    assert f"{recording.last_step}of{recording.last_step}" in "".join(rows(shot(recording, None, WIDE)))


def test_nothing_in_it_is_fetched(recording: Recording) -> None:
    svg = shot(recording, None, SMALL)
    ElementTree.fromstring(svg)
    assert not [
        url for url in re.findall(r"https?://[^\"' )<]+", svg) if "w3.org" not in url and "textualize" not in url
    ]
    assert "url(" not in re.sub(r"url\(#[^)]*\)", "", svg) and 'local("FiraCode-Regular")' in svg


def test_the_same_step_gives_the_same_picture(recording: Recording) -> None:
    assert shot(recording, 30, SMALL) == shot(recording, 30, SMALL)
    assert rows(shot(recording, 30, SMALL)) != rows(shot(recording, 31, SMALL))


def test_mistakes(recording: Recording, tmp_path: Path) -> None:
    out = tmp_path / "shot.svg"
    for step in (0, recording.last_step + 1):
        with pytest.raises(WorkbenchError, match=f"there is no iteration {step}"):
            write_shot(recording, out, step=step)
    assert not out.exists()
    out.write_text("old")
    with pytest.raises(WorkbenchError, match="is there already"):
        write_shot(recording, out)
    assert out.read_text() == "old"


@pytest.mark.parametrize("text", ["", "120", "120x", "0x0", "39x12", "40x11", "501x40", "axb", "120x40x2", "-1x40"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(WorkbenchError, match="--size"):
        read_size(text)


def test_sizes() -> None:
    assert read_size("120x40") == (120, 40) and read_size(" 40X12 ") == (40, 12)


def test_colours_are_not_those_of_the_terminal(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert GROUND.lower() in shot(recording, None, WIDE).lower()
