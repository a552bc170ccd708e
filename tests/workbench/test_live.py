"""The live screen, driven by keys and mouse at both design sizes; the engine is scripted."""

from __future__ import annotations

import random
import threading
import time

import pytest
from textual.command import CommandPalette
from textual.widgets import Input

from engine.commands import Abort, Pause, Resume, RunSteps, SetKnob, SetPace, Submit
from engine.errors import ModelError
from engine.request import RequestStatus
from tests.workbench.driving import SMALL, WIDE, driven, encode, live_screen
from tests.workbench.scripted import ScriptedHost, busy_host
from tests.workbench.test_text import NASTY, harmless
from traces.exports.kinds import KINDS
from traces.recording import Recording
from workbench.app import Options, WorkbenchApp
from workbench.glyphs import Mode
from workbench.log import log_path
from workbench.model.session import Session
from workbench.screens.asking import AskScreen
from workbench.screens.fault import FaultScreen
from workbench.screens.form import FormScreen
from workbench.screens.help import HelpScreen
from workbench.screens.inspect import InspectScreen
from workbench.screens.keys import BINDINGS, EXPORTS, KEYS
from workbench.screens.live import LiveScreen
from workbench.screens.loading import LoadingScreen
from workbench.widgets.events import Events
from workbench.widgets.footer import LIVE
from workbench.widgets.footer import WIDE as WIDE_FOOTER
from workbench.widgets.inject import InjectForm
from workbench.widgets.kvmap import KvMap
from workbench.widgets.timeline import Timeline

sizes = pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])


# ---- the picture ----------------------------------------------------------------------------------


async def test_the_wide_screen_has_every_panel():
    async with driven(WIDE) as here:
        text = here.text()
        for title in ("Batch timeline", "Knobs", "Queues", "Token budget", "Latency by client", "KV blocks", "Events"):
            assert f" {title} " in text
        assert "step 60" in here.lines()[0] and "RUN" in here.lines()[0]
        assert [len(line) for line in here.lines()] == [120] * 40


async def test_the_small_screen_has_one_panel_at_a_time():
    async with driven(SMALL) as here:
        assert here.lines()[0].startswith(" WB ▸RUN") and "‹KV›" in here.text()
        seen = []
        for _ in range(7):
            await here.press("tab")
            seen.append(here.app.focused.id)
            assert seen[-1] == "budget" or f"┌ {here.app.focused.TITLE} " in here.text()
        assert seen == ["budget", "kv", "queues", "events", "latency", "knobs", "timeline"]
        await here.press("shift+tab")
        assert here.app.focused.id == "knobs"


@pytest.mark.parametrize("size", [(104, 34), (104, 45), (130, 34), (100, 32), (240, 70), (118, 38)])
async def test_sizes_between(size):
    async with driven(size) as here:
        lines = here.lines()
        assert len(lines) == size[1] and all(len(line) == size[0] for line in lines)
        assert "Batch timeline" in here.text() and "KV blocks" in here.text() and "Knobs" in here.text()


async def test_too_small_says_so_and_the_engine_goes_on():
    async with driven(WIDE) as here:
        await here.resize(60, 20)
        await here.run(20)
        assert "need 80x24, have 60x20" in here.text()
        assert here.live.history.last_step == 80
        await here.resize(80, 24)
        await here.run(0)
        assert here.lines()[0].startswith(" WB ▸RUN")


async def test_a_storm_of_sizes_ends_in_the_same_screen():
    chance = random.Random(1)
    async with driven(SMALL) as here:
        before = here.lines()
        for n in range(40):
            size = (chance.randint(1, 400), chance.randint(1, 120)) if n % 3 else (chance.randint(1, 9), n % 7 + 1)
            await here.resize(*size)
            here.live.tick()
            if n % 10 == 0:
                await here.press(chance.choice(["tab", "z", "m", "comma", "end", "down", "g"]))
        for key in ("escape", "end"):
            await here.press(key)
        here.live.board.zoomed, here.live.board.tab, here.live.selected = "", "kv", None
        here.app.mode = Mode.COLOUR
        here.app._apply_mode()
        here.live.query_one(KvMap).mode = "owner"
        here.live.timeline.focus()
        here.live.board.sync()
        await here.resize(*SMALL)
        await here.run(0)
        here.live.status.say("")
        await here.pilot.pause()
        assert here.lines() == before


