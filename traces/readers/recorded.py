"""Our own recordings (`*.wbrec.jsonl`, packed or not) as a workload: the same prompts at the same times again.

A request's output length is what it had when it ended, however it ended; one that had not ended may generate up to
its limit. Requests that waited for others in the run arrive when they did there. Requests that ended without any output
or by an error are known, and not sent; refused ones left no prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from engine.records import Arrived, Finished
from engine.request import FinishReason
from engine.sampling_params import SamplingParams
from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.recording import Recording
from traces.recording.header import FORMAT
from traces.rows import Drop, Row

NOT_ENDED = "had not ended in the recording: up to its limit"
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed")
"""What does not end a request: its recorded length is exact."""


class Recorded(Reader):
    name = "recording"
    title = "recording of this program: prompts, arrivals and output lengths of a run"
    unit = "s"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        return SURE if first.get("k") == "hdr" and first.get("fmt") == FORMAT else NO

    def records(self, head: Head, context: Context) -> Iterator[tuple[int, Any]]:
        recording = Recording.open(head.path)
        try:
            yield from _requests(recording, context)
        finally:
            recording.close()
        for note in recording.notes:
            context.note(note)


def _requests(recording: Recording, context: Context) -> Iterator[tuple[int, Row | Drop]]:
    """(number of arrival from 1, row) in order of arrival: a row waits until the ones before it are known."""
    number = 0
    waiting: OrderedDict[int, tuple[Arrived, Finished | None]] = OrderedDict()
    live: dict[str, int] = {}
    if not recording.header.tokens:
        context.note("the recording holds no prompts: they are made up, of the same lengths, and share nothing")
    if recording.header.first_seq:
        context.note("the recording begins in the middle of a run: requests that were there already are not in it")
    for it in recording.iterations():
        for arrived in it.arrived:
            number += 1
            waiting[number] = (arrived, None)
            live[arrived.id] = number
        for refused in it.rejected:
            number += 1
            yield number, Drop("refused in the recording", f"{refused.id}: {refused.reason}")
        for ended in it.finished:
            if (place := live.pop(ended.id, None)) is not None:
                waiting[place] = (waiting[place][0], ended)
        while waiting and next(iter(waiting.values()))[1] is not None:
            place, (arrived, end) = waiting.popitem(last=False)
            yield place, _row(arrived, end, context)
    for place, (arrived, end) in waiting.items():
        yield place, _row(arrived, end, context)


def _row(arrived: Arrived, ended: Finished | None, context: Context) -> Row:
    row = Row(round(arrived.arrival * 1e9))
    ids = tuple(arrived.prompt_ids)
    more: dict[str, Any] = {"id": arrived.id, "client": arrived.client, "priority": arrived.priority}
    if ids and ids[0] >= 0:
        more["prompt_ids"] = ids
    else:
        row.prompt_len = len(ids)
    plain = SamplingParams()
    more |= {name: value for name in SAMPLING if (value := getattr(arrived.params, name)) != getattr(plain, name)}
    for name in ("deadline", "session", "expected_output"):
        if (value := getattr(arrived, name)) is not None:
            more[name] = value
    if arrived.after is not None:
        context.note("requests that waited for another one arrive when they did in the recording")
    row.more = more
    if ended is None:
        row.clamped = (NOT_ENDED,)
        more["max_tokens"] = arrived.max_tokens
    elif ended.output_len:
        row.output_len = ended.output_len
        row.failed = ended.reason is FinishReason.ERROR
    else:
        row.failed = True
        row.output_len = 0
    return row
