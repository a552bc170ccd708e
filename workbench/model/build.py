"""What an engine was built of, and what building another one means, in words.

The words follow `engine.rebuild`: who ends, who is computed again, who is kept. The numbers are those of the view at
the moment of asking; what another model allows is not known before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.knobs import KnobValue
from engine.request import RequestStatus
from engine.view import EngineView, RequestView
from workbench.model.events import show

Changes = dict[str, tuple[KnobValue, KnobValue]]
"""Old and new value of each row."""


class Build(NamedTuple):
    step: int
    """First step it ran."""
    model: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens a request can have."""

    length: int
    """max_model_len: prompt and output."""
    allocated: int
    """Tokens of the pool there is memory for."""
    pool: int
    """Tokens of the pool as num_blocks leaves it."""

    @property
    def most(self) -> int:
        """Known tokens at which a request ends at the latest: the KV of the last one needs no place."""
        return min(self.length, self.pool + 1)

    def too_long(self, request: RequestView) -> bool:
        """Whether a carried-over request ends at once."""
        tokens = request.prompt_len + request.output_len
        return tokens >= self.length or tokens > self.pool or (tokens == self.allocated and not request.output_len)

    def reached(self, request: RequestView) -> int:
        """Tokens at which a request ends here, if nothing stops it before."""
        asked = request.params.max_tokens
        return self.most if asked is None else min(request.prompt_len + asked, self.most)


def rooms(changes: Changes, view: EngineView) -> tuple[Room, Room]:
    """As it is and as it will be, with the same model."""
    new = {name: value for name, (_, value) in changes.items()}
    length, usable = view.knobs.get("max_model_len"), view.knobs.get("num_blocks", view.num_blocks)
    before = _room(length, view.num_blocks, usable, view.block_size)
    after = _room(
        new.get("max_model_len", length),
        new.get("num_blocks", view.num_blocks),
        new.get("num_blocks", usable),
        new.get("block_size", view.block_size),
    )
    return before, after


def _room(length: KnobValue, blocks: KnobValue, usable: KnobValue, size: KnobValue) -> Room:
    assert isinstance(blocks, int) and isinstance(usable, int) and isinstance(size, int)
    allocated = (blocks - 1) * size
    return Room(min(length, allocated) if isinstance(length, int) else allocated, allocated, (usable - 1) * size)


def building_text(changes: Changes, view: EngineView) -> str:
    """What a person agrees to: old and new values, and what becomes of the requests."""
    what = ", ".join(f"{name} {show(old)}→{show(new)}" for name, (old, new) in changes.items())
    then = _another_model(view) if "model" in changes else _same_model(changes, view)
    return f"{what} builds the engine anew: {then}."


def _live(view: EngineView) -> list[RequestView]:
    return [request for request in view.requests.values() if request.status is not RequestStatus.FINISHED]


def _another_model(view: EngineView) -> str:
    live = _live(view)
    begun = [request for request in live if request.output_len]
    kept = len(live) - len(begun)
    parts = []
    if begun:
        places = [
            _count(begun, "running", RequestStatus.RUNNING),
            _count(begun, "swapped out", RequestStatus.SWAPPED),
            _count(begun, "waiting", RequestStatus.PREEMPTED, RequestStatus.WAITING),
        ]
        parts.append(
            f"{_requests(len(begun))} with output {_verb(len(begun), 'ends', 'end')} "
            f"({', '.join(filter(None, places))}): an answer cannot go on with another model"
        )
    else:
        parts.append("no answer has begun" if live else "nothing runs")
    if kept:
        prompts = "its prompt is" if kept == 1 else "their prompts are"
        parts.append(
            f"{_requests(kept)} without output {_verb(kept, 'is', 'are')} kept, {prompts} encoded anew and "
            f"{_verb(kept, 'ends', 'end')} where too long for the new engine"
        )
    elif not live:
        parts.append("the queue is kept")
    return "; ".join(parts)


def _same_model(changes: Changes, view: EngineView) -> str:
    live = _live(view)
    before, after = rooms(changes, view)
    ended = [request for request in live if after.too_long(request)]
    gone = {request.id for request in ended}
    kept = [request for request in live if request.id not in gone]
    cut = sum(after.reached(request) < before.reached(request) for request in kept)
    limit = f"max_model_len {after.length}" if after.length <= after.pool else f"a pool of {after.pool} tokens"
    parts = []
    if ended:
        begun = sum(request.output_len > 0 for request in ended)
        queued = len(ended) - begun
        whom = [f"{begun} with output" if begun else "", f"{queued} without" if queued else ""]
        parts.append(
            f"{_requests(len(ended))} too long for {limit} {_verb(len(ended), 'ends', 'end')} at once "
            f"({', '.join(filter(None, whom))})"
        )
    if cut:
        whose = f"{cut} other{'s' if cut > 1 else ''}" if ended else _requests(cut)
        parts.append(f"{whose} may be cut short" + ("" if ended else f" by {limit}"))
    running = sum(request.status is RequestStatus.RUNNING for request in kept)
    swapped = sum(request.status is RequestStatus.SWAPPED for request in kept)
    queue = "the rest of the queue" if ended else "the queue"
    names = [f"{running} running" if running else "", f"{swapped} swapped-out" if swapped else ""]
    again = " and ".join(filter(None, names))
    if again:
        one = running + swapped == 1
        parts.append(f"{again} {'request is' if one else 'requests are'} computed again, {queue} is kept")
    elif kept or not ended:
        parts.append(f"{queue} is kept" if parts else "nothing runs, the queue is kept")
    if view.planned and after.most < before.most:
        parts.append("planned requests too long for it are refused")
    return "; ".join(parts)


def _count(requests: list[RequestView], word: str, *states: RequestStatus) -> str:
    count = sum(request.status in states for request in requests)
    return f"{count} {word}" if count else ""


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
