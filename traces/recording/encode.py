"""`Encoder`: records to lines. A record tells what could not be told from the ones before it (see `Track`).

Keys of an `it` line; an absent key means: as expected, or nothing happened. r stands for a request's number.

    i seq · s step · t gap to the record before (ns; a float: the time itself, in seconds) · d duration (likewise: end)
    tm [schedule, build, forward, sample, commit, swap] · bud token budget · rb rebuilt · ord order of the commands
    knob [[name, old, new, version]] · arr how many arrived: the last `req` lines · rej [[id, client, reason]]
    skip running ones that got nothing, without those in pre and uns
    pf [[r, tokens, phase, recomputed]] running ones that do something else than a plain decode
    adm [[r, tokens, kind, phase, start, recomputed]] · blk new blocks of all of them, as ranges
    sch [[r, tokens, kind, phase, start, recomputed, [blocks]]] all of it, where no short form fits
    pre [[r, by, need, free, lost, freed, cause, swapped]] · fin [[r, reason, detail, tail, [the rest]]]
    tok tokens, packed · tid whose, where not as expected · tx [[index, text]] where not as in the vocabulary
    run wait swp bat: [from, how many go, [who comes]] against what is expected of each queue
    why [r, reason, detail, numbers in the last detail] or null · uns [[reason, [places in running] or null, [r]]]
    lim limit · mid blocks given back at the end · off · cpu · bl [from, how many go, [[blocks, owner, ref, cached]]]
    sl [slots, used, padding] · cp copied · px prefix statistics · kv knob version · pau paused · pace · note notices
    plan planned requests · storm · fault · n [waiting, running, used blocks, cached blocks, scheduled tokens]
"""

from __future__ import annotations

import re
from typing import Any

from engine.records import BlockChange, Copied, Iteration, Kind, Limit, Phase, PrefixStats, Slots
from engine.request import RequestStatus
from engine.view import RequestView
from traces.recording.ints import pack, splice, to_ranges
from traces.recording.lines import dump
from traces.recording.names import Numbers
from traces.recording.requests import request_lines
from traces.recording.strip import without_text
from traces.recording.times import to_units
from traces.recording.track import Track, row_of

DIGITS = re.compile(r"\d+")
_NO_COPIES, _NO_PREFIX, _NO_SLOTS = Copied(), PrefixStats(), Slots()