async def test_nothing_is_painted_when_nothing_changes():
    async with driven(WIDE) as here:
        painted = []
        original = here.live.paint
        here.live.paint = lambda: (painted.append(1), original())  # type: ignore[method-assign]
        here.host.paused = True
        for _ in range(5):
            here.live.tick()
        assert not painted


# ---- every key ------------------------------------------------------------------------------------


@sizes
async def test_every_binding_has_an_id_and_every_key_can_be_pressed(size, tmp_path):
    ids = [binding.id for binding in BINDINGS]
    assert all(ids) and len(set(ids)) == len(ids)
    async with driven(size, screenshots=tmp_path) as here:
        for key in KEYS:
            if key.id == "app.quit":
                continue
            for name in key.keys.split(","):
                await here.press(name)
                if here.app.screen is not here.live or here.live.board.form:
                    await here.press("escape")
                assert here.app.screen is here.live, name
        assert here.app.is_running


@sizes
async def test_pause_step_and_pace(size):
    async with driven(size) as here:
        here.host.posted.clear()
        await here.press("space")
        assert here.host.posted == [Pause()]
        await here.run(5)
        assert here.live.history.live.paused and "PAUSED" in here.lines()[0]
        step = here.live.history.last_step
        await here.press("n")
        assert here.host.posted[-1] == RunSteps(1)
        await here.run(5)
        assert here.live.history.last_step == step + 1 and here.live.history.live.paused
        await here.press("N")
        await here.run(30)
        assert here.live.history.last_step == step + 11
        await here.press("space")
        assert here.host.posted[-1] == Resume()
        await here.press("minus", "minus")
        assert here.host.posted[-1] == SetPace(50) or here.host.posted[-1] == SetPace(20)
        await here.press("plus")
        await here.run(1)
        assert here.live.history.live.pace in (50, None)


async def test_two_quick_presses_pause_and_resume():
    async with driven(WIDE) as here:
        here.host.posted.clear()
        await here.pilot.press("space", "space")
        assert here.host.posted == [Pause(), Resume()] or here.host.posted == [Pause(), Pause(), Resume()][::2]


@sizes
async def test_select_inspect_and_abort(size):
    async with driven(size) as here:
        await here.press("a")
        first = here.live.timeline.shown[0]
        assert here.live.selected == first and "has ended already" in here.text()
        here.live.selected = None
        await here.press("down", "down", "up")
        ids = here.live.scene.ids
        assert here.live.selected == ids[0]
        await here.press("enter")
        assert isinstance(here.app.screen, InspectScreen)
        for word in ("sampling", "timing", "blocks", "Prompt (", "Answer ("):
            assert word in here.text() or size == SMALL
        await here.run(10)
        await here.press("pagedown", "end", "home", "escape")
        assert here.app.screen is here.live
        running = here.live.history.live.running[0]
        here.live.selected = running
        await here.press("a")
        assert here.host.posted[-1] == Abort(running)
        await here.run(1)
        assert here.live.history.live.requests[running].status is RequestStatus.FINISHED
        assert any(event.aborted and event.id == running for event in here.live.history.events)


@sizes
async def test_the_footer_below_a_window_offers_what_works_there(size):
    async with driven(size) as here:
        below = here.lines()[-1]
        for key, words in (("enter", "Follow"), ("question_mark", "Scroll"), ("slash", "Go"), ("ctrl+p", "Do it")):
            await here.press(key)
            here.live.tick()
            await here.pilot.pause()
            shown = here.live.query_one("#footer").render_line(0).text
            assert words in shown and "Inject" not in shown
            if key == "enter":
                await here.press("question_mark")
                assert isinstance(here.app.screen, InspectScreen)
            await here.press("escape")
            assert here.app.screen is here.live and here.lines()[-1] == below, key


