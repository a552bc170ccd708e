"""`Iteration`: the one immutable record of all that happened in an iteration.

The live screen, recordings, metrics and exports read this stream and nothing else. Times are seconds
on the engine's clock. Request ids are strings; the same id means the same request for ever.
Records hold no tensors and no references into engine state.

`seq` numbers the records without gaps. `step` counts iterations that ran the model: a record that only
carries commands (an arrival while paused, a knob change) has `scheduled == ()` and repeats the step of
the last iteration before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.knobs import KnobValue
from engine.request import FinishReason
from engine.sampling_params import SamplingParams

WAITING_HEAD = 64
"""How many ids from the front of the waiting queue a record lists; a long queue must not cost more."""


class Phase(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    RECOMPUTE = "recompute"
    """Tokens computed before, lost to a preemption and computed again."""


class Kind(StrEnum):
    NEW = "new"
    RUNNING = "running"
    RESUMED = "resumed"
    SWAPPED_IN = "swapped-in"
    """Back from the swap pool: nothing is computed again."""


class Cause(StrEnum):
    """Why a request was preempted."""

    BLOCKS = "blocks"
    """Another running request needed its blocks."""
    SHRINK = "shrink"
    """num_blocks was lowered."""
    DISPLACED = "displaced"
    """The policy puts another request before it."""
    REBUILD = "rebuild"
    """The engine was built anew."""


class Reason(StrEnum):
    """Why a request did not run in an iteration."""

    BUDGET = "budget"
    """No tokens left in the iteration's budget."""
    SEQS = "seqs"
    """All max_num_seqs slots taken."""
    BLOCKS = "blocks"
    """Not enough free KV blocks."""
    WATERMARK = "watermark"
    """Enough blocks, but not above the watermark."""
    PREEMPTION = "preemption"
    """Nothing is admitted in an iteration that preempted."""
    BEHIND_HEAD = "behind-head"
    """The head of the queue cannot be admitted, and nobody overtakes it."""
    HELD = "held"
    """prefill_schedule_interval holds prompts back."""
    POLICY = "policy"
    """The policy keeps it back."""
    CLIENT_BUDGET = "client-budget"
    """Its client has had client_token_budget tokens in this iteration."""
    SWAPPED = "swapped"
    """Swapped-out requests come before waiting ones."""
    STATIC_BATCH = "static-batch"
    """The static batch is closed: it waits for the batch to end, or for the others' prompts to be read."""
    PAUSED = "paused"


class Limit(StrEnum):
    """What bound the iteration."""

    KV_PRESSURE = "KV_PRESSURE"
    SEQ_CAP = "SEQ_CAP"
    TOKEN_BUDGET = "TOKEN_BUDGET"
    STATIC_BATCH = "STATIC_BATCH"
    """The batch is closed: nobody is let in before its longest member ends."""
    HELD_BACK = "HELD_BACK"
    """The policy, a client's budget or prefill_schedule_interval keeps requests back that there is room for."""
    UNDERLOADED = "UNDERLOADED"


class Timings(NamedTuple):
    """Seconds spent in the parts of an iteration."""

    schedule: float = 0.0
    build: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    commit: float = 0.0
    swap: float = 0.0
    """Copying KV to the swap pool and back."""


class Arrived(NamedTuple):
    id: str
    client: str
    priority: int
    arrival: float
    """Planned arrival time: latencies count from here, whatever delayed the engine."""
    prompt_ids: tuple[int, ...]
    prompt_text: str | None
    max_tokens: int
    """Most output tokens this request can get (max_model_len included)."""
    sampling: str
    """For people: "greedy" or "T 0.8 top_p 0.9 seed 7"."""
    deadline: float | None = None
    """Seconds after arrival by which the first token should be there."""
    expected_output: int | None = None
    """Output tokens an oracle expects."""
    params: SamplingParams = SamplingParams()
    session: str | None = None
    after: str | None = None
    """The request whose end it waited for (closed loop); `arrival` is then that end plus `delay`."""
    delay: float = 0.0


class Rejected(NamedTuple):
    id: str
    client: str
    reason: str
    """One line with the numbers."""


class Scheduled(NamedTuple):
    id: str
    num_tokens: int
    kind: Kind
    phase: Phase
    computed_before: int
    """For new and resumed: the prefix-cache hit in tokens."""
    recomputed: int
    """How many of num_tokens had been computed before a preemption."""
    new_blocks: tuple[int, ...]
    """Whole table for new and resumed (hits first), appended blocks for running."""


class Preempted(NamedTuple):
    id: str
    by: str
    """The request that needed the blocks (may be the same) or took its place; "" when num_blocks was lowered."""
    need: int
    """Blocks that were needed."""
    free: int
    """Blocks free at that moment."""
    lost_tokens: int
    """Computed tokens thrown away; 0 when they were swapped out."""
    freed_blocks: int
    cause: Cause = Cause.BLOCKS
    swapped_blocks: int = 0
    """Blocks copied to the swap pool; 0: its tokens are computed again."""


