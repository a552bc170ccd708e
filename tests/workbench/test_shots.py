"""Pictures of the screen made without a terminal."""

from __future__ import annotations

import asyncio
import io
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engine.errors import WorkbenchError
from engine.records import Iteration
from tests.workbench.driving import SMALL, WIDE, driven
from tests.workbench.scripted import ScriptedHost, busy_host
from workbench.glyphs import Mode
from workbench.shots import read_size, write_shot


def busy(steps: int = 70) -> tuple[ScriptedHost, list[Iteration]]:
    host = busy_host()
    host.start()
    host.advance(steps)
    return host, host.drain()


def shot(step: int | None, size: tuple[int, int], glyphs: Mode = Mode.COLOUR, steps: int = 70) -> str:
    host, records = busy(steps)
    out = io.StringIO()
    write_shot(host.info, iter(records), out, step=step, size=size, glyphs=glyphs)
    return out.getvalue()


def rows(svg: str) -> list[str]:
    """What stands in the picture, row by row, without blanks."""
    found: dict[float, str] = defaultdict(str)
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        found[float(element.get("y") or 0)] += element.text or ""
    return [re.sub(r"[\s\xa0]", "", text) for _, text in sorted(found.items())]


@pytest.mark.parametrize("glyphs", [Mode.ASCII, Mode.COLOUR])
@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_a_picture_is_what_a_person_would_have_seen(size: tuple[int, int], glyphs: Mode) -> None:
    """Every row of the live screen after 40 steps stands in the picture of the same records."""
    svg = await asyncio.to_thread(shot, None, size, glyphs, 40)
    async with driven(size, steps=40, glyphs=glyphs) as here:
        lines = [re.sub(r"\s", "", line) for line in here.lines()]
    assert set(filter(None, lines)) <= set(rows(svg))
    width, height = (float(value) for value in re.findall(r"[\d.]+", re.findall('viewBox="([^"]+)"', svg)[0])[2:])
    assert width > 10 * size[0] and height > 20 * size[1]


def test_a_step_of_a_longer_run() -> None:
    """What came after it is not in the picture."""
    host, records = busy(70)
    out = io.StringIO()
    write_shot(host.info, [it for it in records if it.step <= 40], out, size=WIDE)
    assert rows(shot(40, WIDE)) == rows(out.getvalue())
    assert any("step40" in row for row in rows(out.getvalue()))


def test_nothing_in_it_is_fetched() -> None:
    svg = shot(None, SMALL)
    ElementTree.fromstring(svg)
    assert not [
        url for url in re.findall(r"https?://[^\"' )<]+", svg) if "w3.org" not in url and "textualize" not in url
    ]
    assert "url(" not in re.sub(r"url\(#[^)]*\)", "", svg) and 'local("FiraCode-Regular")' in svg


def test_the_same_step_gives_the_same_picture() -> None:
    assert shot(30, SMALL) == shot(30, SMALL)
    assert rows(shot(30, SMALL)) != rows(shot(31, SMALL))


def test_records_are_taken_up_to_the_step(tmp_path: Path) -> None:
    host, records = busy()
    taken: list[int] = []

    def given() -> object:
        for it in records:
            taken.append(it.step)
            yield it

    write_shot(host.info, given(), tmp_path / "shot.svg", step=20, size=SMALL)  # type: ignore[arg-type]
    assert taken[-1] == 21 and (tmp_path / "shot.svg").stat().st_size > 5000


def test_mistakes(tmp_path: Path) -> None:
    host, records = busy(10)
    out = tmp_path / "shot.svg"
    with pytest.raises(WorkbenchError, match="there is no step 11: the run has 10"):
        write_shot(host.info, records, out, step=11)
    assert not out.exists()
    out.write_text("old")
    with pytest.raises(WorkbenchError, match="is there already"):
        write_shot(host.info, records, out)
    assert out.read_text() == "old"


@pytest.mark.parametrize("text", ["", "120", "120x", "0x0", "39x12", "40x11", "501x40", "axb", "120x40x2", "-1x40"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(WorkbenchError, match="--size"):
        read_size(text)


def test_sizes() -> None:
    assert read_size("120x40") == (120, 40) and read_size(" 40X12 ") == (40, 12)
