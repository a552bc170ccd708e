from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from engine.knobs import KNOBS
from workbench.text import clean, fit, fit_name, seconds, width_of, wrap

NASTY = (
    "\x1b[31mred\x1b[0m", "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]52;c;aGk=\x07", "\x1b]8;;http://x\x1b\\link",
    "bell\x07", "nul\x00", "tab\there", "cr\rover", "bs\b\b", "\x9b31mC1", "\x85nel", "\u202eright to left\u202c",
    "\u2066isolate\u2069", "zero\u200bwidth\ufeff", "line\u2028sep", "lone\ud800surrogate", "漢字と絵文字🙂", "é",
    "[red]", "[/]", "[", "[/", "[a=b:", "x[0]", "[@click=app.quit]x[/]", "[" * 1000, "\\[bold]",
)  # fmt: skip


def harmless(text: str) -> bool:
    return all(unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in text)


def test_nothing_that_acts_on_a_terminal_passes():
    for text in NASTY:
        assert harmless(clean(text)), ascii(text)
        clean(text).encode()
    assert clean("a\x1b[31mb") == "a␛[31mb"
    assert clean("a\nb\tc\rd") == "a↵b⇥c␍d"
    assert clean("[bold]x[/bold] [") == "[bold]x[/bold] ["


@given(st.text())
def test_any_text_is_made_harmless_and_fits(text):
    assert harmless(clean(text))
    for width in (0, 1, 2, 7, 30):
        assert cell_len(fit(clean(text), width)) == width
        assert cell_len(fit(clean(text), width, ">")) == width


@given(st.text(alphabet=st.characters(blacklist_categories=("Mn", "Me", "Mc"))), st.integers(2, 40))
def test_wrapped_lines_are_narrow_and_lose_nothing(text, width):
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    kept = "".join(lines).replace(" ", "")
    assert kept == "".join(clean(part) for part in text.replace("\r\n", "\n").split("\n")).replace(" ", "")


def test_a_long_line_is_wrapped_in_linear_time():
    assert len(wrap("x" * 20_000, 80)) == 250


def test_wide_characters_are_cut_to_cells():
    assert fit("漢字漢字", 5) == "漢字…"
    assert fit("漢字漢字", 4) == "漢 …"


def test_short_names_of_knobs_fit_and_stay_apart():
    labels = [knob.short for knob in KNOBS.values()]
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= 16


def test_durations_keep_to_six_cells():
    for value in (None, 0.0, 64e-6, 0.0614, 0.9996, 1.314, 9.999, 12.52, 99.99, 3120.4):
        assert len(seconds(value)) <= 6
    assert seconds(0.182) == "182ms" and seconds(1.31) == "1.31s"


def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end():
    assert fit_name("reason-1", 7) == "rea…n-1" and fit_name("reason-2", 7) == "rea…n-2"
    assert fit_name("carol", 7) == "carol  " and fit_name("reason-1", 4) == "rea…"
    for width in range(1, 12):
        assert width_of(fit_name("reason-1", width)) == width
