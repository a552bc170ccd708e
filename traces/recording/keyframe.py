"""`kf` lines: the state of the engine between two records, so that reading can begin there.

Live requests only: who has ended is not in it. No token and no prompt: of every answer the iterations in which its
tokens came, as ranges; times, tokens and texts are in the records. Reference counts and owners follow from the tables.
Requests that wait and have never run are only numbers; whoever restores the view reads them when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from engine.knobs import KnobValue
from engine.records import Arrived, Phase, Reason
from engine.request import FinishReason, RequestStatus
from engine.view import EngineView, RequestView
from traces.recording.encode import Encoder, number
from traces.recording.ints import flag_ranges, from_ranges, from_short, to_ranges, to_short
from traces.recording.lazy import LazyList, LazyRequests, LazyTuple
from traces.recording.lines import BadLine
from traces.recording.names import Names
from traces.recording.times import Units, to_seconds, to_units

MOST_BLOCKS = 1 << 24


def keyframe(encoder: Encoder, knobs: dict[str, KnobValue]) -> dict[str, Any]:
    """The state after the last record the encoder was given. knobs: those of the header, which are not repeated."""
    track, refs, of = encoder.track, encoder.numbers.refs, encoder.numbers.of
    view = track.view
    line: dict[str, Any] = {
        "k": "kf", "i": view.seq + 1, "s": view.step, "e": track.end, "g": track.generation,
        "r": encoder.numbers.next, "pool": [view.num_blocks, view.block_size],
        "kn": [[name, number(value)] for name, value in view.knobs.items() if value != knobs.get(name)],
        "kv": view.knob_version,
        "run": to_ranges([of[id] for id in view.running]),
        "req": [_row(of[id], view.requests[id], encoder) for id in encoder.started],
        "q": to_ranges([of[id] for id in view.queued]), "head": to_ranges([of[id] for id in view.waiting_head]),
        "nw": view.num_waiting,
        "cached": flag_ranges(view.cached), "own": _odd_owners(view, of), "free": view.free_blocks,
        "cpu": view.free_cpu_blocks, "peak": view.peak_used, "plan": view.planned,
        "sum": [view.preemptions, view.rejected, *[view.finished[reason] for reason in FinishReason]],
    }  # fmt: skip
    if view.off_blocks:
        line["off"] = flag_ranges([ref < 0 for ref in view.refs])
    if view.swapped:
        line["swp"] = refs(view.swapped)
    if view.batch:
        line["bat"] = refs(view.batch)
    if view.storm:
        line["storm"] = view.storm
    if view.paused:
        line["pau"] = True
    if view.pace is not None:
        line["pace"] = number(view.pace)
    if view.fault is not None:
        line["fault"] = view.fault
    return line


def _row(ref: int, request: RequestView, encoder: Encoder) -> list[Any]:
    first = request.first_scheduled
    row = [
        ref,
        request.status.value,
        request.phase.value if request.phase is not None else None,
        request.computed,
        to_short(request.blocks),
        runs(request.token_steps),
        request.reason.value if request.reason is not None else None,
        request.cached_tokens,
        request.swapped_blocks,
        request.preemptions,
        request.recomputed_tokens,
        to_units(first) if first is not None else None,
    ]
    replaced = encoder.replaced.get(request.id)
    if replaced is not None:
        row += [len(request.prompt_ids), replaced]
    return row


def runs(steps: Sequence[int]) -> list[int]:
    """`to_ranges` of growing numbers, without looking at all of them."""
    out: list[int] = []
    at, count = 0, len(steps)
    while at < count:
        first, low, high = steps[at], at, count - 1
        while low < high:
            middle = (low + high + 1) // 2
            if steps[middle] - first == middle - at:
                low = middle
            else:
                high = middle - 1
        out.append(first)
        if low > at:
            out.append(at - low)
        at = low + 1
    return out


def _odd_owners(view: EngineView, of: dict[str, int]) -> list[list[int]]:
    """Owners of shared blocks who are not the first in running order to hold them."""
    refs, owners = view.refs, view.owners
    seen: set[int] = set()
    odd = []
    for id in view.running:
        for block in view.requests[id].blocks:
            if refs[block] > 1 and block not in seen:
                seen.add(block)
                owner = owners[block]
                if owner is not None and owner != id:
                    odd.append([block, of[owner]])
    return odd


class Past(Protocol):
    """What a keyframe leaves to the rest of the file."""

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """As the header has them."""
        ...

    def arrival(self, number: int) -> Arrived:
        """`prompt_ids` may be a LazyTuple."""
        ...

    def names(self, numbers: Iterable[int]) -> list[str]: ...

    def replaced_prompt(self, id: str, seq: int) -> tuple[int, ...]:
        """Token ids that a rebuild gave a waiting request."""
        ...

    def times(self, steps: Sequence[int]) -> list[float]:
        """When these executed iterations ended."""
        ...

    def answer(self, number: int, id: str, steps: Sequence[int]) -> tuple[list[int], list[str]]:
        """Tokens and texts of the output tokens sampled in these iterations."""
        ...


class RestoredView(EngineView):
    """A view whose requests are partly unread; copies of it too."""

    def copy(self) -> EngineView:
        import copy

        new = copy.copy(self)
        assert isinstance(self.requests, LazyRequests)
        new.requests = self.requests.copied(lambda request: request.status is RequestStatus.FINISHED)
        for name in ("knobs", "owners", "refs", "cached", "finished", "queued", "_done"):
            setattr(new, name, copy.copy(getattr(self, name)))
        return new


class Restored:
    """A keyframe read back."""

    def __init__(self, line: dict[str, Any], past: Past) -> None:
        """BadLine when it says what cannot be."""
        try:
            self._restore(line, past)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise BadLine(f"says what cannot be: {type(error).__name__} {error}") from None

    def _restore(self, line: dict[str, Any], past: Past) -> None:
        num_blocks, block_size = line["pool"][:2]
        if not 2 <= num_blocks <= MOST_BLOCKS or block_size < 1:
            raise BadLine(f"tells of a pool of {num_blocks} blocks of {block_size}")
        knobs = {name: float(value["float"]) if isinstance(value, dict) else value for name, value in line["kn"]}
        view = RestoredView(num_blocks, block_size, {**past.knobs, **knobs})
        self.view = view
        self.end: Units = line["e"]
        self.generation: int = line["g"]
        self.next_number: int = line["r"]
        self.names = Names(lambda ref: past.names([ref])[0])
        self.names.next = self.next_number
        of = self.names.of
        view.seq, view.step = line["i"] - 1, line["s"]
        view.knob_version = line["kv"]
        read: dict[str, RequestView] = {}
        numbers: dict[str, int] = {}
        for row in sorted(line["req"]):
            request = _request(row, past)
            self.names.add(row[0], request.id)
            read[request.id] = request
            numbers[request.id] = row[0]
        queued = from_ranges(line["q"])
        names = past.names(queued)
        self.names.add_all(queued, names)
        unread = dict(zip(names, queued, strict=True))
        for id in read:
            unread.pop(id, None)
        view.requests = LazyRequests(
            read,
            unread,
            numbers | unread,
            lambda ref: RequestView(*past.arrival(ref)),
            self.next_number,
        )
        view.queued = dict.fromkeys(names)
        view.running = tuple(map(of, from_ranges(line["run"])))
        view.waiting_head = tuple(map(of, from_ranges(line["head"])))
        view.swapped = tuple(map(of, line.get("swp", ())))
        view.batch = tuple(map(of, line.get("bat", ())))
        view.num_waiting = line["nw"]
        owners, refs, cached = view.owners, view.refs, view.cached
        for id in view.running:
            for block in read[id].blocks:
                if not refs[block]:
                    owners[block] = id
                refs[block] += 1
        for block, ref in line["own"]:
            owners[block] = of(ref)
        flags = line["cached"]
        for at, block in enumerate(flags):
            if block >= 0:
                cached[block] = True
                following = flags[at + 1] if at + 1 < len(flags) else 0
                if following < 0:
                    if block - following >= num_blocks:
                        raise BadLine("names a block that the pool does not have")
                    cached[block : block + 1 - following] = [True] * (1 - following)
        off = from_ranges(line.get("off", ()), num_blocks)
        for block in off:
            refs[block] = -1
        view.free_blocks, view.off_blocks = line["free"], len(off)
        view.free_cpu_blocks, view.peak_used, view.planned = line["cpu"], line["peak"], line["plan"]
        view.storm, view.paused, view.fault = line.get("storm", ""), line.get("pau", False), line.get("fault")
        pace = line.get("pace")
        view.pace = float(pace["float"]) if isinstance(pace, dict) else pace
        view.preemptions, view.rejected, *ended = line["sum"]
        view.finished = dict(zip(FinishReason, ended, strict=False))


def _request(row: list[Any], past: Past) -> RequestView:
    """A request that has run, or whose prompt was encoded anew."""
    (
        ref, status, phase, computed, blocks, steps, reason, cached, swapped, preemptions, recomputed, first, *new,
    ) = row  # fmt: skip
    arrived = past.arrival(ref)
    request = RequestView(*arrived)
    if new:
        length, seq = new[:2]
        request.prompt_ids = LazyTuple(length, lambda: past.replaced_prompt(arrived.id, seq))  # type: ignore[assignment]
    request.status = RequestStatus(status)
    request.phase = Phase(phase) if phase is not None else None
    request.computed, request.blocks = computed, from_short(blocks)
    request.reason = Reason(reason) if reason is not None else None
    request.cached_tokens, request.swapped_blocks = cached, swapped
    request.preemptions, request.recomputed_tokens = preemptions, recomputed
    request.first_scheduled = to_seconds(first) if first is not None else None
    if steps:
        answer = _Answer(past, ref, arrived.id, steps)
        count = answer.count
        request.token_ids = LazyList(count, lambda: answer.read()[0])  # type: ignore[assignment]
        request.pieces = LazyList(count, lambda: answer.read()[1])  # type: ignore[assignment]
        request.token_steps = LazyList(count, lambda: answer.steps())  # type: ignore[assignment]
        request.token_times = LazyList(count, lambda: past.times(answer.steps()))  # type: ignore[assignment]
    return request


class _Answer:
    """The output of one request up to a keyframe, read once."""

    def __init__(self, past: Past, ref: int, id: str, ranges: list[int]) -> None:
        self._past, self._ref, self._id, self._ranges = past, ref, id, ranges
        self.count = sum(1 if value >= 0 else -value for value in ranges)
        self._read: tuple[list[int], list[str]] | None = None

    def steps(self) -> list[int]:
        return from_ranges(self._ranges)

    def read(self) -> tuple[list[int], list[str]]:
        if self._read is None:
            self._read = self._past.answer(self._ref, self._id, self.steps())
        return self._read
