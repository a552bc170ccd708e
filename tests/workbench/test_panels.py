"""Lines of the panels, without an application."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.geometry import Size

from tests.workbench.scripted import ScriptedHost, busy_host
from tests.workbench.test_history import run
from workbench.glyphs import Look, Mode
from workbench.model.layout import arrange
from workbench.widgets.budget import Budget
from workbench.widgets.events import Events
from workbench.widgets.knobs import Knobs
from workbench.widgets.kvmap import KvMap, about_block
from workbench.widgets.latencies import Latencies
from workbench.widgets.panel import Panel, Scene
from workbench.widgets.queues import Queues
from workbench.widgets.scrubber import Scrubber
from workbench.widgets.status import Status
from workbench.widgets.timeline import Timeline

PANELS: dict[str, type[Panel]] = {
    "timeline": Timeline, "budget": Budget, "kv": KvMap, "queues": Queues, "events": Events, "latency": Latencies,
    "knobs": Knobs, "scrubber": Scrubber, "status": Status,
}  # fmt: skip


def scene_of(host: ScriptedHost, steps: int, **more) -> Scene:
    history = run(host, steps)
    view = history.live if more.get("cursor") is None else history.view_at(more["cursor"])
    return Scene(history, view, ids=history.order(view), **more)


def drawn(panel: Panel, scene: Scene, width: int, height: int) -> list[str]:
    panel._size = Size(width, height)
    panel.set_view(scene)
    lines = [panel.render_line(y) for y in range(height)]
    assert all(strip.cell_length == cell_len(strip.text) == width for strip in lines)
    return [strip.text for strip in lines]


@pytest.fixture(autouse=True)
def _sizes_of_their_own(monkeypatch):
    """A panel that is on no screen has no size; here it has the one it is given."""
    for kind in PANELS.values():
        monkeypatch.setattr(kind, "size", property(lambda self: self._size), raising=False)


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("mode", list(Mode))
def test_every_line_is_exactly_as_wide_as_the_panel_at_any_size(name, mode):
    scene = scene_of(busy_host(), 70, look=Look(mode))
    past = scene_of(busy_host(), 70, look=Look(mode), cursor=40, fixed_right=70)
    for width, height in ((0, 0), (1, 1), (2, 5), (7, 3), (28, 8), (34, 12), (78, 7), (86, 19), (120, 1), (400, 50)):
        for one in (scene, past):
            text = "".join(drawn(PANELS[name](id=name), one, width, height))
            assert mode is not Mode.ASCII or text.isascii()


def test_the_timeline_draws_what_happened():
    lines = drawn(Timeline(), scene_of(busy_host(), 56), 86, 19)
    rows = {line[1]: line[21:-1].strip() for line in lines[2:-2]}
    assert lines[0].startswith("┌ Batch timeline ─") and "1 col = 1 step" in lines[0]
    assert rows["E"] == "····················█████────────────────◆"
    assert rows["H"] == "····················█░─────────×·▚───"
    assert "░▒▓█ prefill" in lines[-2]


def test_the_timeline_in_ascii():
    scene = scene_of(busy_host(), 56, look=Look(Mode.ASCII))
    rows = {line[1]: line[21:-1].strip() for line in drawn(Timeline(), scene, 86, 19)[2:-2]}
    assert rows["E"] == "....................44444----------------$"
    assert rows["H"] == "....................41---------x.R---"


def test_columns_of_several_steps_say_so():
    scene = scene_of(busy_host(), 120, per_column=4)
    lines = drawn(Timeline(), scene, 86, 19)
    assert "1 col = 4 steps" in lines[0]
    assert any("×" in line for line in lines[2:-2])


def test_the_budget_adds_up_in_words():
    lines = drawn(Budget(), scene_of(busy_host(), 50, cursor=30, fixed_right=50), 86, 8)
    assert lines[1].startswith("│64 tok") and "step 30" in lines[6] and "/ 64" in lines[6]
    assert "mean 30 steps" in lines[5]
    assert drawn(Budget(), scene_of(busy_host(), 50), 80, 1)[0].startswith(" budget ")


def test_the_map_shows_owner_refcount_and_cached():
    panel = KvMap()
    scene = scene_of(busy_host(), 70)
    letters = "".join(line[4:] for line in drawn(panel, scene, 60, 9)[1:3])
    assert letters[0] == "■"
    for id in scene.view.running:
        held = set(scene.view.requests[id].blocks)
        assert letters.count(scene.history.letters.of(id)) <= len(held)
    panel.next_mode()
    counts = "".join(line[4:] for line in drawn(panel, scene, 60, 9)[1:3])
    assert [int(c) for c in counts[1:36] if c.isdigit()] == [ref for ref in scene.view.refs[1:] if ref]
    panel.next_mode()
    assert "m: cached" in drawn(panel, scene, 60, 9)[0]
    assert about_block(scene, 0).startswith("block 0: reserved")
    block = scene.view.requests[scene.view.running[0]].blocks[0]
    assert "tokens 0..15" in about_block(scene, block)


def test_a_big_pool_shares_cells_and_stays_in_step():
    host = ScriptedHost({"num_blocks": 5000})
    for n in range(8):
        host.submit(f"r{n}", 300, 20)
    history = run(host, 10)
    panel, fresh = KvMap(), KvMap()
    panel.showing = True
    for _ in range(5):
        host.advance(3)
        for it in host.drain():
            history.append(it)
        changed = set(history.changed_blocks)
        history.changed_blocks.clear()
        scene = Scene(history, history.live, changed=changed)
        lines = drawn(panel, scene, 60, 9)
    assert "1 cell = " in lines[0]
    assert lines == drawn(fresh, Scene(history, history.live), 60, 9)


@pytest.mark.parametrize("mode", ["owner", "refcount", "cached"])
@pytest.mark.parametrize("cursor", [None, 40])
def test_the_map_explains_its_cells_and_keeps_its_mode_on_the_wide_screen(mode, cursor):
    host = ScriptedHost({"num_blocks": 512})
    host.submit("a", 200, 80)
    panel = KvMap()
    panel.mode = mode
    lines = drawn(panel, scene_of(host, 60, cursor=cursor), 60, 9)
    assert f"  m: {mode} ─┐" in lines[0] and "511+null x 16 tok" in lines[0]
    words = {"owner": ("letter = owner",), "refcount": ("digit = users",), "cached": ("C cached", "-held")}[mode]
    for word in (*words, "·free", "+cached", "■null", "free 49", "/511", "peak "):
        assert word in lines[-2], word
    assert "letter = owner  · free  + cached  ■ null block" in drawn(KvMap(), scene_of(host, 0), 100, 9)[-2]


def test_the_window_of_the_scrubber_is_seen_under_many_marks():
    from textual.strip import Strip

    host = ScriptedHost({"num_blocks": 24})
    for n in range(80):
        host.submit(f"r{n}", 60, 90)
    scene = scene_of(host, 2000)
    panel = Scrubber()
    for window in ((1900, 1905), (1000, 1200), (1990, 2001)):
        panel.window = window
        drawn(panel, scene, 80, 1)
        strip: Strip = panel.render_line(0)
        ground = scene.look.named("marks", "window")[1]
        cells = [s for s in strip if s.text.strip() and s.style is not None and s.style.color == ground.color]
        assert any("█" in s.text or s.style.underline for s in cells), window


def test_a_cut_knob_help_says_that_it_is_cut(monkeypatch):
    panel = Knobs()
    monkeypatch.setattr(Knobs, "has_focus", True)
    scene = scene_of(busy_host(), 5)
    from workbench.model.knob_table import NAMES

    for n, name in enumerate(NAMES):
        panel.chosen = n
        lines = [line[1:-1].rstrip() for line in drawn(panel, scene, 34, 11)[-4:-2]]
        assert name in "".join(lines)
        assert lines[-1].endswith(("…", ".")) or "…" not in "".join(lines), lines


def test_the_queues_tell_why_with_numbers():
    lines = drawn(Queues(), scene_of(busy_host(), 30), 34, 9)
    text = " ".join(line.strip("│ ") for line in lines)
    assert "run  A─" in text and "blocks needed" in text and "behind" in text


def test_the_status_tells_the_step_under_the_cursor():
    line = drawn(Status(), scene_of(busy_host(), 50, cursor=30), 120, 1)[0]
    assert line.startswith(" step 30:") and "/64" in line and "free" in line


def test_every_knob_has_a_row_made_from_the_table():
    from engine.knobs import KNOBS
    from workbench.model.knob_table import NAMES

    assert set(NAMES) == {*KNOBS, "pace", "model", "dtype"}
    lines = drawn(Knobs(), scene_of(busy_host(), 5), 60, len(NAMES) + 4)
    for name in NAMES:
        shown = (name, KNOBS[name].short) if name in KNOBS else (name,)
        assert any(text in line for line in lines for text in shown), name
    assert any("block_size" in line and "rebuild" in line for line in lines)
    assert any("num_blocks" in line and "2..36" in line for line in lines)


def test_brackets_and_control_codes_stay_text():
    host = ScriptedHost(pieces=("[bold]", "\x1b[2J", "[/]", "\u202e", "[@click=app.quit]x"))
    host.submit("[/]", 20, 30, client="[red]\x1b[31m")
    host.advance(10)
    scene = scene_of(host, 5)
    for name, kind in PANELS.items():
        width, height = 100, 12
        text = "".join(drawn(kind(id=name), scene, width, height))
        assert "\x1b" not in text and "\u202e" not in text
    assert "[red]␛" in "".join(drawn(Timeline(), scene, 100, 12))


def test_wide_clients_keep_the_columns_in_line():
    host = ScriptedHost()
    host.submit("a", 20, 30, client="漢字漢字漢字")
    host.submit("b", 20, 30, client="plain")
    lines = drawn(Timeline(), scene_of(host, 8), 86, 10)
    assert lines[1].index("─") != -1
    assert cell_len(lines[1].split("─")[0]) == cell_len(lines[2].split("─")[0])


def test_the_small_layout_of_the_design():
    boxes = arrange(80, 24).boxes
    assert boxes["timeline"].height == 11 and boxes["kv"].height == 7 and boxes["budget"].height == 1
