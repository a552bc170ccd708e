"""The queues: who runs, who waits, and for each waiting one the reason."""

from __future__ import annotations

import copy

from engine.records import Phase, Reason
from engine.request import RequestStatus
from engine.view import EngineView, RequestView
from workbench.glyphs import CELLS
from workbench.model.batch import held, slots_line
from workbench.model.cells import Cell
from workbench.model.history import History
from workbench.text import clean, width_of, wrap
from workbench.widgets.panel import Line, Panel, Scene, Span

WORDS = {
    Reason.BUDGET: "no tokens left in the budget",
    Reason.SEQS: "all slots taken",
    Reason.BLOCKS: "not enough free blocks",
    Reason.WATERMARK: "free blocks are below the watermark",
    Reason.PREEMPTION: "nothing is admitted after a preemption",
    Reason.BEHIND_HEAD: "behind the head",
    Reason.HELD: "prompts are held back by the interval",
    Reason.POLICY: "the policy keeps it back",
    Reason.CLIENT_BUDGET: "its client's tokens of this iteration are used up",
    Reason.SWAPPED: "swapped out ones come first",
    Reason.STATIC_BATCH: "the static batch is closed",
    Reason.PAUSED: "the engine is paused",
}


class Queues(Panel):
    TITLE = "Queues"
    HELP = """Who runs and who waits, in order of service, and why the waiting ones do not run.

    A─ decodes   A▓ prefills   A▚ computes again   A· runs but got no tokens   ×A was preempted, first in line again
    ▽A12 was swapped out: 12 blocks of its KV are in the swap pool; it comes back before any waiting one
    A□ has ended, but its slot is held until its static batch ends

    A preemption storm is told with its cause as long as it lasts. The title tells the policy and how many requests
    are yet to come.
    The head of the queue is told with its numbers; those behind it wait because nobody overtakes the head. While
    the engine is paused these are the reasons of the last iteration. Where letters ran out a line has the end of the
    request's id."""

    def note(self) -> str:
        if self.scene is None:
            return ""
        view = self.scene.view
        policy = clean(str(view.knobs.get("policy") or "")).rpartition(":")[2]  # module:Class of a person's own
        parts = [policy, f"{view.planned} to come" if view.planned else ""]
        return "  ".join(part for part in parts if part)

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None or height < 1:
            return []
        view, look = scene.view, self.look
        limit = view.knobs.get("max_num_active_seqs") or view.knobs.get("max_num_seqs")
        running = [self._run_spans(scene, id) for id in view.running]
        ended = [self._held_spans(scene, id) for id in held(view)]
        ids = view.waiting_ids(max(width, height + self.top + 1))
        waiting = [self._wait_spans(scene, id) for id in ids[:width]]
        lines = [self._list("run  ", running + ended, f"{len(view.running)}/{limit}", width)]
        if view.swapped:
            swapped = [self._swap_spans(scene, id) for id in view.swapped[:width]]
            lines.append(self._list("swap ", swapped, swap_count(view), width))
        lines.append(self._list("wait ", waiting, str(view.num_waiting), width))
        if height <= len(lines):
            return lines[:height]
        below: list[Line | str] = []
        if view.storm:
            below += [((line, look.warn),) for line in wrap(f"storm: {view.storm}", width, 2)]
        below += [((line, look.strong),) for line in wrap(slots_line(view), width, 2) if line]
        ids = [*view.swapped, *ids]
        if ids:
            below += self._why(scene, ids[0], width, full=True)
            below += ids[1:]  # put into words only if they are seen
            below += [""] * (view.num_waiting + len(view.swapped) - len(ids))
        for id in view.running:
            reason = view.requests[id].reason
            if reason is not None:
                below.append((self._called(scene, id), (f" no tokens: {WORDS[reason]}", look.text)))
        if not ids and not view.running:
            idle = f"computing {scene.computing}" if scene.in_flight is not None else "nothing to do"
            below.append(((idle, look.muted),))
        for line in self.scrolled(below, height - len(lines)):
            if isinstance(line, str):
                line = self._why(scene, line, width, full=False)[0] if line else ()
            lines.append(line)
        return lines

    def _run_spans(self, scene: Scene, id: str) -> list[Span]:
        look = self.look
        letter = scene.history.letters.of(id)
        phase = scene.view.requests[id].phase
        code = {Phase.DECODE: Cell.DECODE, Phase.PREFILL: Cell.PREFILL_3, Phase.RECOMPUTE: Cell.RECOMPUTE}.get(
            phase,
            Cell.WAIT,  # type: ignore[arg-type]
        )
        return [(letter, look.owner(letter)), (CELLS[code].char, look.cells[code]), (" ", look.text)]

    def _held_spans(self, scene: Scene, id: str) -> list[Span]:
        look = self.look
        letter = scene.history.letters.of(id)
        return [(letter, look.owner(letter)), (CELLS[Cell.HELD].char, look.cells[Cell.HELD]), (" ", look.text)]

    def _swap_spans(self, scene: Scene, id: str) -> list[Span]:
        look = self.look
        letter = scene.history.letters.of(id)
        mark = (CELLS[Cell.SWAP_OUT].char, look.cells[Cell.SWAP_OUT])
        return [mark, (letter, look.owner(letter)), (f"{scene.view.requests[id].swapped_blocks} ", look.muted)]

    def _wait_spans(self, scene: Scene, id: str) -> list[Span]:
        look = self.look
        letter = scene.history.letters.of(id)
        if scene.view.requests[id].status is RequestStatus.PREEMPTED:
            return [("×", look.cells[Cell.PREEMPTED]), (letter, look.owner(letter)), (" ", look.text)]
        return [(letter, look.owner(letter)), (" ", look.text)]

    def _list(self, name: str, items: list[list[Span]], count: str, width: int) -> Line:
        look = self.look
        room = width - len(name) - len(count) - 1
        line: list[Span] = [(name, look.strong)]
        for item in items:
            cells = sum(len(text) for text, _ in item)
            if cells > room - 2:
                line.append(("… ", look.muted))
                room -= 2
                break
            line += item
            room -= cells
        line += [(" " * max(0, room + 1), look.text), (count, look.strong)]
        return tuple(line)

    def _called(self, scene: Scene, id: str) -> Span:
        letters = scene.history.letters
        return (letters.name(id), self.look.owner(letters.of(id)))

    def _why(self, scene: Scene, id: str, width: int, *, full: bool) -> list[Line]:
        look = self.look
        name = self._called(scene, id)
        text = why(scene.history, scene.view, id)
        if full and scene.view.paused:
            text += " (paused)"
        texts = wrap(text, width - 1 - width_of(name[0]), 3 if full else 1)
        lines: list[Line] = [(name, (" " + texts[0], look.text if full else look.muted))]
        lines += [(("  " + more, look.text),) for more in texts[1:]]
        return lines


