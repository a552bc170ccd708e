"""`Track`: what writer and reader of a recording both know before a record, so that a record tells only what is new.

Invariant: both sides change it by `apply` and by `begin_group` alone, with equal records: so both predict the same.
What is predicted may be wrong (policies, cache hits, displacement): then the record says what was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from engine.records import WAITING_HEAD, Arrived, BlockChange, Iteration, Kind, Limit, Preempted, Scheduled, Unscheduled
from engine.records import Waiting as Blocked
from engine.view import EngineView
from traces.recording.times import Units, to_units

Row = tuple[str, Sequence[int], Sequence[int], Sequence[int]]
"""What a scheduled request does to blocks: its id, those it shares, those it takes, those that become cacheable."""


class Known(dict[str, int]):
    """Known tokens (prompt and output) of a request by id, counted when first asked for."""

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self._view = view

    def __missing__(self, id: str) -> int:
        request = self._view.requests[id]
        count = self[id] = len(request.prompt_ids) + len(request.token_ids)
        return count


class Track:
    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.known = Known(view)
        self.generation = 0
        """Grows with every rebuild: another model has another vocabulary."""
        self.count_blocks()
        self.begin_group(0)

    def count_blocks(self) -> None:
        self.used = sum(ref > 0 for ref in self.view.refs[1:])
        self.cached = sum(self.view.cached)

    def begin_group(self, end: Units) -> None:
        """Forget what a reader who begins here does not know. end: of the record before."""
        self.end = end
        self.budget = 0
        self.slots = 0
        self.limit = Limit.UNDERLOADED
        self.blocked: Blocked | None = None
        self.detail = ""
        """The last one that was told."""
        self.unscheduled: tuple[Unscheduled, ...] = ()

    def apply(self, it: Iteration) -> None:
        """Go on by one record."""
        view, known = self.view, self.known
        if it.rebuilt is not None:
            self.generation += 1
            self.used = self.cached = 0
            for _, _, ref, cached in it.blocks:
                self.used += ref > 0
                self.cached += cached
            for id, _ in it.rebuilt.prompts:
                known.pop(id, None)
        else:
            used, cached_blocks, refs, flags = self.used, self.cached, view.refs, view.cached
            for block, _, ref, cached in it.blocks:
                used += (ref > 0) - (refs[block] > 0)
                cached_blocks += cached - flags[block]
            self.used, self.cached = used, cached_blocks
        view.apply(it)
        for arrived in it.arrived:
            known[arrived.id] = len(arrived.prompt_ids)
        if it.rebuilt is not None:
            for id, prompt in it.rebuilt.prompts:
                known[id] = len(prompt)
        for token in it.tokens:
            if token[0] in known:  # or the view is asked later, which has counted this one
                known[token[0]] += 1
        for done in it.finished:
            known.pop(done.id, None)
        self.end = to_units(it.t_end)
        if it.scheduled:
            self.budget, self.slots, self.limit = it.budget, it.slots.total, it.limit
        self.blocked, self.unscheduled = it.blocked, it.unscheduled
        if it.blocked is not None:
            self.detail = it.blocked.detail

    @property
    def num_waiting(self) -> int:
        """As the queues tell, to be compared with what the record says."""
        return len(self.view.queued) - len(self.view.swapped)

    # ---- what is expected -------------------------------------------------------------------------

    def running_after(self, gone: set[str], scheduled: Iterable[Scheduled]) -> tuple[str, ...]:
        """gone: preempted and finished ids of this record."""
        running = self.view.running
        joined = [item.id for item in scheduled if item.kind is not Kind.RUNNING]
        if not gone:
            return (*running, *joined) if joined else running
        return tuple([id for id in (*running, *joined) if id not in gone])

    def waiting_after(
        self,
        arrived: Sequence[Arrived],
        preempted: Sequence[Preempted],
        left: set[str],
        swapped: Sequence[str],
        num_waiting: int,
    ) -> tuple[str, ...]:
        """The head of the queue if nobody overtakes. left: who was started or ended in this record."""
        view = self.view
        if not (arrived or preempted or left or swapped or view.swapped):
            return view.waiting_head[:num_waiting]
        out = {*left, *swapped}
        ids = [victim.id for victim in reversed(preempted) if victim.id not in out]
        out.update(ids)
        ids += [id for id in view.waiting_head if id not in out]
        wanted = min(WAITING_HEAD, num_waiting) - len(ids)
        if wanted > 0:
            out.update(ids)
            more = (id for id in view.queued if id not in out)
            ids += islice(more, wanted)
            wanted = min(WAITING_HEAD, num_waiting) - len(ids)
            if wanted > 0:
                ids += [one.id for one in arrived if one.id not in out][:wanted]
        return tuple(ids[: min(WAITING_HEAD, num_waiting)])

    def swapped_after(self, preempted: Sequence[Preempted], left: set[str]) -> tuple[str, ...]:
        swapped = self.view.swapped
        if not swapped and not preempted:
            return swapped
        stay = [id for id in swapped if id not in left]
        return (*stay, *[victim.id for victim in preempted if victim.swapped_blocks])

    def blocks_after(
        self, first_gone: Sequence[str], rows: Sequence[Row], last_gone: Sequence[str]
    ) -> tuple[BlockChange, ...]:
        """Changes in the order of a normal iteration.

        first_gone: whose blocks are given back before anything is scheduled; last_gone: after it.
        """
        view = self.view
        owners, refs, flags = view.owners, view.refs, view.cached
        changed: dict[int, list[object]] = {}

        def touch(block: int) -> list[object]:
            state = changed.get(block)
            if state is None:
                state = changed[block] = [owners[block], refs[block], flags[block]]
            return state

        tables: dict[str, Sequence[int]] = {}
        gone: set[str] = set()
        for id in first_gone:
            request = view.requests.get(id)
            if request is not None and request.blocks:
                gone.add(id)
                self._release(id, request.blocks, touch, tables, gone)
        for id, shared, taken, full in rows:
            for block in shared:
                state = touch(block)
                if state[1] == 0:
                    state[0] = id
                state[1] += 1  # type: ignore[operator]
            for block in taken:
                state = touch(block)
                state[0], state[1], state[2] = id, 1, False
            for block in full:
                touch(block)[2] = True
            if last_gone and (shared or taken):
                before = view.requests.get(id)
                tables[id] = [*(before.blocks if before is not None else ()), *shared, *taken]
        for id in last_gone:
            request = view.requests.get(id)
            table = tables.get(id)
            if table is None and request is not None:
                table = request.blocks
            gone.add(id)
            self._release(id, table or (), touch, tables, gone)
        new = tuple.__new__
        return tuple([new(BlockChange, (block, *state)) for block, state in changed.items()])

    def _release(self, id: str, table: Sequence[int], touch, tables, gone) -> None:  # type: ignore[no-untyped-def]
        requests, running = self.view.requests, self.view.running
        for at in range(len(table) - 1, -1, -1):
            block = table[at]
            state = touch(block)
            state[1] -= 1
            if state[1] <= 0:
                state[0] = None
            elif state[0] == id:  # the next holder, who has it at the same place: a common beginning
                for other in (*running, *tables):
                    if other not in gone:
                        held = tables.get(other)
                        if held is None:
                            held = requests[other].blocks
                        if at < len(held) and held[at] == block:
                            state[0] = other
                            break


def row_of(item: Scheduled, held: Sequence[int], block_size: int, caching: bool) -> Row:
    """held: blocks it had before."""
    id, count, kind, _, start, _, new = item
    if kind is Kind.RUNNING:
        full: Sequence[int] = ()
        if caching:
            first, last = start // block_size, (start + count) // block_size
            if last > first:
                full = held[first:last] if last <= len(held) else [*held, *new][first:last]
        return id, (), new, full
    hits = start // block_size if kind is not Kind.SWAPPED_IN else 0
    return id, new[:hits], new[hits:], new[hits : (start + count) // block_size] if caching else ()