async def test_what_was_sent_is_selected_and_what_is_gone_is_not():
    async with driven(WIDE, ScriptedHost(), steps=0) as here:
        await here.press("i", "enter", "escape")
        await here.run(1)
        assert here.live.selected == "ui-0"
        await here.press("I")
        await here.run(1)
        assert here.live.selected == "ui-0"
        here.host.post(Abort("ui-0"))
        await here.run(2)
        await here.press("I")
        await here.run(1)
        assert here.live.selected == "ui-2"
        for id in ("ui-1", "ui-2"):
            here.host.post(Abort(id))
        for n in range(30):
            here.host.submit(f"other-{n}", 20, 60)
        await here.run(1)
        here.live.hush()
        await here.run(30)
        assert here.live.selected is None and "C has left the rows" in here.text()
        await here.press("enter")
        assert here.live.selected == here.live.timeline.shown[0] != "ui-2"


async def test_a_notice_goes_when_something_else_is_done():
    async with driven(WIDE) as here:
        await here.press("t", *"999", "enter")
        assert here.live.cursor == 60 or here.live.cursor is None
        assert "step 999 is not here: showing 60" in here.text()
        await here.press("comma")
        assert "is not here" not in here.text()
        await here.press("t", "x", "enter")
        assert "not a step number" in here.text()
        await here.press("down")
        assert "not a step number" not in here.text()


async def test_the_answer_streams_into_the_window():
    host = ScriptedHost()
    host.submit("a", 20, 60)
    async with driven(WIDE, host, steps=5) as here:
        await here.press("down", "enter")
        assert "Paged attention stores" in here.text()
        assert "blocks that need" not in here.text()
        await here.run(20)
        assert "blocks that need" in here.text() and "streaming" in here.text()


async def test_selection_survives_rows_that_come_and_go():
    async with driven(SMALL) as here:
        for _ in range(12):
            await here.press("down")
        chosen = here.live.selected
        assert chosen in here.live.timeline.shown
        await here.run(10)
        assert here.live.selected == chosen
        await here.press("pageup", "pagedown")


@sizes
async def test_knobs_are_turned_applied_refused_and_undone(size):
    async with driven(size) as here:
        knobs = here.live.knobs
        await here.press("k", "right_square_bracket")
        assert here.app.focused is knobs and knobs.wanted == {"max_num_seqs": 7}
        assert "7*" in here.text()
        await here.press("enter")
        assert here.host.posted[-1] == SetKnob("max_num_seqs", 7)
        await here.run(1)
        assert here.live.history.live.knobs["max_num_seqs"] == 7
        assert "max_num_seqs applied at step" in knobs.answer and not knobs.asked
        await here.press("down", "left_square_bracket", "left_square_bracket", "left_square_bracket")
        for _ in range(8):
            await here.press("left_square_bracket")
        await here.press("enter")
        await here.run(1)
        assert "refused" in knobs.answer and "max_num_seqs" in knobs.answer
        await here.press("u")
        await here.run(1)
        assert here.live.history.live.knobs["max_num_seqs"] == 6
        await here.press("u")
        assert "nothing left to undo" in here.text()
        await here.press("right", "escape")
        assert not knobs.wanted
        await here.press("escape")
        assert here.app.focused is here.live.timeline