class Token(NamedTuple):
    id: str
    token_id: int
    text: str
    """Text that became certain with this token; may be empty, is never a broken character."""


class Finished(NamedTuple):
    id: str
    client: str
    reason: FinishReason
    detail: str
    """Why, for people: which stop string, which error."""
    tail: str
    """Text held back until the end was known; comes after the last token's text."""
    prompt_len: int
    output_len: int
    arrival: float
    cached_tokens: int
    preemptions: int
    recomputed_tokens: int


class Slots(NamedTuple):
    """What an iteration made of its batch slots: each of them could have given one request one step.

    Used: steps that gave a token (the iteration that ends a prompt is its request's first). Wasted = total - used.
    """

    total: int = 0
    used: int = 0
    padding: int = 0
    """Prompt tokens a padded batch would add in this iteration (static batching only)."""


class Copied(NamedTuple):
    """KV moved between the pool and the swap pool in one iteration."""

    out_blocks: int = 0
    in_blocks: int = 0
    num_bytes: int = 0


class Waiting(NamedTuple):
    """Why admission stopped: the head of the queue, its reason, and the numbers as a sentence."""

    id: str
    reason: Reason
    detail: str


class Unscheduled(NamedTuple):
    """A running request that got no tokens in this iteration."""

    id: str
    reason: Reason


class KnobChange(NamedTuple):
    name: str
    old: KnobValue
    new: KnobValue
    version: int


class BlockChange(NamedTuple):
    block: int
    owner: str | None
    """First holder's request id; None when nobody holds it."""
    ref: int
    """-1: switched off, num_blocks leaves it out."""
    cached: bool
    """Carries a prefix-cache key (with ref 0: free, but still of use)."""


class Rebuilt(NamedTuple):
    """The engine was built anew: an empty pool of other dimensions, maybe another model. All else went on.

    Running requests are told as preempted; swapped-out ones lose their swap blocks and wait to be computed again.
    """

    model: str
    dtype: str
    num_blocks: int
    """Allocated blocks."""
    block_size: int
    knobs: tuple[tuple[str, KnobValue], ...]
    """All of them, as they are now."""
    prompts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Waiting requests whose prompt another tokenizer had to encode anew: id, token ids."""


class PrefixStats(NamedTuple):
    """Prefix-cache counters of one iteration, in tokens."""

    queries: int = 0
    hits: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0


@dataclass(frozen=True, slots=True)
class Iteration:
    seq: int
    step: int
    t_start: float
    t_end: float
    timings: Timings = Timings()
    budget: int = 0
    """Token budget of this iteration."""
    # in the order in which things happen
    rebuilt: Rebuilt | None = None
    knobs: tuple[KnobChange, ...] = ()
    arrived: tuple[Arrived, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    order: str = ""
    """How the above and the aborts were mixed, a letter each: k knob, a arrived, r rejected, x aborted, b rebuilt."""
    scheduled: tuple[Scheduled, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    tokens: tuple[Token, ...] = ()
    finished: tuple[Finished, ...] = ()
    """In order; aborts (which come before scheduling) first."""
    # the state afterwards
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    """The first WAITING_HEAD ids in order of service."""
    num_waiting: int = 0
    swapped: tuple[str, ...] = ()
    """Swapped-out ids in order of return; they come before all waiting ones."""
    batch: tuple[str, ...] = ()
    """Members of the static batch by slot, the finished ones included; () when batching is continuous."""
    blocked: Waiting | None = None
    unscheduled: tuple[Unscheduled, ...] = ()
    limit: Limit = Limit.UNDERLOADED
    free_blocks_mid: int = 0
    """After scheduling, before the finished ones gave theirs back."""
    free_blocks: int = 0
    off_blocks: int = 0
    """Allocated blocks that num_blocks leaves out."""
    free_cpu_blocks: int = 0
    blocks: tuple[BlockChange, ...] = ()
    slots: Slots = Slots()
    copied: Copied = Copied()
    prefix: PrefixStats = PrefixStats()
    knob_version: int = 0
    paused: bool = False
    pace: float | None = None
    """Most iterations a second, None: as fast as it goes."""
    notices: tuple[str, ...] = ()
    """One line each for commands that were refused, and warnings a person should see."""
    planned: int = 0
    """Requests known but not yet arrived."""
    storm: str = ""
    """Cause of the preemption storm that rages, "" when none does."""
    fault: str | None = None
    """Traceback of the fault that ended the engine; the last record then."""

    @property
    def executed(self) -> bool:
        return bool(self.scheduled)

    @property
    def duration(self) -> float:
        return self.t_end - self.t_start

    @property
    def total_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)

    def tokens_in(self, phase: Phase) -> int:
        return sum(item.num_tokens for item in self.scheduled if item.phase is phase)