class Encoder:
    """Owns the track (a view of the state) and the numbers of requests."""

    def __init__(self, track: Track, *, tokens: bool = True) -> None:
        self.track = track
        self.tokens = tokens
        self.numbers = Numbers()
        self.requests: list[bytes] = []
        """`req` and `pid` lines of the last record, one item for each request."""
        self.pieces: bytes = b""
        """`voc` line of the last record, empty when all its pieces were known."""
        self.started = {id: None for id, request in track.view.requests.items() if _has_run(request)}
        """Live requests that have run, whatever they do now."""
        self.replaced: dict[str, int] = {}
        """Live requests whose prompt a rebuild encoded anew: the number of that record."""
        self._vocabulary: dict[int, str] = {}

    def record(self, it: Iteration) -> bytes:
        """The `it` line; what has to be written before it is in `requests` and `pieces`. Folds the record in."""
        if not self.tokens:
            it = without_text(it)
        track, numbers = self.track, self.numbers
        view, of = track.view, numbers.of
        self.requests, self.pieces = [], b""
        for arrived in it.arrived:
            lines = request_lines(numbers.give(arrived.id), arrived, tokens=self.tokens)
            self.requests.append(b"".join(map(dump, lines)))
        line: dict[str, Any] = {"k": "it", "i": it.seq}
        if it.step != view.step + bool(it.scheduled):
            line["s"] = it.step
        self._times(it, line)
        if it.budget != (track.budget if it.scheduled else 0):
            line["bud"] = it.budget
        if it.rebuilt is not None or it.knobs or it.arrived or it.rejected or it.order:
            self._commands(it, line)
        events = self._scheduled(it, line)
        if it.preempted:
            line["pre"] = [
                [of.get(one.id, one.id), of.get(one.by, one.by), *one[2:6], one.cause.value, one.swapped_blocks]
                for one in it.preempted
            ]
        self._tokens(it, line)
        self._queues(it, line)
        self._blocks(it, line, events)
        self._rest(it, line)
        usable = (it.rebuilt.num_blocks if it.rebuilt is not None else view.num_blocks) - 1 - it.off_blocks
        track.apply(it)
        if self._joined:
            self.started.update(self._joined)
        if it.rebuilt is not None:
            for id, _ in it.rebuilt.prompts:
                self.replaced[id] = it.seq
                self.started[id] = None
        if it.finished:
            self._finished(it, line)
            for done in it.finished:
                numbers.end(done.id)
                self.started.pop(done.id, None)
                self.replaced.pop(done.id, None)
        line["n"] = [it.num_waiting, len(it.running), usable - it.free_blocks, track.cached, self._total]
        return dump(line)

    # ---- parts ------------------------------------------------------------------------------------

    def _times(self, it: Iteration, line: dict[str, Any]) -> None:
        start, end, before = to_units(it.t_start), to_units(it.t_end), self.track.end
        whole = type(start) is int
        line["t"] = start - before if whole and type(before) is int else float(it.t_start)  # type: ignore[operator]
        line["d"] = end - start if whole and type(end) is int else float(it.t_end)  # type: ignore[operator]
        timings = [to_units(part) for part in it.timings]
        while timings and timings[-1] == 0:
            timings.pop()
        if timings:
            line["tm"] = timings

    def _commands(self, it: Iteration, line: dict[str, Any]) -> None:
        of = self.numbers.of
        if it.rebuilt is not None:
            built = it.rebuilt
            prompts = [[of.get(id, id), pack(ids) if self.tokens else len(ids)] for id, ids in built.prompts]
            knobs = [[name, number(value)] for name, value in built.knobs]
            line["rb"] = [built.model, built.dtype, built.num_blocks, built.block_size, knobs, prompts]
        if it.knobs:
            line["knob"] = [[name, number(old), number(new), version] for name, old, new, version in it.knobs]
        if it.arrived:
            line["arr"] = len(it.arrived)
        if it.rejected:
            line["rej"] = [list(one) for one in it.rejected]
        if it.order != "a" * len(it.arrived):
            line["ord"] = it.order

    def _scheduled(self, it: Iteration, line: dict[str, Any]) -> list[Any]:
        """Writes who was scheduled; returns what that does to blocks, None when it cannot be told.

        Leaves who should have sampled and the sum of tokens in `_samplers` and `_total`.
        """
        track, of = self.track, self.numbers.of
        view, known, items = track.view, track.known, it.scheduled
        requests, size = view.requests, view.block_size
        self._samplers: list[str] = []
        self._total = 0
        self._joined: dict[str, None] = {}
        if it.rebuilt is not None:
            return self._in_full(it, line)
        caching = bool(view.knobs["enable_prefix_caching"])
        expected: Any = view.running
        if not items:
            return []
        if it.preempted or it.unscheduled:
            out = {one.id for one in it.preempted}
            out.update([one.id for one in it.unscheduled])
            expected = [id for id in expected if id not in out]
        skipped: list[int] = []
        blocks: list[int] = []
        chunks: list[Any] = []
        joined: list[Any] = []
        events: list[Any] = []
        sample, running, decode = self._samplers.append, Kind.RUNNING, Phase.DECODE
        count, at, total = len(items), 0, 0
        for id in expected:
            if at >= count or items[at][0] != id:
                skipped.append(of[id])
                continue
            item = items[at]
            at += 1
            _, tokens, kind, phase, start, again, new = item
            request = requests[id]
            if kind is not running or start != request.computed:
                return self._in_full(it, line)
            total += tokens
            if tokens != 1 or phase is not decode or again:
                chunks.append([of[id], tokens, phase.value, again] if again else [of[id], tokens, phase.value])
            if start + tokens == known[id]:
                sample(id)
            within = start % size
            if new or not within or within + tokens >= size:
                held = request.blocks
                if len(new) != -(-(start + tokens) // size) - len(held):
                    return self._in_full(it, line)
                blocks += new
                events.append(row_of(item, held, size, caching))
            elif len(request.blocks) * size < start + tokens:
                return self._in_full(it, line)
        fresh = {one.id: len(one.prompt_ids) for one in it.arrived} if it.arrived else {}
        for item in items[at:]:
            id, tokens, kind, phase, start, again, new = item
            if kind is running or len(new) != -(-(start + tokens) // size):
                return self._in_full(it, line)
            total += tokens
            self._joined[id] = None
            row = [of[id], tokens, kind.value, phase.value]
            if start or again:
                row += [start, again] if again else [start]
            joined.append(row)
            if start + tokens == (fresh[id] if id in fresh else known[id]):
                sample(id)
            blocks += new
            events.append(row_of(item, (), size, caching))
        self._total = total
        if skipped:
            line["skip"] = to_ranges(skipped)
        if chunks:
            line["pf"] = chunks
        if joined:
            line["adm"] = joined
        if blocks:
            line["blk"] = to_ranges(blocks)
        return events

    def _in_full(self, it: Iteration, line: dict[str, Any]) -> list[Any]:
        """No short form fits: an order nobody expects, or a record of a rebuild."""
        of = self.numbers.of
        rows = []
        for id, tokens, kind, phase, start, again, new in it.scheduled:
            rows.append([of.get(id, id), tokens, kind.value, phase.value, start, again, to_ranges(new)])
        line["sch"] = rows
        self._samplers = [item.id for item in it.scheduled]
        self._joined = dict.fromkeys(self._samplers)
        self._total = sum([item.num_tokens for item in it.scheduled])
        return []

    def _tokens(self, it: Iteration, line: dict[str, Any]) -> None:
        if it.rebuilt is not None:
            self._vocabulary.clear()
        ids = [token[0] for token in it.tokens]
        if ids != self._samplers:
            line["tid"] = self.numbers.refs(ids)
        vocabulary = self._vocabulary
        if it.rebuilt is not None:
            vocabulary.clear()
        if not (ids and self.tokens):
            return
        line["tok"] = pack([token[1] for token in it.tokens])
        new, odd = [], []
        for at, (_, token, text) in enumerate(it.tokens):
            listed = vocabulary.get(token)
            if listed is None:
                vocabulary[token] = text
                new.append([token, text])
            elif listed != text:
                odd.append([at, text])
        if odd:
            line["tx"] = odd
        if new:
            generation = self.track.generation + (it.rebuilt is not None)
            self.pieces = dump({"k": "voc", "g": generation, "v": new})

    def _queues(self, it: Iteration, line: dict[str, Any]) -> None:
        track, refs = self.track, self.numbers.refs
        left = {done.id for done in it.finished} if it.finished else set()
        gone = left.union([one.id for one in it.preempted]) if it.preempted else left
        change = splice(track.running_after(gone, it.scheduled), it.running)
        if change is not None:
            line["run"] = [*change[:2], refs(change[2])]  # type: ignore[arg-type]
        if not (it.num_waiting or it.swapped or it.waiting or track.view.queued):
            left = set()
        else:
            left = left.union([item[0] for item in it.scheduled if item[2] is not Kind.RUNNING])
        change = splice(track.swapped_after(it.preempted, left), it.swapped)
        if change is not None:
            line["swp"] = [*change[:2], refs(change[2])]  # type: ignore[arg-type]
        change = splice(track.waiting_after(it.arrived, it.preempted, left, it.swapped, it.num_waiting), it.waiting)
        if change is not None:
            line["wait"] = [*change[:2], refs(change[2])]  # type: ignore[arg-type]
        change = splice(track.view.batch, it.batch)
        if change is not None:
            line["bat"] = [*change[:2], refs(change[2])]  # type: ignore[arg-type]

    def _blocks(self, it: Iteration, line: dict[str, Any], events: list[Any]) -> None:
        if not it.blocks and not events and not it.finished and not it.preempted:
            return
        expected: tuple[BlockChange, ...] = ()
        if it.rebuilt is None and "sch" not in line:
            ran = {item[0] for item in it.scheduled} if it.finished else ()
            first = [one.id for one in it.finished if one.id not in ran]
            first += [one.id for one in it.preempted]
            last = [one.id for one in it.finished if one.id in ran]
            expected = self.track.blocks_after(first, events, last)
        change = splice(expected, it.blocks)
        if change is None:
            return
        rows: list[list[Any]] = []
        of = self.numbers.of
        changes: Any = change[2]
        for block, owner, ref, cached in changes:
            holder = None if owner is None else of.get(owner, owner)
            if rows and rows[-1][1:] == [holder, ref, int(cached)]:
                rows[-1][0].append(block)
            else:
                rows.append([[block], holder, ref, int(cached)])
        for row in rows:
            row[0] = to_ranges(row[0])
        line["bl"] = [*change[:2], rows]

    def _rest(self, it: Iteration, line: dict[str, Any]) -> None:
        track = self.track
        view = track.view
        if it.blocked != track.blocked:
            line["why"] = self._why(it)
        if it.unscheduled != track.unscheduled:
            line["uns"] = self._unscheduled(it)
        if it.limit is not (track.limit if it.scheduled else Limit.UNDERLOADED):
            line["lim"] = it.limit.value
        if it.free_blocks != it.free_blocks_mid:
            line["mid"] = it.free_blocks - it.free_blocks_mid
        if it.off_blocks != view.off_blocks:
            line["off"] = it.off_blocks
        if it.free_cpu_blocks != view.free_cpu_blocks:
            line["cpu"] = it.free_cpu_blocks
        if it.slots != (Slots(track.slots, len(it.tokens)) if it.scheduled else _NO_SLOTS):
            line["sl"] = list(it.slots)
        if it.copied != _NO_COPIES:
            line["cp"] = list(it.copied)
        if it.prefix != _NO_PREFIX:
            line["px"] = list(it.prefix)
        if it.knob_version != (it.knobs[-1].version if it.knobs else view.knob_version):
            line["kv"] = it.knob_version
        if it.paused != view.paused:
            line["pau"] = it.paused
        if it.pace != view.pace:
            line["pace"] = number(it.pace)
        if it.planned != max(0, view.planned - len(it.arrived)):
            line["plan"] = it.planned
        if it.storm != view.storm:
            line["storm"] = it.storm
        if it.notices:
            line["note"] = list(it.notices)
        if it.fault is not None:
            line["fault"] = it.fault

    def _why(self, it: Iteration) -> list[Any] | None:
        if it.blocked is None:
            return None
        id, reason, detail = it.blocked
        told = self.track.detail
        row = [self.numbers.of.get(id, id), reason.value]
        if detail == told:
            return row
        if DIGITS.split(detail) == DIGITS.split(told):
            return [*row, "", ",".join(DIGITS.findall(detail))]
        return [*row, detail]

    def _unscheduled(self, it: Iteration) -> list[Any]:
        rows: list[Any] = []
        places = {id: at for at, id in enumerate(self.track.view.running)}
        of = self.numbers.of
        for id, reason in it.unscheduled:
            at = places.get(id)
            kind = "at" if at is not None else "id"
            if not rows or rows[-1][0] != reason.value or rows[-1][1] != kind:
                rows.append([reason.value, kind, []])
            rows[-1][2].append(at if at is not None else of.get(id, id))
        return [[reason, to_ranges(whom)] if kind == "at" else [reason, None, whom] for reason, kind, whom in rows]

    def _finished(self, it: Iteration, line: dict[str, Any]) -> None:
        """After folding: the view knows the sums then."""
        rows = []
        requests, of = self.track.view.requests, self.numbers.of
        for done in it.finished:
            row: list[Any] = [of.get(done.id, done.id), done.reason.value, done.detail, done.tail]
            request = requests.get(done.id)
            if request is None or sums(request) != (done.client, *done[5:]):
                row.append([done.client, done.prompt_len, done.output_len, to_units(done.arrival), *done[8:]])
            elif not done.tail:
                row.pop()
                if not done.detail:
                    row.pop()
            rows.append(row)
        line["fin"] = rows


def _has_run(request: RequestView) -> bool:
    """Its state is more than that of a request that waits for its first turn."""
    if request.status is RequestStatus.FINISHED:
        return False
    return request.status is not RequestStatus.WAITING or request.first_scheduled is not None


def sums(request: RequestView) -> tuple[Any, ...]:
    """What a `Finished` tells besides reason and text, as the view has it."""
    return (
        request.client,
        len(request.prompt_ids),
        len(request.token_ids),
        request.arrival,
        request.cached_tokens,
        request.preemptions,
        request.recomputed_tokens,
    )


def number(value: Any) -> Any:
    """A knob value or a pace: JSON has no infinity, so that becomes an object."""
    if isinstance(value, float) and value - value != 0:
        return {"float": str(value)}
    return value