@sizes
async def test_inject_form(size):
    async with driven(size, ScriptedHost(), steps=0) as here:
        await here.press("I")
        assert "nothing was injected yet" in here.text()
        await here.press("i")
        form = here.app.screen.query_one(InjectForm)
        assert isinstance(here.app.screen, FormScreen) == (size == SMALL)
        note = lambda: str(form.query_one("#inject-note").render())  # noqa: E731
        assert "blocks at admission" in note() and "fits" in note()
        field = form.query_one("#inject-max_tokens", Input)
        field.value = "x"
        await here.pilot.pause()
        assert "max_tokens: 'x' is not a whole number" in note()
        await here.press("enter")
        assert not any(isinstance(command, Submit) for command in here.host.posted)
        assert here.app.focused is field
        await here.press("escape")
        assert here.app.screen is here.live and not here.live.query(InjectForm)
        await here.press("i")
        form = here.app.screen.query_one(InjectForm)
        assert form.query_one("#inject-max_tokens", Input).value == "x"
        form.query_one("#inject-max_tokens", Input).value = "9"
        form.query_one("#inject-count", Input).value = "3"
        form.query_one("#inject-prompt", Input).value = ""
        await here.press("q", "space", "q")
        await here.press("enter")
        submit = here.host.posted[-1]
        assert isinstance(submit, Submit) and len(submit.requests) == 3
        assert submit.requests[0].prompt_text == "q q" and submit.requests[0].params.max_tokens == 9
        await here.press("escape")
        await here.press("I")
        assert len(here.host.posted[-1].requests) == 3
        await here.run(3)
        assert len(here.live.history.live.requests) == 6


async def test_the_open_form_moves_to_a_window_and_keeps_its_values():
    async with driven(WIDE) as here:
        await here.press("i", "X")
        await here.resize(*SMALL)
        await here.run(0)
        assert isinstance(here.app.screen, FormScreen)
        assert here.app.screen.query_one("#inject-prompt", Input).value.endswith("X")
        await here.press("tab", "tab", "escape")
        assert here.app.screen is here.live


async def test_pasted_lines_are_kept():
    from textual.events import Paste

    async with driven(SMALL, ScriptedHost(), steps=0) as here:
        await here.press("i")
        field = here.app.screen.query_one("#inject-prompt", Input)
        field.value = ""
        field.post_message(Paste("one\ntwo\x1b[31m[red]"))
        await here.pilot.pause()
        await here.press("enter")
        assert here.host.posted[-1].requests[0].prompt_text == "one\ntwo\x1b[31m[red]"


async def test_a_paste_reaches_the_model_unaltered_and_is_shown_harmless():
    from textual.events import Paste

    family, text = "👨\u200d👩\u200d👧", "a\rb\r\nc\td\u200be\u202ef❤\ufe0f↵ "
    async with driven(WIDE, ScriptedHost(), steps=0) as here:
        await here.press("i")
        field = here.live.query_one("#inject-prompt", Input)
        field.post_message(Paste(text + family))
        await here.pilot.pause()
        assert harmless(here.text().replace("\n", "")) and "a↵b↵c⇥d�e�f❤�↵ 👨�👩�👧" in here.text()
        await here.press("left", "left", "X", "enter")
        sent = here.host.posted[-1].requests[0].prompt_text
        assert sent == "a\nb\nc\td\u200be\u202ef❤\ufe0f↵ 👨\u200d👩X\u200d👧"


@sizes
async def test_keys_typed_in_one_burst_go_to_the_field_chosen_by_tab(size):
    from textual.events import Key as KeyEvent

    async with driven(size, ScriptedHost(), steps=0) as here:
        await here.press("i")
        form = here.app.screen.query_one(InjectForm)
        form.query_one("#inject-prompt", Input).value = "hi"
        for key in ("tab", "ctrl+u", "8", "0", "0", "0", "tab", "tab", "ctrl+u", "shift+tab", "shift+tab", "1"):
            here.app._driver.send_message(KeyEvent(key, key if len(key) == 1 else None))
        values: list[str] = []
        for _ in range(50):
            await here.pilot.pause(0.01)
            values = [form.query_one(f"#inject-{name}", Input).value for name in ("prompt", "length", "max_tokens")]
            if values[1:] == ["80001", ""]:
                break
        assert values == ["hi", "80001", ""]


