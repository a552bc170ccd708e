"""`Decoder`: lines back to records, equal to those that were written (see `Encoder` for the keys).

Feed it the lines of a recording in order, from a keyframe on. It keeps the view that the records make, and compares
every record's check sums with that view: the first disagreement is told, and decoding goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from engine.records import (
    Arrived,
    BlockChange,
    Cause,
    Copied,
    Finished,
    Iteration,
    Kind,
    KnobChange,
    Limit,
    Phase,
    Preempted,
    PrefixStats,
    Reason,
    Rebuilt,
    Rejected,
    Scheduled,
    Slots,
    Timings,
    Token,
    Unscheduled,
    Waiting,
)
from engine.request import FinishReason
from traces.recording.encode import DIGITS, sums
from traces.recording.ints import from_ranges, unpack
from traces.recording.lines import BadLine
from traces.recording.names import Names
from traces.recording.requests import arrived_of
from traces.recording.strip import UNKNOWN
from traces.recording.times import to_seconds
from traces.recording.track import Row, Track, row_of
from traces.recording.vocabulary import Vocabulary

_KIND = {kind.value: kind for kind in Kind}
_PHASE = {phase.value: phase for phase in Phase}
_REASON = {reason.value: reason for reason in Reason}
_CAUSE = {cause.value: cause for cause in Cause}
_LIMIT = {limit.value: limit for limit in Limit}
_FINISH = {reason.value: reason for reason in FinishReason}
_NO_COPIES, _NO_PREFIX, _NO_SLOTS, _NO_TIMINGS = Copied(), PrefixStats(), Slots(), Timings()
_NS = 1e9
_new = tuple.__new__
WRONG = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


class Decoder:
    def __init__(self, track: Track, names: Names, vocabulary: Vocabulary, *, tokens: bool = True) -> None:
        """tokens: whether the recording holds prompts and answers."""
        self.track = track
        self.names = names
        self.vocabulary = vocabulary
        self.tokens = tokens
        self.disagreement: str | None = None
        """The first record whose check sums differ from the state, and how."""
        self._arrivals: list[dict[str, Any]] = []
        self._prompts: dict[int, dict[str, Any]] = {}

    def feed(self, line: dict[str, Any]) -> Iteration | None:
        """The record, when the line is one. BadLine when it cannot follow; the decoder is of no use then."""
        kind = line["k"]
        try:
            if kind == "it":
                return self._record(line)
            if kind == "req":
                self._arrivals.append(line)
            elif kind == "pid":
                self._prompts[line["r"]] = line
            elif kind == "voc":
                self.vocabulary.add(line)
        except WRONG as error:
            raise BadLine(f"says what cannot be: {type(error).__name__} {error}") from None
        return None

    def _record(self, line: dict[str, Any]) -> Iteration:
        track, names = self.track, self.names
        view = track.view
        seq = line["i"]
        if seq != view.seq + 1:
            raise BadLine(f"is record {seq} after record {view.seq}")
        get = line.get
        arrived = self._take_arrivals(get("arr", 0))
        rebuilt = self._rebuilt(line["rb"]) if "rb" in line else None
        start, end = self._times(line)
        preempted = self._preempted(line["pre"]) if "pre" in line else ()
        unscheduled = self._unscheduled(line["uns"]) if "uns" in line else track.unscheduled
        finished = self._ends(line["fin"]) if "fin" in line else ()
        scheduled, samplers, rows = self._scheduled(line, arrived, preempted, unscheduled, rebuilt)
        if "tid" in line:
            samplers = names.all(line["tid"])
        tokens = self._tokens(line, samplers, track.generation + (rebuilt is not None))
        ran = bool(scheduled)
        knobs = tuple([KnobChange(name, _number(a), _number(b), v) for name, a, b, v in get("knob", ())])
        num_waiting, num_running, used, cached, total = line["n"][:5]
        off = get("off", view.off_blocks)
        free = (rebuilt.num_blocks if rebuilt is not None else view.num_blocks) - 1 - off - used

        left = {done.id for done in finished}
        gone = left.union([one.id for one in preempted])
        running = self._spliced(track.running_after(gone, scheduled), get("run"))
        left = left.union([item[0] for item in scheduled if item[2] is not Kind.RUNNING])
        swapped = self._spliced(track.swapped_after(preempted, left), get("swp"))
        waiting = self._spliced(track.waiting_after(arrived, preempted, left, swapped, num_waiting), get("wait"))
        limit = get("lim")
        budget = get("bud")
        it = Iteration(
            seq,
            line["s"] if "s" in line else view.step + ran,
            start,
            end,
            Timings(*[to_seconds(part) for part in line["tm"]]) if "tm" in line else _NO_TIMINGS,
            (track.budget if ran else 0) if budget is None else budget,
            rebuilt,
            knobs,
            arrived,
            tuple([Rejected(*names_and_why) for names_and_why in get("rej", ())]),
            line["ord"] if "ord" in line else "a" * len(arrived),
            scheduled,
            preempted,
            tokens,
            finished,
            running,
            waiting,
            num_waiting,
            swapped,
            self._spliced(view.batch, get("bat")),
            self._why(line["why"]) if "why" in line else track.blocked,
            unscheduled,
            (track.limit if ran else Limit.UNDERLOADED) if limit is None else _LIMIT[limit],
            free - get("mid", 0),
            free,
            off,
            get("cpu", view.free_cpu_blocks or 0),
            self._blocks(line, rows, scheduled, preempted, finished, rebuilt),
            Slots(*line["sl"]) if "sl" in line else Slots(track.slots, len(tokens)) if ran else _NO_SLOTS,
            Copied(*line["cp"]) if "cp" in line else _NO_COPIES,
            PrefixStats(*line["px"]) if "px" in line else _NO_PREFIX,
            line["kv"] if "kv" in line else knobs[-1].version if knobs else view.knob_version,
            get("pau", view.paused),
            _number(line["pace"]) if "pace" in line else view.pace,
            tuple(get("note", ())),
            get("plan", max(0, view.planned - len(arrived))),
            get("storm", view.storm),
            get("fault"),
        )
        track.apply(it)
        if finished:
            it = self._with_sums(it, line["fin"])
            view.last = it
        if self.disagreement is None and it.fault is None:
            self._compare(it, (num_waiting, num_running, used, cached, total))
        return it

    # ---- parts ------------------------------------------------------------------------------------

    def _take_arrivals(self, count: int) -> tuple[Arrived, ...]:
        lines, self._arrivals = self._arrivals, []
        prompts, self._prompts = self._prompts, {}
        if count != len(lines):
            raise BadLine(f"tells of {count} arrivals, {len(lines)} came before it")
        arrived = []
        for line in lines:
            number = line["r"]
            if number != self.names.next:
                raise BadLine(f"request number {number} came instead of {self.names.next}")
            one = arrived_of(line, prompts.get(number))
            self.names.next += 1
            self.names.add(number, one.id)
            arrived.append(one)
        return tuple(arrived)

    def _times(self, line: dict[str, Any]) -> tuple[float, float]:
        gap, length = line["t"], line["d"]
        if type(gap) is not int:
            start = gap + 0.0
            units: Any = None
        else:
            units = gap + self.track.end  # type: ignore[operator]
            start = units / _NS
        if type(length) is not int:
            return start, length + 0.0
        if units is None:
            units = round(start * _NS)
        return start, (units + length) / _NS

    def _rebuilt(self, row: list[Any]) -> Rebuilt:
        model, dtype, num_blocks, block_size, knobs, prompts = row[:6]
        if not 2 <= num_blocks <= MOST_BLOCKS:
            raise BadLine(f"tells of a pool of {num_blocks} blocks")
        of = self.names.of
        return Rebuilt(
            model,
            dtype,
            num_blocks,
            block_size,
            tuple([(name, _number(value)) for name, value in knobs]),
            tuple([(of(ref), tuple(unpack(ids)) if self.tokens else (UNKNOWN,) * ids) for ref, ids in prompts]),
        )

    def _scheduled(
        self,
        line: dict[str, Any],
        arrived: tuple[Arrived, ...],
        preempted: tuple[Preempted, ...],
        unscheduled: tuple[Unscheduled, ...],
        rebuilt: Rebuilt | None,
    ) -> tuple[tuple[Scheduled, ...], Iterable[str], list[Row]]:
        """Also who should sample a token, and what happens to blocks."""
        track, names = self.track, self.names
        view, known = track.view, track.known
        if "sch" in line:
            full = [
                Scheduled(
                    names.of(ref), tokens, _KIND[kind], _PHASE[phase], start, again,
                    tuple(from_ranges(blocks, view.num_blocks if rebuilt is None else rebuilt.num_blocks)),
                )
                for ref, tokens, kind, phase, start, again, blocks in line["sch"]
            ]  # fmt: skip
            return tuple(full), [item.id for item in full], []
        if rebuilt is not None:
            raise BadLine("tells of a rebuild, and not in full who was scheduled")
        requests, size = view.requests, view.block_size
        caching = bool(view.knobs["enable_prefix_caching"])
        blocks = from_ranges(line["blk"]) if "blk" in line else []
        chunks = {names.of(row[0]): row for row in line.get("pf", ())}
        joined = line.get("adm", ())
        out: set[str] = set()
        if preempted or unscheduled or "skip" in line:
            out.update([one.id for one in preempted])
            out.update([one.id for one in unscheduled])
            out.update(names.all(from_ranges(line.get("skip", ()))))
        items: list[Scheduled] = []
        samplers: list[str] = []
        rows: list[Row] = []
        add, sample, running, decode = items.append, samplers.append, Kind.RUNNING, Phase.DECODE
        at = 0
        for id in view.running if line["n"][4] else ():
            if id in out:
                continue
            request = requests[id]
            start = request.computed
            tokens, phase, again = 1, decode, 0
            if id in chunks:
                row = chunks[id]
                tokens, phase = row[1], _PHASE[row[2]]
                again = row[3] if len(row) > 3 else 0
            within = start % size
            if within and within + tokens < size:
                item = _new(Scheduled, (id, tokens, running, phase, start, again, ()))
            else:
                held = request.blocks
                need = -(-(start + tokens) // size) - len(held)
                new = tuple(blocks[at : at + need]) if need > 0 else ()
                at += len(new)
                item = _new(Scheduled, (id, tokens, running, phase, start, again, new))
                rows.append(row_of(item, held, size, caching))
            add(item)
            if start + tokens == known[id]:
                sample(id)
        fresh = {one.id: len(one.prompt_ids) for one in arrived}
        for row in joined:
            id, tokens = names.of(row[0]), row[1]
            start = row[4] if len(row) > 4 else 0
            again = row[5] if len(row) > 5 else 0
            need = -(-(start + tokens) // size)
            new = tuple(blocks[at : at + need])
            at += need
            item = Scheduled(id, tokens, _KIND[row[2]], _PHASE[row[3]], start, again, new)
            rows.append(row_of(item, (), size, caching))
            add(item)
            if start + tokens == (fresh[id] if id in fresh else known[id]):
                sample(id)
        if at != len(blocks):
            raise BadLine(f"tells of {len(blocks)} new blocks, {at} are needed")
        return tuple(items), samplers, rows

    def _tokens(self, line: dict[str, Any], samplers: Iterable[str], generation: int) -> tuple[Token, ...]:
        if not self.tokens:
            return tuple([_new(Token, (id, UNKNOWN, "")) for id in samplers])
        if "tok" not in line:
            return ()
        ids = unpack(line["tok"])
        texts = self.vocabulary.pieces(generation, ids)
        for at, text in line.get("tx", ()):
            texts[at] = text
        return tuple([_new(Token, parts) for parts in zip(samplers, ids, texts, strict=True)])

    def _preempted(self, rows: list[Any]) -> tuple[Preempted, ...]:
        of = self.names.of
        return tuple(
            [Preempted(of(row[0]), of(row[1]), row[2], row[3], row[4], row[5], _CAUSE[row[6]], row[7]) for row in rows]
        )

    def _unscheduled(self, rows: list[Any]) -> tuple[Unscheduled, ...]:
        running = self.track.view.running
        out = []
        for row in rows:
            reason = _REASON[row[0]]
            ids = [running[at] for at in from_ranges(row[1])] if row[1] is not None else self.names.all(row[2])
            out += [Unscheduled(id, reason) for id in ids]
        return tuple(out)

    def _ends(self, rows: list[Any]) -> tuple[Finished, ...]:
        """Without the sums, which the view knows once the record is folded in."""
        of = self.names.of
        return tuple(
            [
                Finished(
                    of(row[0]), "", _FINISH[row[1]], row[2] if len(row) > 2 else "", row[3] if len(row) > 3 else "",
                    0, 0, 0.0, 0, 0, 0,
                )
                for row in rows
            ]
        )  # fmt: skip

    def _with_sums(self, it: Iteration, rows: list[Any]) -> Iteration:
        requests = self.track.view.requests
        finished = []
        for done, row in zip(it.finished, rows, strict=True):
            if len(row) > 4:
                client, prompt_len, output_len, arrival, *rest = row[4]
                values: Any = (client, prompt_len, output_len, to_seconds(arrival), *rest[:3])
            else:
                values = sums(requests[done.id])
            finished.append(Finished(done.id, values[0], done.reason, done.detail, done.tail, *values[1:]))
        return dataclasses.replace(it, finished=tuple(finished))

    def _spliced(self, expected: tuple[str, ...], change: list[Any] | None) -> tuple[str, ...]:
        if change is None:
            return expected
        start, gone, refs = change
        if not 0 <= start <= start + gone <= len(expected):
            raise BadLine("changes a queue where it has nobody")
        return (*expected[:start], *self.names.all(refs), *expected[start + gone :])

    def _blocks(
        self,
        line: dict[str, Any],
        rows: list[Row],
        scheduled: tuple[Scheduled, ...],
        preempted: tuple[Preempted, ...],
        finished: tuple[Finished, ...],
        rebuilt: Rebuilt | None,
    ) -> tuple[BlockChange, ...]:
        expected: tuple[BlockChange, ...] = ()
        if rebuilt is None and "sch" not in line and (rows or finished or preempted):
            ran = {item[0] for item in scheduled}
            first = [one.id for one in finished if one.id not in ran]
            first += [one.id for one in preempted]
            last = [one.id for one in finished if one.id in ran]
            expected = self.track.blocks_after(first, rows, last)
        if "bl" not in line:
            return expected
        most = rebuilt.num_blocks if rebuilt is not None else self.track.view.num_blocks
        start, gone, changes = line["bl"]
        if not 0 <= start <= start + gone <= len(expected):
            raise BadLine("changes blocks that are not expected to change")
        new = []
        for blocks, owner, ref, cached in changes:
            holder = None if owner is None else self.names.of(owner)
            new += [BlockChange(block, holder, ref, bool(cached)) for block in from_ranges(blocks, most)]
        if any(change.block >= most for change in new):
            raise BadLine("names a block that the pool does not have")
        return (*expected[:start], *new, *expected[start + gone :])

    def _why(self, row: list[Any] | None) -> Waiting | None:
        if row is None:
            return None
        id, reason = self.names.of(row[0]), _REASON[row[1]]
        told = self.track.detail
        if len(row) == 2:
            return Waiting(id, reason, told)
        if len(row) == 3:
            return Waiting(id, reason, row[2])
        parts = DIGITS.split(told)
        numbers = [*row[3].split(","), ""]
        if len(numbers) != len(parts):
            raise BadLine("changes the numbers of another sentence")
        return Waiting(id, reason, "".join([part + value for part, value in zip(parts, numbers, strict=True)]))

    def _compare(self, it: Iteration, told: tuple[int, ...]) -> None:
        track = self.track
        total = sum([item[1] for item in it.scheduled])
        found = (track.num_waiting, len(it.running), track.used, track.cached, total)
        if found != told:
            names = ("waiting", "running", "used blocks", "cached blocks", "scheduled tokens")
            parts = [f"{n} {a}, the state has {b}" for n, a, b in zip(names, told, found, strict=True) if a != b]
            self.disagreement = f"record {it.seq} (iteration {it.step}) tells {'; '.join(parts)}"


MOST_BLOCKS = 1 << 24
"""As the knob num_blocks allows."""


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["float"])
    return value
