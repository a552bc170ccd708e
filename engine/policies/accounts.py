"""What clients are charged: prompt tokens when a request is admitted, output tokens as they are sampled.

Charged when it happens, since nobody knows how long an answer will be. A request that was preempted is not charged its
prompt again, and tokens that are computed again are no service. Prompt tokens found in the prefix cache are free
unless knob `count_cached_tokens` is on.

Invariant: no more than MOST_IDLE accounts of clients with nothing waiting are kept, so memory stays flat however many
names there are. Who was charged longest ago is forgotten first: under `fair` and `drr` that is somebody the others
have long overtaken, whose account would be lifted anyway; under `lcf` a forgotten client starts at zero again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict

from engine.policies.base import PolicyEnv
from engine.policies.clients import PerClient
from engine.request import Request

PROMPT_TOKEN = 1
OUTPUT_TOKEN = 2
"""A sampled token costs about as much of a server as two prompt tokens: the weights of the VTC paper."""

MOST_IDLE = 4096


class Accounts(PerClient):
    """Per-client queues whose order follows from what the clients were charged."""

    counts = True

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._config = env.config
        self._weights = env.config.weights
        self._accounts: OrderedDict[str, float] = OrderedDict()
        """Of all clients, by when they were last put down."""

    @abstractmethod
    def charge(self, client: str, tokens: int) -> None:
        """Put that many weighted tokens to the account of a client, waiting or not."""

    def begin(self) -> None:
        if self.env.config is not self._config:
            self._config = self.env.config
            self._weights = self._config.weights

    def weight(self, client: str) -> float:
        return self._weights.get(client, 1.0)

    def put_down(self, client: str, amount: float) -> None:
        """Keep a client's account."""
        accounts = self._accounts
        accounts[client] = amount
        accounts.move_to_end(client)
        while len(accounts) > MOST_IDLE + len(self._queues):
            oldest, amount = accounts.popitem(last=False)
            if oldest in self._queues:
                accounts[oldest] = amount

    def price(self, request: Request) -> int:
        """What the admission of a waiting request costs its client."""
        if request.num_preemptions:
            return 0
        cached = 0 if self._config.count_cached_tokens else self.env.cached_tokens(request)
        return PROMPT_TOKEN * max(0, request.num_prompt - cached)

    def take(self, request: Request) -> None:
        self.charge(request.client, self.price(request))
        super().take(request)

    def served(self, request: Request, start: int, num_tokens: int, samples: bool) -> None:
        if samples:
            self.charge(request.client, OUTPUT_TOKEN)