async def test_the_note_is_about_what_stands_in_the_fields_now():
    async with driven(WIDE, ScriptedHost(), steps=0) as here:
        await here.press("i")
        form = here.live.query_one(InjectForm)
        note = lambda: str(form.query_one("#inject-note").render())  # noqa: E731
        form.query_one("#inject-count", Input).value = "x"
        form.post_message(InjectForm.Typed())
        await here.pilot.pause()
        assert "✗ count: 'x' is not a whole number" in note()
        for name, value, text in (
            ("length", "８０", "random: '８０' is not a whole number"),
            ("length", "1_0", "random: '1_0' is not a whole number"),
            ("length", "9" * 5000, "random: 5000 digits are out of range"),
            ("temperature", "-1", "temp: -1 is out of range"),
            ("temperature", "nan", "temp: 'nan' is not a number"),
            ("temperature", "1e999", "temp: 1e999 is out of range"),
            ("deadline", "soon", "due: 'soon' is not a number"),
            ("max_tokens", "8000000", "max_tokens will be cut to "),
        ):
            for field in form.query(Input):
                field.value = {"inject-count": "1", "inject-temperature": "0"}.get(field.id, "")
            form.query_one("#inject-prompt", Input).value = "hi"
            form.query_one(f"#inject-{name}", Input).value = value
            await here.pilot.pause()
            assert text in note(), name


@sizes
async def test_the_longest_numbers_are_seen_whole(size):
    longest = {"length": "8388608", "max_tokens": "8388608", "count": "1000", "priority": "-1000"}
    longest |= {"temperature": "1e-300", "deadline": "0.25", "seed": "18446744073709551615"}
    async with driven(size, ScriptedHost(), steps=0) as here:
        await here.press("i")
        form = here.app.screen.query_one(InjectForm)
        for name, value in longest.items():
            form.query_one(f"#inject-{name}", Input).value = value
        await here.press("tab")
        for value in longest.values():
            assert f" {value} " in here.text(), value


@sizes
async def test_looking_back_and_returning(size):
    async with driven(size, steps=120) as here:
        live = here.live
        await here.press("comma")
        assert live.cursor == 119 and "viewing 119 (1 behind live)" in here.lines()[0]
        await here.press("less_than_sign", "comma")
        assert live.cursor == 108 and live.scene.view.step == 108
        assert "step 108:" in here.text()
        await here.run(10)
        assert live.cursor == 108 and live.history.last_step == 130
        await here.press("full_stop", "greater_than_sign")
        assert live.cursor == 119
        await here.press("home")
        assert live.cursor == 1
        await here.press("end")
        assert live.cursor is None and "viewing" not in here.lines()[0]
        await here.press("left_parenthesis")
        first = live.cursor
        assert live.history.record_at(first).preempted
        await here.press("left_parenthesis")
        assert live.cursor < first
        await here.press("right_parenthesis")
        assert live.cursor == first
        await here.press("t", "4", "2", "enter")
        assert live.cursor == 42
        await here.press("t", "x", "enter")
        assert live.cursor == 42 and "not a step number" in here.text()
        await here.press("t", "escape", "escape")
        assert live.cursor is None
        await here.press("comma", "n")
        assert live.cursor is None


async def test_filters_of_rows_and_events():
    async with driven(WIDE) as here:
        await here.press("slash")
        assert isinstance(here.app.screen, AskScreen)
        await here.press(*"carol", "enter")
        view = here.live.scene.view
        assert here.live.scene.ids and all(view.requests[id].client == "carol" for id in here.live.scene.ids)
        assert "filter" in here.text()
        await here.press("escape")
        assert len(here.live.scene.ids) > 5
        await here.press("f")
        assert here.live.query_one(Events).note() == "f: preemptions"


async def test_zoom_help_palette_and_modes():
    async with driven(WIDE) as here:
        await here.press("z")
        assert list(here.live.board.arrangement().boxes) == ["header", "footer", "status", "scrubber", "timeline"]
        await here.press("tab")
        assert here.live.board.zoomed == "budget"
        await here.press("escape")
        assert here.live.board.zoomed == ""
        for name in ("timeline", "knobs", "queues", "budget", "latency", "kv", "events"):
            here.live.focus_panel(name)
            await here.press("question_mark")
            assert isinstance(here.app.screen, HelpScreen) and here.app.screen.text
            await here.press("escape")
        await here.press("m", "m")
        assert here.live.query_one(KvMap).mode == "cached"
        await here.press("x", "x")
        assert here.live.scene.per_column == 4 and "1 col = 4 steps" in here.text()
        await here.press("ctrl+p")
        assert isinstance(here.app.screen, CommandPalette)
        await here.pilot.press(*"pause")
        await here.pilot.pause(0.3)
        await here.pilot.press("enter")
        for _ in range(50):
            await here.pilot.pause(0.02)
            if Pause() in here.host.posted:
                break
        assert Pause() in here.host.posted


