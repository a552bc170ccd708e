"""One request in full: prompt and streamed answer, sampling, timings, blocks, and why it waits. Kept up to date."""

from __future__ import annotations

from itertools import pairwise

from engine.request import RequestStatus
from engine.view import EngineView, RequestView
from workbench.model.events import cause_text, cut_short, cutter, loss_text
from workbench.model.latency import median
from workbench.screens.reading import Reader, ReadingScreen
from workbench.text import clean, seconds, wrap
from workbench.widgets import footer
from workbench.widgets.panel import Line, Scene
from workbench.widgets.queues import waits, why

MOST_CHARACTERS = 20_000
"""Of prompt and answer each, from the start and from the end: wrapping more would cost a frame."""
MOST_BLOCKS = 400
MOST_CAUSES = 8
"""Preemptions told one by one, the newest first."""


class InspectScreen(ReadingScreen):
    hint = "↑ ↓ scroll  end follow  esc close"
    entries = footer.INSPECTING

    def __init__(self, id: str) -> None:
        super().__init__("Request")
        self.request_id = id
        self.scene: Scene | None = None
        self._prompt: tuple[object, list[str]] = (None, [])

    def set_view(self, scene: Scene) -> None:
        self.scene = scene
        if self.is_mounted:
            reader = self.query_one(Reader)
            follow = reader.top > 0 and reader.top >= len(self.lines(reader.inner[0])) - reader.inner[1] - 1
            reader.look = scene.look
            if follow:
                reader.top = 1 << 30
            reader.repaint()

    def lines(self, width: int) -> list[Line]:
        look = self.query_one(Reader).look
        scene = self.scene
        if scene is None:
            return []
        request = scene.view.requests.get(self.request_id)
        if request is None:
            return [(("this request is not known at this step", look.muted),)]
        name = scene.history.letters.name(request.id)
        self.heading = f"{name}  {clean(request.client)}"
        out: list[Line] = []

        def pair(name: str, text: str) -> None:
            texts = wrap(text, max(10, width - 10))
            out.append(((f"{name:<9} ", look.muted), (texts[0], look.text)))
            out.extend((((" " * 10), look.text), (more, look.text)) for more in texts[1:])

        pair("state", state_text(request, scene.view))
        if request.status is not RequestStatus.FINISHED:
            paused = " (paused)" if waits(request) and scene.view.paused else ""
            pair("why", why(scene.history, scene.view, request.id) + paused)
        pair("id", f"{clean(request.id)}   priority {request.priority}")
        expected = request.expected_output  # without an oracle the engine puts in the most it can get
        oracle = f"   expected {expected}" if expected not in (None, request.max_tokens) else ""
        pair("sampling", f"{clean(request.sampling)}   at most {request.max_tokens} tokens{oracle}")
        pair("timing", timing_text(request))
        if request.deadline is not None:
            pair("deadline", deadline_text(request, scene.now if scene.cursor is None else None))
        pair("preempted", f"{request.preemptions}x, {request.recomputed_tokens} tokens computed again")
        for step, victim in reversed(scene.history.preemptions_of(request.id, scene.step)[-MOST_CAUSES:]):
            pair("", f"step {step}: {cause_text(victim, scene.history.letters.name)}, {loss_text(victim)}")
        pair("prefix", f"{request.cached_tokens} prompt tokens came from the cache")
        pair("blocks", block_text(request, scene.view.block_size))
        out += [(), ((f"Prompt ({request.prompt_len} tokens)", look.title),)]
        out += [((line, look.text),) for line in self._prompt_lines(request, width)]
        out += [(), ((f"Answer ({request.output_len} tokens{self._streaming(request)})", look.title),)]
        text = request.text
        if len(text) > MOST_CHARACTERS:
            out.append(((f"… {len(text) - MOST_CHARACTERS} characters before", look.muted),))
            text = text[-MOST_CHARACTERS:]
        out += [((line, look.text),) for line in wrap(text, width)]
        return out

    def _streaming(self, request: RequestView) -> str:
        return "" if request.status is RequestStatus.FINISHED else ", streaming"

    def _prompt_lines(self, request: RequestView, width: int) -> list[str]:
        key = (width, request.prompt_ids)
        if self._prompt[0] != key:
            text = request.prompt_text
            if text is None:
                ids = " ".join(map(str, request.prompt_ids[:200]))
                more = request.prompt_len - 200
                lines = ["token ids: " + ids + (f" … {more} more" if more > 0 else "")]
                self._prompt = (key, [part for line in lines for part in wrap(line, width)])
            else:
                more = len(text) - MOST_CHARACTERS
                lines = wrap(text[:MOST_CHARACTERS], width)
                self._prompt = (key, lines + ([f"… {more} more characters"] if more > 0 else []))
        return self._prompt[1]


def state_text(request: RequestView, view: EngineView) -> str:
    if cut_short(request):
        detail = clean(request.finish_detail) or cutter(view)
        return f"finished, cut short: {detail}, at step {request.finished_step}"
    if request.status is RequestStatus.FINISHED:
        detail = f" ({clean(request.finish_detail)})" if request.finish_detail else ""
        return f"finished: {request.finish_reason}{detail} at step {request.finished_step}"
    if request.status is RequestStatus.SWAPPED:
        return f"swapped out: {request.swapped_blocks} blocks in the swap pool, {request.computed} tokens computed"
    phase = f", {request.phase}" if request.phase is not None else ""
    return f"{request.status}{phase}, {request.computed} of {request.prompt_len + request.output_len} tokens computed"


def timing_text(request: RequestView) -> str:
    times = request.token_times
    gaps = [b - a for a, b in pairwise(times)]
    queued = None if request.first_scheduled is None else request.first_scheduled - request.arrival
    parts = [f"queued {seconds(queued)}", f"ttft {seconds(request.ttft)}"]
    parts.append(f"itl median {seconds(median(gaps))} max {seconds(max(gaps, default=None))}")
    if request.finished_at is not None:
        parts.append(f"e2e {seconds(request.finished_at - request.arrival)}")
    return "   ".join(parts)


def deadline_text(request: RequestView, now: float | None) -> str:
    """When the first token is due, and whether it came in time. `now`: None when looking back."""
    assert request.deadline is not None
    due = f"first token within {seconds(request.deadline)}"
    if request.ttft is not None:
        left = request.deadline - request.ttft
        return f"{due}: met, {seconds(left)} to spare" if left >= 0 else f"{due}: missed by {seconds(-left)}"
    if now is None or request.status is RequestStatus.FINISHED:
        return due
    left = request.arrival + request.deadline - now
    return f"{due}: {seconds(left)} left" if left >= 0 else f"{due}: {seconds(-left)} late"


def block_text(request: RequestView, block_size: int) -> str:
    if not request.blocks:
        return "none"
    shown = " ".join(map(str, request.blocks[:MOST_BLOCKS]))
    more = len(request.blocks) - MOST_BLOCKS
    last = request.computed - (len(request.blocks) - 1) * block_size
    tail = f" … {more} more" if more > 0 else ""
    return f"{shown}{tail}   ({len(request.blocks)}; last one {max(0, min(last, block_size))}/{block_size} used)"
