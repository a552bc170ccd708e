"""What keys do with recordings: begin and end one of the running engine, bookmarks in it, exports of it."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path

from engine.errors import WorkbenchError
from engine.view import EngineView
from traces.recording import SUFFIX, Header, Recorder, Recording
from workbench.model.events import bytes_text
from workbench.screens.view_actions import ViewActions
from workbench.text import clean


class RecordActions(ViewActions):
    """For LiveScreen."""

    recorder: Recorder | None = None
    """Of the running engine, while it records."""

    def recording_text(self) -> str:
        """For the header."""
        recorder = self.recorder
        if recorder is None or recorder.fault is not None:
            return ""
        return f"REC {bytes_text(recorder.bytes)}"

    def recorded_file(self) -> Path | None:
        """What an export would read."""
        return self._last_recorded

    _last_recorded: Path | None = None
    _exporting = False

    # ---- recording --------------------------------------------------------------------------------

    def action_record(self) -> None:
        if self._ended():
            return
        recorder = self.recorder
        if recorder is not None and recorder.fault is None:
            self.host.observe(None)
            self.recorder, self._last_recorded = None, recorder.path
            self.say(f"recording ended: {clean(str(recorder.path))}")
            self.dirty()
            return
        try:
            self.recorder = recorder = self._begin_recording()
        except WorkbenchError as error:
            self.say(clean(str(error)), bad=True)
            return
        self._last_recorded = recorder.path
        since = "from the beginning" if recorder.header.first_seq == 0 else "from here on"
        self.say(f"recording {since} into {clean(str(recorder.path))}; R ends it")
        self.dirty()

    def _begin_recording(self) -> Recorder:
        session, history = self.session, self.history
        folder: Path = self.app.options.screenshots  # type: ignore[attr-defined]
        path = folder / f"workbench-{datetime.now():%Y%m%d-%H%M%S}{SUFFIX}"
        header = Header.of(self.host.info, now=self.host.now(), source=session.source, seed=session.seed)
        all_so_far = history.from_the_beginning()
        view: EngineView | None = None if all_so_far is not None else history.live.copy()
        recorder = Recorder(path, header, view=view)
        for it in all_so_far or ():
            recorder.add(it)
        for step, text in self.history.bookmarks.items():
            recorder.mark(step, text)
        self.host.observe(recorder)
        return recorder

    def keep_bookmark(self, step: int, text: str) -> None:
        if self.recorder is not None:
            try:
                self.recorder.mark(step, text)
            except WorkbenchError as error:
                self.say(clean(str(error)), bad=True)

    # ---- exports ----------------------------------------------------------------------------------

    def action_export(self, name: str) -> None:
        """Make a file of the recording, beside it, in a thread of its own."""
        source = self.recorded_file()
        if source is None:
            self.say("nothing is recorded yet: R begins")
            return
        if self._exporting:
            self.say("an export is being made already")
            return
        self._exporting = True
        self.say(f"exporting {clean(source.name)} …")
        threading.Thread(target=self._export, args=(source, name), name="export", daemon=True).start()

    def _export(self, source: Path, name: str) -> None:
        from traces.exports.kinds import KINDS, Asked
        from traces.exports.recorded import export_recording

        kind = KINDS[name]
        out = source.with_name(source.name.removesuffix(".gz").removesuffix(".zst").removesuffix(SUFFIX) + kind.suffix)
        text, bad = f"{kind.words}: {out}", False
        try:
            recording = Recording.open(source)
            try:
                export_recording(recording, [kind.job(Asked(recording, out, None, False))])
            finally:
                recording.close()
        except WorkbenchError as error:
            text, bad = str(error), True
        except Exception as error:
            text, bad = f"the export failed: {type(error).__name__}: {error}", True
        self.app.call_from_thread(self._exported, text, bad)

    def _exported(self, text: str, bad: bool) -> None:
        self._exporting = False
        self.say(clean(text), bad=bad)
