"""The keys of the live screen: bindings, palette entries and help lines come from this one table."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding

from workbench.model.jumps import JUMPS


class Key(NamedTuple):
    id: str
    keys: str
    shown: str
    action: str
    word: str
    help: str


EXPORTS = (
    ("html", "HTML report"),
    ("perfetto", "Perfetto trace"),
    ("requests-csv", "requests as CSV"),
    ("iterations-csv", "iterations as CSV"),
    ("requests-parquet", "requests as Parquet"),
    ("iterations-parquet", "iterations as Parquet"),
    ("otel", "OpenTelemetry spans"),
    ("prometheus", "Prometheus text"),
)
"""Names and words of `traces.exports.kinds`, which is slow to import: a test compares them."""
KEYS: tuple[Key, ...] = (
    Key("run.pause", "space", "space", "pause", "Pause", "Pause or resume the engine at the next iteration boundary"),
    Key("run.step", "n", "n", "steps(1)", "Step", "Run one iteration, then pause"),
    Key("run.steps", "N", "N", "steps(10)", "Ten steps", "Run ten iterations, then pause"),
    Key("run.faster", "plus,equals_sign", "+", "pace(1)", "Faster", "Raise the pace: most iterations a second"),
    Key("run.slower", "minus", "-", "pace(-1)", "Slower", "Lower the pace"),
    Key("request.up", "up", "↑", "select(-1)", "Row up", "Select the request above"),
    Key("request.down", "down", "↓", "select(1)", "Row down", "Select the request below"),
    Key("request.inspect", "enter", "enter", "inspect", "Inspect", "Prompt, answer, timings and blocks of a request"),
    Key("request.inject", "i", "i", "inject", "Inject", "Open the form to send requests"),
    Key("request.repeat", "I", "I", "repeat", "Repeat", "Send the last injected requests again"),
    Key("request.abort", "a", "a", "abort", "Abort", "Abort the selected request"),
    Key("request.filter", "slash", "/", "filter", "Filter rows", "Show the rows of a client, or with a text"),
    Key("knobs.focus", "k", "k", "focus_knobs", "Knobs", "Go to the knobs"),
    Key("knobs.undo", "u", "u", "undo_knob", "Undo knob", "Put the last changed knob back"),
    Key("history.back", "comma", ",", "cursor(-1)", "Step back", "Look one step back"),
    Key("history.forth", "full_stop", ".", "cursor(1)", "Step forth", "Look one step forth"),
    Key("history.back-ten", "less_than_sign", "<", "cursor(-10)", "Ten back", "Look ten steps back"),
    Key("history.forth-ten", "greater_than_sign", ">", "cursor(10)", "Ten forth", "Look ten steps forth"),
    Key("history.first", "home", "home", "first", "First step", "Look at the oldest step still here"),
    Key("history.live", "end", "end", "live", "Live", "Follow the newest step again"),
    Key(
        "history.mark-back",
        "left_parenthesis",
        "(",
        "mark(-1)",
        "Jump back",
        "Go to the preemption before, or what j chose",
    ),
    Key(
        "history.mark-forth",
        "right_parenthesis",
        ")",
        "mark(1)",
        "Jump forth",
        "Go to the next preemption, or what j chose",
    ),
    Key(
        "history.jump",
        "j",
        "j",
        "jump_kind",
        "Jump to",
        "What ( and ) go to: preemptions, finishes, knobs, slow, bookmarks",
    ),
    Key(
        "history.bookmark",
        "b",
        "b",
        "bookmark",
        "Bookmark",
        "Put a bookmark with a note at the step shown, or change it",
    ),
    Key("history.go", "t", "t", "go_to", "Go to step", "Look at a step by its number"),
    Key("view.kv", "m", "m", "kv_mode", "KV map mode", "KV map: owner, refcount, cached"),
    Key("view.columns", "x", "x", "columns", "Steps a column", "Timeline: 1, 4, 16 steps a column, or automatic"),
    Key("view.events", "f", "f", "event_filter", "Filter events", "Choose which events are listed"),
    Key("view.next", "tab", "tab", "next_panel(1)", "Next panel", "Go to the next panel or tab"),
    Key("view.previous", "shift+tab", "shift+tab", "next_panel(-1)", "Previous panel", "Go to the panel before"),
    Key("view.zoom", "z", "z", "zoom", "Zoom", "Give the focused panel all the room, or take it back"),
    Key("view.glyphs", "g", "g", "app.glyphs", "Glyphs", "Colour, without colour, ASCII only"),
    Key("view.screenshot", "s", "s", "app.shoot", "Screenshot", "Save the screen as SVG"),
    Key("record", "R", "R", "record", "Record", "Begin or end a recording of the engine"),
    Key("view.leave", "escape", "esc", "leave", "Leave", "Close, clear the filter, or return to live"),
    Key("app.help", "question_mark", "?", "help", "Help", "Help on the focused panel, and all keys"),
    Key("app.quit", "q", "q", "app.quit", "Quit", "Leave the workbench"),
)
PALETTE = (
    *(
        Key(f"export.{kind}", "", "", f"export('{kind}')", f"Export: {words}", f"Make a file of the recording: {words}")
        for kind, words in EXPORTS
    ),
    *(
        Key(
            f"history.{word}-{number}",
            "",
            "",
            f"jump({number}, {direction})",
            f"{way} {jump.word}",
            f"Go to the {way.lower()} {jump.word}",
        )
        for number, jump in enumerate(JUMPS)
        for word, way, direction in (("next", "Next", 1), ("previous", "Previous", -1))
    ),
)
"""What has no key of its own."""
BINDINGS = [
    Binding(key.keys, key.action, key.word, show=False, key_display=key.shown, tooltip=key.help, id=key.id)
    for key in KEYS
]
