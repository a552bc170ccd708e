"""The first line: what the engine does right now, the important things first."""

from __future__ import annotations

from rich.style import Style

from engine.view import EngineView
from workbench.model.batch import slots_text
from workbench.model.knob_steps import pace_text
from workbench.text import rate, seconds, width_of
from workbench.widgets.panel import Line, Panel, Scene, Span


class Header(Panel, can_focus=False):
    FRAMED = False

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None:
            return [((" WORKBENCH", self.look.title),)]
        small = width < 118
        parts = self._small(scene) if small else self._large(scene)
        gap = " │ " if small else "   "
        line: list[Span] = [(" WB " if small else " WORKBENCH   ", self.look.title)]
        used = width_of(line[0][0])
        for n, (text, style) in enumerate(parts):
            between = gap if n else ""
            if used + len(between) + width_of(text) > width - 1:
                break
            line += [(between, self.look.muted), (text, style)]
            used += len(between) + width_of(text)
        return [tuple(line)]

    def _state(self, scene: Scene) -> tuple[str, Style]:
        view, look = scene.history.live, self.look
        if scene.playing:
            return scene.playing, look.strong
        if view.fault is not None:
            return "FAULT", look.error
        if scene.ended:
            return "STOPPED", look.error
        if view.paused and not scene.building:
            return "‖ PAUSED", look.warn
        if scene.pausing:
            return "‖ PAUSING" + (f" after {scene.computing}" if scene.computing else ""), look.warn
        if scene.building:
            return "▸ BUILDING", look.warn
        if scene.computing:
            return f"▸ RUN computing {scene.computing}", look.strong
        if not view.running and not view.num_waiting and not view.swapped:
            return "IDLE", look.muted
        return f"▸ RUN {rate(scene.speed[0])} it/s", look.strong

    def _step(self, scene: Scene) -> tuple[str, Style]:
        if scene.cursor is None:
            return f"step {scene.step}", self.look.text
        if scene.playing:
            return f"step {scene.cursor} of {scene.history.last_step}  {seconds(scene.now)}", self.look.text
        return f"viewing {scene.cursor} ({scene.history.last_step - scene.cursor} behind live)", self.look.warn

    def _large(self, scene: Scene) -> list[Span]:
        view, text = scene.view, self.look.text
        lat = scene.history.latency.header()
        p99 = f" p99 {seconds(lat.ttft99)}" if lat.ttft99 is not None else ""
        used = f"KV {view.kv_usage:.0%} ({view.used_blocks}/{view.usable_blocks})"
        place: list[Span] = [self._state(scene), self._step(scene)]
        if scene.virtual:
            place.append(("virtual clock", self.look.warn))
        if scene.recording:
            place.append((scene.recording, self.look.error))
        if view.storm:
            place.append(("STORM", self.look.warn))
        swapped = f"  swap {len(view.swapped)}" if view.swapped else ""
        if scene.replayed and scene.cursor is None:
            place.append((f"replayed {scene.replayed}", text))
        place += [(f"{runs(view)}{swapped}  wait {view.num_waiting}", text), (used, text)]
        if scene.playing:
            place.append((f"{rate(scene.speed[0])} it/s  {rate(scene.speed[1])} tok/s", text))
        if scene.cursor is not None:  # latencies and speeds are of the present
            return [*place, (f"preempted {view.preemptions}", text)]
        return [
            *place,
            (f"TTFT p50 {seconds(lat.ttft50)}{p99}", text),
            (f"ITL {seconds(lat.itl50)}", text),
            (f"{rate(scene.speed[1])} tok/s", text),
            (f"pace {pace_text(scene.history.live.pace)}", text),
            (f"preempted {scene.view.preemptions}", text),
        ]

    def _small(self, scene: Scene) -> list[Span]:
        view, look = scene.view, self.look
        lat = scene.history.latency.header()
        state, style = self._state(scene)
        if " it/s" in state and scene.speed[0] >= 10:
            state = f"▸RUN {scene.speed[0]:.0f}/s"
        state = state.replace("▸ RUN", "▸RUN").replace("‖ PAUSED", "‖PAUSED").replace(" it/s", "/s")
        if scene.cursor is None:
            where = (f"{state} #{scene.step}", style)
        else:
            behind = scene.history.last_step - scene.cursor
            at = f"{scene.cursor}/{scene.history.last_step}" if scene.playing else ""
            where = (f"{state} {at or f'viewing {scene.cursor} ({behind} behind live)'}", look.warn)
        swapped = f" swap {len(view.swapped)}" if view.swapped else ""
        return [
            where,
            *([("virtual", look.warn)] if scene.virtual else []),
            *([("REC", look.error)] if scene.recording else []),
            *([("STORM", look.warn)] if view.storm else []),
            *([(scene.replayed, look.text)] if scene.replayed and scene.cursor is None else []),
            (f"{runs(view)}{swapped} wait {view.num_waiting}", look.text),
            (f"KV {view.kv_usage:.0%}", look.text),
            *([(f"TTFT {seconds(lat.ttft50)} ITL {seconds(lat.itl50)}", look.text)] if scene.cursor is None else []),
            *([(f"{scene.speed[1]:.0f} t/s", look.text)] if scene.cursor is None or scene.playing else []),
        ]


def runs(view: EngineView) -> str:
    """How many run of how many may; under static batching how many slots of the batch work."""
    slots = slots_text(view)
    if slots:
        return f"batch {slots}"
    return f"run {len(view.running)}/{view.knobs.get('max_num_active_seqs') or view.knobs.get('max_num_seqs')}"
