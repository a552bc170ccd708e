"""`Store`: what a recording's file holds, read when it is asked for: groups of records, requests, answers.

It is the past that keyframes leave to the file (see `Past`). Records of the groups looked at last are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from engine.knobs import KnobValue
from engine.records import Arrived, Iteration
from traces.errors import RecordingError
from traces.recording.decode import Decoder
from traces.recording.groups import Group, Groups
from traces.recording.header import Header
from traces.recording.ints import unpack
from traces.recording.keyframe import Restored
from traces.recording.lazy import LazyTuple
from traces.recording.lines import BadLine, load
from traces.recording.requests import arrived_of
from traces.recording.source import Source
from traces.recording.strip import UNKNOWN
from traces.recording.times import to_seconds
from traces.recording.track import Track
from traces.recording.vocabulary import Vocabulary

KEEP_GROUPS = 8
"""Decoded groups that are kept: 128 records of 64 requests take about 5 MB."""
KEEP_ARRIVALS = 1 << 16


class Store:
    def __init__(self, source: Source, name: str, header: Header) -> None:
        self.source = source
        self.name = name
        self.header = header
        self.groups = Groups()
        self.notes: list[str] = list(source.notes)
        """What a person should know."""
        self.ends = np.zeros(0)
        """When iterations ended, from the first one on; whoever opens the file sets it."""
        self.lock = threading.RLock()
        self.cache: OrderedDict[int, list[Iteration]] = OrderedDict()
        """Records by index of their group, maybe only its first ones."""
        self._known: OrderedDict[int, Arrived] = OrderedDict()
        self._vocabulary = Vocabulary(self._all_pieces)
        self._before: dict[int, dict[int, float]] = {}

    # ---- groups -----------------------------------------------------------------------------------

    def restore(self, group: Group) -> Restored:
        raw = self.source.line_at(group.start)
        try:
            line = load(raw)
            if line["k"] != "kf":
                raise BadLine("is no keyframe")
            return Restored(line, self)
        except BadLine as problem:
            self.note_bad(group.start, str(problem))
            raise RecordingError(
                f"{self.name}: the keyframe of records {group.seq} to {group.seq + group.records - 1} cannot be read"
            ) from None

    def decoder(self, restored: Restored) -> Decoder:
        track = Track(restored.view)
        track.generation = restored.generation
        track.begin_group(restored.end)
        return Decoder(track, restored.names, self._vocabulary, tokens=self.header.tokens)

    def decode(self, group: Group, last: int | None = None) -> tuple[Decoder, list[Iteration]]:
        """Records of a group, up to number `last`; fewer, with a note, when a line is bad."""
        decoder = self.decoder(self.restore(group))
        records: list[Iteration] = []
        lines = self.source.lines(group.start, group.end)
        next(lines)
        most = group.seq + group.records - 1 if last is None else last
        for offset, raw in lines:
            try:
                it = decoder.feed(load(raw))
            except BadLine as problem:
                self.note_bad(offset, str(problem))
                break
            if it is not None:
                records.append(it)
                if it.seq >= most:
                    break
        self.tell(decoder)
        return decoder, records

    def records(self, index: int) -> list[Iteration]:
        """All records of a group; fewer when a line is bad."""
        with self.lock:
            records = self.cache.get(index)
            group = self.groups.all[index]
            if records is None or len(records) < group.records:
                try:
                    _, records = self.decode(group) if group.records else (None, [])
                except RecordingError:
                    records = []
                self.keep(index, records)
            else:
                self.cache.move_to_end(index)
            return records

    def between(self, first: int, stop: int) -> list[Iteration]:
        """Records from the first one of a group to before `stop`; of the last group no more is decoded than that."""
        out: list[Iteration] = []
        while first < stop:
            index = self.groups.of_seq(first)
            group = self.groups.all[index]
            wanted = min(stop - group.seq, group.records)
            records = self.cache.get(index, [])
            if len(records) < wanted:
                _, records = self.decode(group, group.seq + wanted - 1)
                self.keep(index, records)
            else:
                self.cache.move_to_end(index)
            out += records[:wanted]
            if len(records) < wanted:
                break
            first = group.seq + group.records
        return out

    def keep(self, index: int, records: list[Iteration]) -> None:
        self.cache[index] = records
        self.cache.move_to_end(index)
        while len(self.cache) > KEEP_GROUPS:
            self.cache.popitem(last=False)

    def note_bad(self, offset: int, why: str) -> None:
        note = f"the line at byte {offset} {why}: what comes after it was not read"
        if note not in self.notes:
            self.notes.append(note)

    def tell(self, decoder: Decoder | None) -> None:
        if decoder is not None and decoder.disagreement is not None:
            note = f"check sums disagree: {decoder.disagreement}"
            if note not in self.notes:
                self.notes.append(note)

    def read_prelude(self, group: Group) -> None:
        """What live requests had said before a recording that begins in the middle of a run."""
        if group.records or not self.header.first_seq:
            return
        for offset, raw in self.source.lines(group.start, group.end):
            try:
                line = load(raw)
                if line["k"] == "had":
                    ends = [to_seconds(one) for one in line["e"]]
                    self._before[line["r"]] = dict(zip(line["s"], ends, strict=True))
            except (BadLine, KeyError, TypeError, ValueError) as problem:
                self.note_bad(offset, str(problem))

    # ---- the past of keyframes --------------------------------------------------------------------

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """At the start of the recorded engine."""
        return self.header.info.config.values()

    def names(self, numbers: Iterable[int]) -> list[str]:
        """Ids of requests."""
        out: list[str] = []
        group: Group | None = None
        ids: list[str] = []
        for number in numbers:
            if group is None or not 0 <= number - group.first_request < group.requests:
                group, ids, _ = self._arrived_in(number)
            out.append(ids[number - group.first_request])
        return out

    def arrival(self, number: int) -> Arrived:
        """A request as it arrived; its prompt is read when it is asked for."""
        with self.lock:
            known = self._known.get(number)
            if known is not None:
                return known
            offset = self._offset_of(number)
            raw = self.source.line_at(offset)
            line = load(raw)
            if line["k"] != "req" or line.get("r") != number:
                raise BadLine(f"is not request number {number}")
            arrived = arrived_of({**line, "pl": 0}, None)
            length = line.get("pl")
            if not isinstance(length, int) or length < 0:
                raise BadLine("tells no length of a prompt")
            if self.header.tokens:
                after = offset + len(raw) + 1
                text = self._prompt(after, number).get("text")
                prompt: Any = LazyTuple(length, lambda: self._prompt_ids(after, number))
                arrived = arrived._replace(prompt_ids=prompt, prompt_text=text)
            else:
                arrived = arrived_of(line, None)
            self._known[number] = arrived
            if len(self._known) > KEEP_ARRIVALS:
                self._known.popitem(last=False)
            return arrived

    def replaced_prompt(self, id: str, seq: int) -> tuple[int, ...]:
        for it in self.records(self.groups.of_seq(seq)):
            if it.seq == seq and it.rebuilt is not None:
                return dict(it.rebuilt.prompts)[id]
        raise RecordingError(f"{self.name}: record {seq} tells no prompt of {id!r}")

    def times(self, steps: Sequence[int]) -> list[float]:
        first, ends = self.groups.first_step, self.ends
        if steps and steps[0] < first:
            before = {step: end for table in self._before.values() for step, end in table.items()}
            return [float(ends[step - first]) if step >= first else before[step] for step in steps]
        return ends[np.asarray(steps, np.int64) - first].tolist() if steps else []

    def answer(self, number: int, id: str, steps: Sequence[int]) -> tuple[list[int], list[str]]:
        tokens: list[int] = []
        texts: list[str] = []
        first = self.groups.first_step
        if steps and steps[0] < first:
            had = self._had(number)
            tokens += had[0]
            texts += had[1]
        wanted = [step for step in steps if step >= first]
        at = 0
        while at < len(wanted):
            index = self.groups.of_step(wanted[at])
            group = self.groups.all[index]
            last = group.step + group.steps
            inside = {step for step in wanted[at : at + group.steps] if step <= last}
            for it in self.records(index):
                if it.step in inside and it.scheduled:
                    for token in it.tokens:
                        if token.id == id:
                            tokens.append(token.token_id)
                            texts.append(token.text)
                            break
            at += len(inside)
        return tokens, texts

    # ---- inside -----------------------------------------------------------------------------------

    def _arrived_in(self, number: int) -> tuple[Group, list[str], list[int]]:
        """The group in which a request arrived, the ids of all that did, and the offsets of their lines."""
        at = self.groups.of_request(number) if type(number) is int else -1
        group = self.groups.all[at] if at >= 0 else None
        if group is None or not 0 <= number - group.first_request < group.requests:
            raise BadLine(f"names request number {number}, which has not arrived")
        found = group.arrivals(lambda: self.source.read(*group.ix))
        return group, found.ids, found.q

    def _offset_of(self, number: int) -> int:
        group, _, offsets = self._arrived_in(number)
        return group.start + offsets[number - group.first_request]

    def _prompt(self, offset: int, number: int) -> dict[str, Any]:
        line = load(self.source.line_at(offset))
        if line["k"] != "pid" or line.get("r") != number:
            raise BadLine(f"is not the prompt of request number {number}")
        return line

    def _prompt_ids(self, offset: int, number: int) -> tuple[int, ...]:
        try:
            return arrived_of({"id": "", "t": 0, "max": 0}, self._prompt(offset, number)).prompt_ids
        except BadLine as problem:
            raise RecordingError(f"{self.name}: the prompt of request number {number} {problem}") from None

    def _all_pieces(self) -> Iterator[dict[str, Any]]:
        for group in self.groups.all:
            for place in group.pieces:
                try:
                    line = load(self.source.line_at(group.start + place))
                except BadLine:
                    continue
                if line["k"] == "voc":
                    yield line

    def _had(self, number: int) -> tuple[list[int], list[str]]:
        prelude = self.groups.all[0]
        for _, raw in self.source.lines(prelude.start, prelude.end):
            line = load(raw)
            if line["k"] == "had" and line["r"] == number:
                if "tok" not in line:
                    return [UNKNOWN] * len(line["s"]), [""] * len(line["s"])
                return unpack(line["tok"]), line["text"]
        return [], []
