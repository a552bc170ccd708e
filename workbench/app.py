"""The application: loads a session behind a first picture, shows the live screen, and always ends.

`run_app` is what the command line calls. Exit codes: 0 left by a person, 1 a fault, 2 something a person can mend.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.timer import Timer

from engine.commands import SetPace, Submit
from engine.errors import WorkbenchError
from engine.host import EngineHost
from workbench.glyphs import THEMES, Look, Mode
from workbench.model.session import Load, Session
from workbench.screens.commands import LiveCommands
from workbench.screens.live import FASTEST, LiveScreen
from workbench.screens.loading import LoadingScreen
from workbench.screens.play import PlayScreen
from workbench.text import clean
from workbench.widgets.panel import Panel

STOP_SECONDS = 1.0
Stopper = Callable[[Callable[[], None]], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    fps: int = FASTEST
    glyphs: Mode = Mode.COLOUR
    screenshots: Path = Path(".")
    pace: float | None = None
    """Most iterations a second from the start; None leaves the engine's own."""
    speed: float = 1.0
    """Of a recording: 1 is as it was."""
    every_colour: bool = False
    """Whatever the terminal can show: for pictures."""


class WorkbenchApp(App[None]):
    TITLE = "workbench"
    CSS_PATH = "styles/app.tcss"
    COMMANDS = App.COMMANDS | {LiveCommands}
    ENABLE_COMMAND_PALETTE = True
    ALLOW_SELECT = False
    BINDINGS = [
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True, id="app.interrupt"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True, id="app.quit-too"),
    ]

    def __init__(self, load: Load, options: Options | None = None) -> None:
        self._no_color_filter = NoColor()
        self.look = Look()
        super().__init__()
        self.options = options or Options()
        self.colourless = bool(os.environ.get("NO_COLOR"))
        self._load = load
        self._stages: dict[str, tuple[int, int]] = {}
        self._loaded: Session | BaseException | None = None
        self._loading_timer: Timer | None = None
        self.host: EngineHost | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping: threading.Thread | None = None
        """Ends the engine while the terminal is put back."""
        for theme in THEMES:
            self.register_theme(theme)
        self.mode = self.options.glyphs
        if self.colourless and self.mode is Mode.COLOUR:
            self.mode = Mode.MONO

    # ---- life -------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._apply_mode()
        self.theme_changed_signal.subscribe(self, lambda _: self._restyle())
        self.push_screen(LoadingScreen())
        threading.Thread(target=self._run_load, name="load", daemon=True).start()
        self._loading_timer = self.set_interval(0.05, self._watch_load, name="loading")

    def _run_load(self) -> None:
        try:
            self._loaded = self._load(self._progress)
        except BaseException as error:  # shown by the screen's thread, whatever it is
            self._loaded = error

    def _progress(self, stage: str, done: int, total: int) -> None:
        self._stages = self._stages | {stage: (done, total)}

    def _watch_load(self) -> None:
        if isinstance(self.screen, LoadingScreen):
            self.screen.show(self._stages)
        loaded = self._loaded
        if loaded is None or self.host is not None:  # a tick that was due already may come after the timer's end
            return
        assert self._loading_timer is not None
        self._loading_timer.stop()
        if isinstance(loaded, Session):
            self._begin(loaded)
        elif isinstance(loaded, WorkbenchError):
            self.exit(return_code=2, message=clean(str(loaded)))
        else:
            trace = "".join(traceback.format_exception(loaded))
            log.error("loading failed\n%s", trace)
            self.exit(return_code=1, message=trace)

    def _begin(self, session: Session) -> None:
        self.host = session.host
        if session.recording is not None:
            self.switch_screen(PlayScreen(session, fps=self.options.fps, speed=self.options.speed))
            return
        if not self.host.alive:
            self.host.start()
        if self.options.pace is not None:
            self.host.post(SetPace(self.options.pace))
        if session.workload_requests:
            self.host.post(Submit(session.workload_requests))
            # The engine's alone from now on: kept here, the prompts of a long trace would never be let go.
            session = self._loaded = dataclasses.replace(session, workload_requests=())
        self.switch_screen(LiveScreen(session, fps=self.options.fps))

    def on_unmount(self) -> None:
        host = self.host
        if host is not None and self.stopping is None:
            self.stopping = threading.Thread(target=host.stop, args=(STOP_SECONDS,), name="stop", daemon=True)
            self.stopping.start()

    def ask_to_exit(self) -> None:
        """For signal handlers and other threads: leave as soon as the loop turns."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.exit)

    async def action_quit(self) -> None:
        live = next((screen for screen in self.screen_stack if isinstance(screen, LiveScreen)), None)
        self.exit(return_code=1 if live is not None and live.history.live.fault is not None else 0)

    # ---- looks ------------------------------------------------------------------------------------

    def get_line_filters(self) -> list[LineFilter]:
        filters = list(super().get_line_filters())
        if self.colourless or self.mode is Mode.MONO:
            # Textual's own answer to NO_COLOR is shades of grey
            filters = [f for f in filters if type(f).__name__ not in ("Monochrome", "NoColor")]
            filters.append(self._no_color_filter)
        return filters

    def _apply_mode(self) -> None:
        if self.colourless or self.mode is Mode.MONO:
            self.theme = "workbench-mono"
        elif self.console.color_system == "standard" and not self.options.every_colour:
            self.theme = "workbench-16"
        elif self.theme in ("workbench-mono", "textual-dark"):
            self.theme = "workbench-dark"
        self._restyle()

    def _restyle(self) -> None:
        self.look = Look(
            self.mode,
            self.current_theme,
            background=self.get_css_variables()["background"],
            no_color=self.colourless,
        )
        for screen in self.screen_stack:
            screen.set_class(self.mode is Mode.ASCII, "-ascii")
            for panel in screen.query(Panel):
                panel.restyle(self.look)
            if isinstance(screen, LiveScreen):
                screen.dirty()

    def action_glyphs(self) -> None:
        modes = [mode for mode in Mode if not (self.colourless and mode is Mode.COLOUR)]
        self.mode = modes[(modes.index(self.mode) + 1) % len(modes)]
        self._apply_mode()
        self._say(f"glyphs: {self.mode}")

    def action_shoot(self) -> None:
        name = f"workbench-{datetime.now():%Y%m%d-%H%M%S-%f}.svg"
        try:
            self.options.screenshots.mkdir(parents=True, exist_ok=True)
            path = self.save_screenshot(name, str(self.options.screenshots))
        except OSError as error:
            self._say(f"no screenshot: {clean(str(error))}", bad=True)
        else:
            self._say(f"screenshot saved: {clean(path)}")

    def _offer_keys(self) -> None:
        """Another window is on top: the footer below must offer what works there."""
        for screen in self.screen_stack:
            if isinstance(screen, LiveScreen) and screen.is_mounted:
                screen.offer_keys()

    def push_screen(self, *args: Any, **kwargs: Any) -> Any:
        for screen in args[:1]:
            if isinstance(screen, Screen):
                screen.set_class(self.mode is Mode.ASCII, "-ascii")
        waiting = super().push_screen(*args, **kwargs)
        self._offer_keys()
        return waiting

    def pop_screen(self) -> AwaitComplete:
        waiting = super().pop_screen()
        self._offer_keys()
        return waiting

    def _say(self, text: str, *, bad: bool = False) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, LiveScreen) and screen.is_mounted:
                screen.say(text, bad=bad)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Theme", "Change the colours of frames and fields", self.search_themes)


def run_app(load: Load, options: Options | None = None, stopper: Stopper | None = None) -> int:
    """Run until the person leaves; the terminal is put back before the engine is waited for.

    `stopper` is given a function that ends the app from a signal handler.
    """
    app = WorkbenchApp(load, options)
    if stopper is not None:
        stopper(app.ask_to_exit)
    app.run()
    if app.stopping is not None:
        app.stopping.join(STOP_SECONDS + 0.5)
    return app.return_code or 0
