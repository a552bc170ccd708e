"""What a scheduling policy decides: the order in which waiting requests are served.

A `Policy` is the waiting queue itself, told what happens to requests so that it can keep accounts. Whom to preempt
is a separate axis (`victims.py`); budget, blocks and head-of-line blocking are the scheduler's and the same under
every policy. An outside policy is a subclass given as `module:Class`.

Invariant: a policy sees requests and integers only, and time only as `env.now`, so a run repeats from its records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from engine.request import Request

if TYPE_CHECKING:
    from engine.config import EngineConfig


class PolicyEnv:
    """What a policy may look at. The scheduler keeps it up to date."""

    def __init__(self, config: EngineConfig, cached_tokens: Callable[[Request], int] = lambda request: 0) -> None:
        self.config = config
        """The knobs as they are now."""
        self.now = 0.0
        """Start of the iteration, seconds on the engine's clock."""
        self.cached_tokens = cached_tokens
        """Leading known tokens of a request that the prefix cache holds now. Costs a walk over its full blocks."""
        self.token_seconds = 0.0
        """How long a token of prefill takes, as measured lately (0: not known yet)."""


class Policy(ABC):
    """The waiting queue in order of service. New and preempted requests live here alike.

    The scheduler looks at `head()` and takes it, or stops: nobody overtakes the head. All requests in the queue have
    distinct ids.
    """

    name = ""
    victim = "last"
    """The victim rule that knob `victim` = auto means."""
    exact = False
    """Decides as vLLM does, to the letter: the oldest running request then has no protection from preemption."""
    preemptive = False
    """`displaced` is asked at the start of each iteration."""
    counts = False
    """`served` is told about every scheduled request."""
    aging = 0.0
    """What knob `aging` = auto means here; see the knob."""
    patience = 60.0
    """Seconds after which the oldest waiting request is next, whatever the policy says, unless knob `aging` says
    otherwise. 0: never; for policies under which nobody starves, or that have an aging of their own."""

    def __init__(self, env: PolicyEnv) -> None:
        self.env = env

    # ---- the queue --------------------------------------------------------------------------------

    @abstractmethod
    def add(self, request: Request) -> None:
        """A request arrives, or is here already when this policy takes over (then in order of arrival)."""

    @abstractmethod
    def readd(self, request: Request) -> None:
        """A request was preempted."""

    @abstractmethod
    def head(self) -> Request:
        """Who is next. Called with a queue that is not empty; changes nothing that can be seen."""

    @abstractmethod
    def take(self, request: Request) -> None:
        """A request leaves the queue to run: usually the head, under static batching maybe one behind it."""

    @abstractmethod
    def remove(self, request: Request) -> None:
        """A request leaves the queue and will never run (aborted)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Request]:
        """In order of service as it looks now; lazy, so that looking at the first few is cheap."""

    # ---- told, asked; a policy overrides what it needs --------------------------------------------

    def begin(self) -> None:  # noqa: B027
        """An iteration begins: `env.now` has moved. Must not cost more when more requests wait."""

    def keeps_back(self, request: Request) -> str | None:
        """Why the head may not start now although there may be room; None when it may."""
        return None

    def wake(self) -> float | None:
        """When a head that is kept back may start, on the engine's clock; None when only an event can change that."""
        return None

    def displaced(self, running: Sequence[Request]) -> int | None:
        """Index of the running request whose place the head should take; None leaves all in peace.

        Asked, if `preemptive`, while the head finds no slot or no blocks.
        """
        return None

    def served(self, request: Request, start: int, num_tokens: int, samples: bool) -> None:  # noqa: B027
        """Told, if `counts`, what a request gets in this iteration: tokens `start` on, and maybe a new one."""

    def ended(self, request: Request) -> None:  # noqa: B027
        """A request that was taken is gone: finished, or aborted while it ran."""

    def service(self, client: str) -> float:
        """Service a client has had so far, for victim rule `greediest`; 0 where the policy keeps no accounts."""
        return 0.0

    def level(self, request: Request) -> float:
        """For victim rule `lowest`: of two running requests the one with the larger number is preempted."""
        return 0.0

    # ---- shared -----------------------------------------------------------------------------------

    @property
    def aging_seconds(self) -> float:
        """Knob `aging`, or what this policy takes for auto; 0 is off."""
        asked = self.env.config.aging
        return self.aging if asked is None else asked

    @property
    def patience_seconds(self) -> float:
        """Knob `aging`, or what this policy takes for auto; 0 is never."""
        asked = self.env.config.aging
        return self.patience if asked is None or not self.patience else asked
