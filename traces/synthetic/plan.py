"""What a preset is asked for, and how its drafts become the rows of a workload.

A `Draft` is a request in the lengths of the real trace. `finish` puts drafts in order of time, numbers them r1, r2 ...,
and scales their lengths. Invariant: the ends of pieces are scaled, not the pieces, so that the same content id has the
same length wherever it stands at the same place, and a chain is never longer or shorter than its prompt by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from traces.synthetic.arrivals import TICKS
from traces.synthetic.draw import Draw
from traces.workload import RequestSpec


@dataclass(frozen=True, slots=True)
class Plan:
    """One call of `generate`, checked."""

    name: str
    n: int
    """Rows; with `until`, at most."""
    rate: float
    """Requests a second over all; 0 where the loop is closed."""
    seed: int
    variant: str
    until: int | None = None
    """Microseconds at which a closed loop stops."""
    len_scale: float = 1.0
    max_len: int | None = None
    slo_scale: float = 1.0

    @property
    def span(self) -> float:
        """Seconds that n requests take at the rate."""
        return self.n / self.rate

    def draw(self, stream: str) -> Draw:
        return Draw(self.seed, f"{self.name}/{stream}")

    def scaled(self, tokens: float) -> int:
        return max(1, round(tokens * self.len_scale))


@dataclass(slots=True, eq=False)
class Draft:
    time: int
    """Microseconds."""
    prompt: float
    """Tokens, unscaled."""
    output: float
    client: str
    pieces: list[tuple[int, float]] = field(default_factory=list)
    """(content id, where it ends in the prompt), unscaled, ascending: what other prompts have too."""
    session: str | None = None
    turn: int | None = None
    previous: Draft | None = None
    """Closed loop: it comes `delay` microseconds after this one has ended."""
    delay: int = 0
    priority: int = 0
    deadline: float | None = None
    """Seconds, before `slo_scale`."""
    id: str = ""


def finish(drafts: Iterable[Draft], plan: Plan) -> tuple[RequestSpec, ...]:
    ordered = sorted(drafts, key=lambda draft: draft.time)[: plan.n]
    for number, draft in enumerate(ordered, 1):
        draft.id = f"r{number}"
    return tuple(_spec(draft, plan) for draft in ordered)


def _spec(draft: Draft, plan: Plan) -> RequestSpec:
    prompt, output = plan.scaled(draft.prompt), plan.scaled(draft.output)
    if plan.max_len is not None:
        # The answer keeps up to half of the window: a prompt can be cut short, an answer of one token shows nothing.
        prompt = min(prompt, plan.max_len - min(output, plan.max_len // 2))
        output = min(output, plan.max_len - prompt)
    ids, lens, begin = [], [], 0
    for key, exact in draft.pieces:
        end = plan.scaled(exact)
        if end > begin and begin < prompt:
            ids.append(key)
            lens.append(end - begin)
            begin = end
    return RequestSpec(
        draft.id,
        arrival=draft.time / TICKS,
        prompt_len=prompt,
        output_len=output,
        prefix_ids=tuple(ids),
        prefix_lens=tuple(lens),
        client=draft.client,
        priority=draft.priority,
        deadline=None if draft.deadline is None else round(draft.deadline * plan.slo_scale, 6),
        session=draft.session,
        turn=draft.turn,
        after=None if draft.previous is None else draft.previous.id,
        delay=draft.delay / TICKS,
    )