def why(history: History, view: EngineView, id: str) -> str:
    """Why a request does not run, in words, with letters for ids; while paused, why not in the last iteration."""
    view = _judged(history, view, id)
    reason, detail = view.reason_of(id)
    if reason is None:
        status = view.requests[id].status
        if waits(view.requests[id]):
            return "next iteration decides"
        return "it runs" if status is RequestStatus.RUNNING else "it has ended"
    if reason is Reason.BEHIND_HEAD and view.last is not None and view.last.blocked is not None:
        head = view.last.blocked
        return f"behind {history.letters.name(head.id)} ({head.reason})"
    if reason is Reason.SWAPPED and view.last is not None and view.last.blocked is not None:
        head = view.last.blocked
        return f"behind {history.letters.name(head.id)}, swapped out ({head.reason})"
    return clean(detail) or WORDS[reason]


def waits(request: RequestView) -> bool:
    return request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED, RequestStatus.SWAPPED)


def _judged(history: History, view: EngineView, id: str) -> EngineView:
    """The view as the last iteration that ran left it: the records of a paused engine tell no reasons."""
    if not view.paused:
        return view
    it = view.last if view.last is not None and view.last.executed else history.record_at(view.step)
    row = history.rows.get(id)
    new = row is None or row.start > view.step  # nobody has looked at it yet
    head = it.blocked.id if it is not None and it.blocked is not None else None
    judged = copy.copy(view)
    judged.paused = False
    judged.last = None if new or head is None or head not in view.requests or not waits(view.requests[head]) else it
    return judged


def swap_count(view: EngineView) -> str:
    """How many are swapped out, and the blocks they hold in the swap pool."""
    blocks = sum(view.requests[id].swapped_blocks for id in view.swapped)
    return f"{len(view.swapped)} ({blocks} bl)"
