from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.errors import RequestError
from engine.knobs import KNOBS, check_value
from engine.view import EngineView
from workbench.glyphs import GLYPHS, OWNERS, Look, Mode
from workbench.model.inject import FieldError, Values, check, fits, requests_of
from workbench.model.knob_steps import PACES, next_pace, step
from workbench.model.layout import PANELS, arrange
from workbench.model.letters import ALPHABET


@given(st.integers(0, 420), st.integers(0, 130), st.sampled_from(PANELS), st.sampled_from(("", *PANELS)), st.booleans())
def test_boxes_are_on_the_screen_and_do_not_overlap(width, height, tab, zoom, form):
    arrangement = arrange(width, height, tab, zoom, form)
    taken = set()
    for name, (x, y, w, h) in arrangement.boxes.items():
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, name
        cells = {(row, column) for row in range(y, y + h) for column in (x, x + w - 1)}
        assert not cells & taken, name
        taken |= cells
    if width < 80 or height < 24:
        assert list(arrangement.boxes) == ["note"]
    elif not zoom:
        assert sum(w * h for _, _, w, h in arrangement.boxes.values()) == width * height
        assert arrangement.boxes["timeline"].height >= 8
        shown = set(arrangement.boxes) | set(arrangement.tabs)
        assert set(PANELS) <= shown


def test_every_live_knob_steps_within_its_range():
    for name, knob in KNOBS.items():
        value = knob.default
        for direction in (1, -1):
            for fine in (False, True):
                at = value
                for _ in range(40):
                    at = step(knob, at, direction, fine=fine)
                    assert check_value(name, at) == at, (name, at)


def test_round_numbers_up_and_down():
    knob = KNOBS["max_num_batched_tokens"]
    assert [step(knob, 256, 1), step(knob, 300, 1), step(knob, 300, -1), step(knob, 1, -1)] == [384, 384, 256, 1]
    assert step(KNOBS["max_num_active_seqs"], 1, -1) is None
    assert step(KNOBS["max_num_active_seqs"], None, 1) == 1
    assert step(KNOBS["policy"], "fcfs", 1) == "priority"
    assert step(KNOBS["watermark"], 0.0, 1) == 0.05


def test_the_ladder_of_paces():
    pace, up = 1.0, [1.0]
    while pace is not None:
        pace = next_pace(pace, 1)
        up.append(pace)
    assert tuple(up) == PACES
    assert next_pace(None, 1) is None and next_pace(None, -1) == 50 and next_pace(1, -1) == 1
    assert next_pace(14.2, 1) == 20 and next_pace(14.2, -1) == 10


# ---- inject ---------------------------------------------------------------------------------------

CONFIG = EngineConfig.resolve({"num_blocks": 64, "block_size": 16})


def encode(text: str) -> list[int]:
    return [ord(c) % 100 for c in text]


def test_an_order_becomes_requests():
    order = check(Values(prompt="hello\nworld", client=" me ", count="3", max_tokens="8", seed="5", temperature="1"))
    requests = requests_of(order, 7, encode, 100, CONFIG.model_len).requests
    assert [r.id for r in requests] == ["ui-7", "ui-8", "ui-9"]
    assert [r.params.seed for r in requests] == [5, 6, 7]
    assert requests[0].prompt_text == "hello\nworld" and requests[0].client == "me"


def test_random_prompts_differ_and_repeat():
    order = check(Values(prompt="", length="40", count="2"))
    first, second = requests_of(order, 0, encode, 100, CONFIG.model_len).requests
    again = requests_of(order, 0, encode, 100, CONFIG.model_len).requests[0]
    assert first.token_ids == again.token_ids != second.token_ids and first.num_prompt == 40
    assert first.prompt_text is None and max(first.token_ids) < 100


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("length", "x"),
        ("length", "-1"),
        ("max_tokens", "0"),
        ("priority", "1.5"),
        ("count", ""),
        ("count", "100000"),
        ("temperature", "hot"),
        ("temperature", "-1"),
        ("temperature", "nan"),
        ("seed", "[red]"),
        ("prompt", ""),
    ],
)
def test_a_wrong_field_is_named(field, value):
    values = Values()
    setattr(values, field, value)
    with pytest.raises(FieldError) as error:
        check(values)
    assert error.value.field == field and "\n" not in str(error.value)


def test_prompts_that_can_never_run_are_refused():
    with pytest.raises(RequestError, match="too long"):
        requests_of(check(Values(length="5000")), 0, encode, 100, CONFIG.model_len)
    with pytest.raises(RequestError, match="no tokens"):
        requests_of(check(Values(prompt="x")), 0, lambda text: [], 100, CONFIG.model_len)


def test_fits_counts_blocks_at_admission_and_at_the_end():
    view = EngineView(64, 16, CONFIG.values())
    order = check(Values(max_tokens="64"))
    assert fits(order, 40, view) == (True, "40 tok: 3 blocks at admission, 7 at the end; 63 free: fits")
    assert fits(check(Values(count="10")), 40, view)[1].endswith("starts, may preempt later")
    assert fits(check(Values(count="30")), 40, view)[1].endswith("will wait")
    assert fits(order, 5000, view)[0] is False


# ---- glyphs ---------------------------------------------------------------------------------------


def test_no_two_states_of_a_panel_look_the_same_without_colour():
    for pick in (lambda glyph: glyph.char, lambda glyph: glyph.ascii):
        looks = [(glyph.panel, pick(glyph), glyph.attributes) for glyph in GLYPHS]
        assert len(set(looks)) == len(looks)


def test_glyphs_are_one_cell_and_ascii_is_ascii():
    from rich.cells import cell_len

    assert all(cell_len(glyph.char) == 1 and glyph.ascii.isascii() and len(glyph.ascii) == 1 for glyph in GLYPHS)


def test_mono_has_no_colour_at_all():
    for look in (Look(Mode.MONO), Look(Mode.ASCII, no_color=True)):
        styles = [*look.cells, look.text, look.error, look.title_focus, look.selected, look.owner("A"), look.owner("#")]
        styles += [look.named(glyph.panel, glyph.name)[1] for glyph in GLYPHS if glyph.panel != "timeline"]
        assert all(style.color is None and style.bgcolor is None for style in styles)
        assert len({look.owner("A"), look.owner("A", True), look.owner("A", False, True)}) == 3


def test_neighbouring_letters_have_different_colours():
    look = Look()
    styles = [look.owner(letter) for letter in ALPHABET]
    assert all(a != b for a, b in pairwise(styles)) and len(set(styles)) == len(OWNERS)