async def test_the_palette_opens_on_the_small_screen_wherever_the_focus_is():
    async with driven(SMALL) as here:
        for name in ("timeline", "kv", "knobs"):
            here.live.focus_panel(name)
            await here.press("ctrl+p")
            assert isinstance(here.app.screen, CommandPalette)
            await here.press("escape")
            assert here.app.screen is here.live


async def test_glyph_modes_go_round_and_mono_has_no_colour():
    async with driven(WIDE) as here:
        await here.press("g")
        assert here.app.mode is Mode.MONO
        styles = {segment.style for strip in here.app.screen._compositor.render_strips() for segment in strip}
        assert all(
            s is None or ((s.color is None or s.color.is_default) and (s.bgcolor is None or s.bgcolor.is_default))
            for s in styles
        )
        await here.press("g")
        assert here.app.mode is Mode.ASCII and here.text().isascii()
        await here.press("g")
        assert here.app.mode is Mode.COLOUR


async def test_no_color_of_the_environment(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with driven(WIDE) as here:
        for _ in range(3):
            assert not here.colours()
            await here.press("g")
            assert here.app.mode is not Mode.COLOUR


async def test_a_screenshot_is_saved_where_told(tmp_path):
    async with driven(WIDE, screenshots=tmp_path / "new") as here:
        await here.press("s")
        (path,) = (tmp_path / "new").iterdir()
        assert path.suffix == ".svg" and "Batch" in path.read_text() and "screenshot saved" in here.text()
    (tmp_path / "file").write_text("")
    async with driven(WIDE, screenshots=tmp_path / "file") as here:
        await here.press("s")
        assert "no screenshot" in here.text()


# ---- mouse ----------------------------------------------------------------------------------------


async def test_clicks_on_rows_blocks_tabs_and_keys():
    async with driven(SMALL) as here:
        await here.pilot.click(Timeline, offset=(5, 2))
        await here.run(0)
        assert here.live.selected == here.live.timeline.shown[1]
        await here.pilot.click("#tabs", offset=(8, 0))
        await here.run(0)
        assert here.live.board.tab == "queues"
        await here.pilot.click("#tabs", offset=(2, 0))
        await here.run(0)
        await here.pilot.click("#kv", offset=(7, 1))
        await here.run(0)
        assert "block 3:" in here.text()
        await here.pilot.click("#footer", offset=(2, 0))
        await here.run(0)
        assert Pause() in here.host.posted
        await here.pilot.click("#scrubber", offset=(20, 0))
        await here.run(0)
        assert here.live.cursor is not None
        await here.pilot.click("#knobs") if here.live.knobs.showing else None


async def test_the_block_cursor_moves():
    async with driven(WIDE) as here:
        here.live.focus_panel("kv")
        await here.press("right", "right", "down", "left", "up")
        assert here.live.query_one(KvMap).cursor is not None and "block " in here.text()
        await here.press("escape")
        assert here.live.query_one(KvMap).cursor is None


# ---- texts of others ------------------------------------------------------------------------------


@sizes
async def test_texts_that_try_to_act_are_shown_and_do_nothing(size):
    host = ScriptedHost(pieces=NASTY)
    for n, text in enumerate(NASTY[:6]):
        host.submit(f"id{text}", 10 + n, 40, client=text, prompt_text=text * 3)
    async with driven(size, host, steps=50) as here:
        for keys in (
            (),
            ("down", "enter"),
            ("end",),
            ("escape", "tab"),
            ("tab",),
            ("tab",),
            ("slash", *"[/]", "enter"),
        ):
            await here.press(*keys)
            assert harmless(here.text().replace("\n", ""))
        assert all(sum(1 for _ in line) <= size[0] for line in here.lines())
        here.host.post(SetKnob("no[/]such\x1b[2J", 1))
        await here.run(1)
        assert harmless(here.text().replace("\n", ""))


@sizes
async def test_nasty_texts_typed_into_every_field(size):
    async with driven(size, ScriptedHost(), steps=0) as here:
        await here.press("i")
        form = here.app.screen.query_one(InjectForm)
        for text in NASTY[:: 2 if size == WIDE else -2]:
            text = text.replace("\ud800", "")
            for field in form.query(Input):
                field.value = text
            await here.pilot.pause()
            await here.press("enter")
            assert harmless(here.text().replace("\n", "")), ascii(text)
        form.query_one("#inject-prompt", Input).value = "x" * 100_000
        await here.pilot.pause()
        await here.press("escape")


# ---- beginning and end ----------------------------------------------------------------------------


async def test_the_first_picture_comes_before_the_model():
    go = threading.Event()

    def load(progress):
        progress("reading [weights]", 3, 10)
        go.wait(5)
        return Session(busy_host(), encode)

    app = WorkbenchApp(load, Options(fps=0))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.pause(0.2)
        assert isinstance(app.screen, LoadingScreen)
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "reading [weights]" in text and "3/10" in text and "█" in text
        go.set()
        await live_screen(app, pilot)


@pytest.mark.parametrize(("error", "code"), [(ModelError("no [such] model"), 2), (RuntimeError("[/] oops"), 1)])
async def test_a_failed_load_ends_with_its_message(error, code, capfd):
    def load(progress):
        raise error

    app = WorkbenchApp(load, Options(fps=0))
    async with app.run_test(size=SMALL) as pilot:
        for _ in range(100):
            if app.return_code is not None:
                break
            await pilot.pause(0.02)
    assert app.return_code == code
    assert str(error) in capfd.readouterr().err


async def test_quit_while_loading():
    app = WorkbenchApp(lambda progress: time.sleep(30), Options(fps=0))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("q")
        begun = time.monotonic()
    assert app.return_code == 0 and time.monotonic() - begun < 2


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quit_ends_within_two_seconds_though_the_engine_hangs(key):
    host = busy_host()
    host.stuck = 60.0
    begun = 0.0
    async with driven(WIDE, host) as here:
        begun = time.monotonic()
        await here.pilot.press(key)
    here.app.stopping.join(1.5)
    assert host.stopped and time.monotonic() - begun < 2.0 and here.app.return_code == 0


async def test_a_fault_shows_its_traceback_over_the_screen():
    async with driven(WIDE) as here:
        here.host.fault("Traceback (most recent call last):\n  File [x]\nZeroDivisionError: [/] \x1b[2J")
        await here.run(0)
        assert isinstance(here.app.screen, FaultScreen)
        assert "ZeroDivisionError: [/] ␛[2J" in here.text()
        assert "ZeroDivisionError" in log_path().read_text() and log_path().name in here.text()
        assert " ".join(here.lines()[-1].split()) == "↑↓ Scroll esc Look at the screen g Glyphs s Screenshot q Quit"
        await here.press("escape")
        here.host.posted.clear()
        for key in ("i", "n", "space", "a", "plus", "u"):
            here.live.hush()
            await here.press(key)
            assert here.app.screen is here.live and "the engine has ended" in here.text()
        assert not here.host.posted and not here.live.board.form
        assert "FAULT" in here.lines()[0] and "Batch timeline" in here.text()
        await here.pilot.press("q")
    assert here.app.return_code == 1


async def test_a_workload_is_submitted_once_the_screen_is_there():
    from tests.workbench.scripted import traffic

    host = ScriptedHost()
    app = WorkbenchApp(lambda progress: Session(host, encode, tuple(traffic(3))), Options(fps=0, pace=5))
    async with app.run_test(size=SMALL) as pilot:
        live = await live_screen(app, pilot)
        host.advance(5)
        live.tick()
        assert host.posted[0] == SetPace(5) and len(live.history.live.requests) >= 1


async def test_frames_by_the_clock_and_a_slower_rate_when_they_cost_too_much():
    host = busy_host(by_itself=True, step_seconds=0.02)
    app = WorkbenchApp(lambda progress: Session(host, encode), Options(fps=15))
    async with app.run_test(size=SMALL) as pilot:
        live = await live_screen(app, pilot)
        for _ in range(100):
            await pilot.pause(0.02)
            if live.history.last_step > 5:
                break
        assert live.history.last_step > 5
        live._frames, live.frame_ms = 100, 500.0
        live._measure(time.monotonic())
        assert live.fps == 4
        live._frames, live.frame_ms = 100, 1.0
        live._cpu = time.thread_time()
        live._measure(time.monotonic())
        assert live.fps == 15


def test_the_footer_has_at_most_eight_entries_on_a_small_screen():
    assert len(LIVE) == 8 and sum(len(key) + len(word) + 3 for key, word, _ in LIVE) <= 80
    assert sum(len(key) + len(word) + 3 for key, word, _ in WIDE_FOOTER) <= 120


def test_every_action_of_the_footer_and_the_keys_exists():
    actions = {action for _, _, action in (*LIVE, *WIDE_FOOTER)} | {key.action for key in KEYS}
    for action in actions:
        name = action.partition("(")[0]
        target = WorkbenchApp if name.startswith("app.") else LiveScreen
        assert hasattr(target, "action_" + name.removeprefix("app.")), action


# ---- recording ------------------------------------------------------------------------------------


@sizes
async def test_a_recording_begun_early_holds_the_whole_run(size, tmp_path):
    async with driven(size, steps=30, screenshots=tmp_path) as here:
        await here.press("R")
        assert "REC" in here.lines()[0] and "from the beginning" in here.text()
        await here.run(30)
        await here.press("b", *"odd", "enter")
        await here.press("R")
        assert "REC" not in here.lines()[0] and "recording ended" in here.text()
        await here.run(10)
        kept = [here.live.history.record_at(step) for step in range(1, 61)]
    (path,) = tmp_path.glob("*.wbrec.jsonl")
    recording = Recording.open(path)
    assert [it for it in recording.iterations() if it.executed] == kept
    assert recording.bookmarks == [(60, "odd")] and recording.closed and not recording.notes


async def test_a_recording_begun_late_goes_on_from_there(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.model.history.MOST_BEFORE", 20)
    async with driven(steps=50, screenshots=tmp_path) as here:
        await here.press("R")
        assert "from here on" in here.text()
        await here.run(30)
        await here.press("R")
        state = here.live.history.live
    (path,) = tmp_path.glob("*.wbrec.jsonl")
    recording = Recording.open(path)
    assert (recording.first_step, recording.last_step) == (51, 80) and not recording.header.complete
    view = recording.view_at(80)
    assert (view.running, view.owners, view.refs, view.knobs) == (state.running, state.owners, state.refs, state.knobs)


async def test_where_no_recording_can_be_made_it_is_told(tmp_path):
    folder = tmp_path / "file"
    folder.write_text("")
    async with driven(screenshots=folder) as here:
        await here.press("R")
        assert "REC" not in here.lines()[0] and str(folder) in here.text().replace("\n", "")


async def test_exports_of_a_recording(tmp_path):
    async with driven(steps=40, screenshots=tmp_path) as here:
        here.live.action_export("html")
        await here.pilot.pause()
        assert "nothing is recorded yet" in here.text()
        await here.press("R", "R")
        for name, words in EXPORTS:
            assert KINDS[name].words == words
        here.live.action_export("requests-csv")
        for _ in range(200):
            if list(tmp_path.glob("*.requests.csv")) and not here.live._exporting:
                break
            await here.pilot.pause(0.02)
        here.live.tick()
        await here.pilot.pause()
        assert "requests as CSV:" in here.text()
    assert [name for name, _ in EXPORTS] == list(KINDS)
    (path,) = tmp_path.glob("*.requests.csv")
    assert len(path.read_text().splitlines()) > 5
