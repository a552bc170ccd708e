"""One request from arrival to its end.

Known tokens = prompt + generated so far. `num_computed` of them, always the leading ones, have their
K/V in the blocks of `block_table`. A decode is a request with one known token left to compute.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from engine.sampling_params import SamplingParams


class RequestStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Waits to be computed again."""
    SWAPPED = "swapped"
    """Preempted, with its KV in the swap pool."""
    FINISHED = "finished"


class FinishReason(StrEnum):
    LENGTH = "length"
    STOP = "stop"
    ABORT = "abort"
    ERROR = "error"


class LatePrompt(Protocol):
    """A prompt whose token ids are made when its request arrives: those of a long trace would not fit into memory."""

    def __len__(self) -> int:
        """How many there will be."""
        ...

    def ids(self) -> list[int]:
        """A new list of them, the same every time."""
        ...


class Request:
    """Mutable, owned by the engine thread. Others see `records` only."""

    __slots__ = (
        "after",
        "arrival",
        "block_keys",
        "block_table",
        "cached_tokens",
        "client",
        "cpu_blocks",
        "deadline",
        "delay",
        "expected_output",
        "high_water",
        "id",
        "late",
        "mid_prompt",
        "most_tokens",
        "num_computed",
        "num_preemptions",
        "num_prompt",
        "num_registered",
        "params",
        "priority",
        "prompt_text",
        "recomputed_tokens",
        "serial",
        "session",
        "status",
        "token_ids",
    )

    def __init__(
        self,
        id: str,
        prompt_ids: list[int],
        params: SamplingParams | None = None,
        *,
        client: str = "default",
        priority: int = 0,
        arrival: float | None = None,
        deadline: float | None = None,
        expected_output: int | None = None,
        prompt_text: str | None = None,
        session: str | None = None,
        after: str | None = None,
        delay: float = 0.0,
        late: LatePrompt | None = None,
    ) -> None:
        """late: makes the prompt when the request arrives; `prompt_ids` is empty then."""
        self.id = id
        self.token_ids = list(prompt_ids)
        self.late = late
        self.num_prompt = len(prompt_ids) if late is None else len(late)
        self.params = params or SamplingParams()
        self.client = client
        self.priority = priority
        """Smaller is more urgent."""
        self.arrival = arrival
        """Seconds on the engine's clock; None until submitted means "now"."""
        self.deadline = deadline
        """Seconds after arrival by which the first token should be there; None: no hurry."""
        self.expected_output = expected_output
        """Output tokens an oracle expects; the scheduler puts in the most it can get where nobody knows."""
        self.prompt_text = prompt_text
        self.session = session
        """Conversation or agent it is a turn of."""
        self.after = after
        """Closed loop: it arrives `delay` seconds after this request has ended, however, whatever its `arrival` says.

        The end of one the engine does not know (any more) is taken to be the moment at which this one is submitted.
        """
        self.delay = delay

        self.most_tokens = 0
        """Known tokens at which it ends: by max_tokens, max_model_len or the whole pool. The scheduler sets it."""
        self.status = RequestStatus.WAITING
        self.num_computed = 0
        self.block_table: list[int] = []
        self.block_keys: list[bytes] = []
        """Content key of each full block of known tokens, computed when first needed."""
        self.cpu_blocks: list[int] = []
        """Blocks of the swap pool that hold its KV while it is swapped out."""
        self.num_registered = 0
        """Leading blocks of the table whose key is in the prefix cache's index."""
        self.high_water = 0
        """Most tokens ever computed at once: what lies below it after a preemption is recomputation."""
        self.mid_prompt = False
        """Known tokens were left over when it was last given some."""
        self.num_preemptions = 0
        self.cached_tokens = 0
        """Prompt tokens taken from the prefix cache at first admission."""
        self.recomputed_tokens = 0
        self.serial = 0
        """Place in the order in which requests joined the waiting queue."""

    def fill(self) -> None:
        """Make the prompt, if that was left for later."""
        if self.late is not None:
            self.token_ids, self.late = self.late.ids(), None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def output_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt :]

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.status}, {self.num_computed}/{self.num_tokens} computed)"
