"""Who got what: accounts of every client, and how fairly the run was shared out. A pure reader of the records.

Definitions (times are seconds on the engine's clock, ages count from there too):

- Service of a client, in units: w_p for each prompt token processed, w_q for each output token sampled (VTC: 1 and
  2), charged in the iteration that did it. What is computed again after a preemption is no service, nor is a swap.
  Prompt tokens found in the prefix cache are service only if `count_cached` says so, and then when they are taken.
- Outstanding: what the requests that are here will still cost: prompt tokens not processed, and the output tokens
  left of expected_output (max_tokens where nobody expects anything). Demand = service + outstanding. A request that
  has ended wants nothing more: its demand is what it got.
- Backlogged: has requests in the queue when an iteration has been scheduled (waiting, preempted or swapped out).
- Queue age: how long a request has been in the queue, since its planned arrival or its last preemption. The largest
  ever seen is the starvation.
- Preemptions: the request thrown out `suffered`; the client whose request took the blocks or the place `caused` it,
  also against its own. A request that preempts itself has no causer, nor have a shrunk pool and a new engine.
- A deadline is met when the first token comes within it. It is missed once it has passed without one, and when the
  request ends without one, for whatever reason.
- Latencies and `slo_attainment` as in definitions.py: completed requests only, from the planned arrival; the share
  is of a client's requests, refused ones included, and of a priority class's that were taken.

Fairness divides service by the client's weight (knob client_weights) as it was when the service was given.
Memory: the clients, the requests that are alive (with the times of their tokens), and what percentiles need: two floats
per completed request, and for each client a `Pool` of gaps between tokens.
Omission: requests refused at arrival have neither demand nor deadline nor priority (their record says nothing of it).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.knobs import KnobValue, read_weights
from engine.records import Arrived, Finished, Iteration, Kind, Preempted, Scheduled
from engine.request import FinishReason
from traces.accounts import Client, Group, floats
from traces.fairness import BackloggedDifference, Windows, equal_share_index, fairness_index
from traces.slo import Slo
from traces.stats import COMPLETED, gaps, micro

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
"""Units of a prompt token and of an output token (VTC's w_p and w_q)."""
WINDOW = 10.0
"""Seconds of a window of the windowed service difference."""


class Starvation(NamedTuple):
    """The longest stay in the queue."""

    seconds: float
    client: str
    id: str


@dataclass(slots=True)
class _Live:
    client: Client
    group: Group
    """Of its priority."""
    arrival: float
    prompt_len: int
    left: int
    """Output tokens it is still expected to get."""
    deadline: float | None
    """Seconds after arrival."""
    done: int = 0
    """Leading prompt tokens that were processed or found cached."""
    waited: float | None = None
    times: array[float] = field(default_factory=floats)


class ClientAccounts:
    """Feed it every record in order with `add`; read it at any time."""

    def __init__(
        self,
        knobs: Mapping[str, KnobValue] | None = None,
        *,
        w_p: float = PROMPT_WEIGHT,
        w_q: float = OUTPUT_WEIGHT,
        count_cached: bool | None = None,
        window: float = WINDOW,
        slo: Slo | None = None,
    ) -> None:
        """knobs: as they were at start. count_cached: None follows the knob count_cached_tokens, also live.

        slo: what a request has to keep to count in `slo_attainment`.
        """
        knobs = knobs or {}
        self.w_p, self.w_q = w_p, w_q
        self.count_cached = bool(knobs.get("count_cached_tokens")) if count_cached is None else count_cached
        self._follow_knob = count_cached is None
        self.slo = slo
        self.clients: dict[str, Client] = {}
        """In order of appearance."""
        self.priorities: dict[int, Group] = {}
        self.live: dict[str, _Live] = {}
        self.now = 0.0
        """End of the last record."""
        self.difference = BackloggedDifference()
        self.windows = Windows(window)
        self._weights: dict[str, float] = {}
        self._set_weights(knobs.get("client_weights"))
        self._starved: Starvation | None = None
        self._touched: dict[str, None] = {}
        """Clients whose queue this record changed, in order, so that a tie is told the same way every time."""
        self._charges: dict[str, float] = {}
        """Units this record gave."""

    # ---- reading ----------------------------------------------------------------------------------

    @property
    def total_service(self) -> float:
        return sum(client.service for client in self.clients.values())

    def starvation(self) -> Starvation | None:
        """The largest queue age ever seen, the requests still waiting included; None when nobody ever waited."""
        worst = self._starved
        for client in self.clients.values():
            age = client.queue_age(self.now)
            if age is not None and (worst is None or age > worst.seconds):
                worst = Starvation(age, client.name, min(client.queue, key=client.queue.__getitem__))
        return worst

    def summary(self) -> dict[str, dict[str, Any]]:
        """Each client's account. `share` is of all service; `queue_age_s` is null when it has nobody in the queue."""
        total = self.total_service
        late, rated = self._late(), self.slo is not None
        return {name: client.summary(self.now, total, late[client], rated) for name, client in self.clients.items()}

    def fairness(self) -> dict[str, Any]:
        """Fairness of the run so far; the definitions are those of fairness.py.

        `jain` is over the whole run: 1 as soon as everybody has got all he asked for, so `windows` tells more about a
        run that served every request. Differences are in units over weight.
        """
        outstanding, weights = self._state()
        service = {name: client.service for name, client in self.clients.items()}
        demand = {name: units + outstanding[name] for name, units in service.items()}
        found = self.difference
        windows = self.windows.summary(outstanding, weights)
        return {
            "w_prompt": self.w_p,
            "w_output": self.w_q,
            "count_cached": self.count_cached,
            "backlogged_difference": {
                "max": micro(found.worst),
                "ahead": found.between[0] if found.worst else None,
                "behind": found.between[1] if found.worst else None,
                "not_compared": found.left_out,
            },
            "windows": {name: micro(value) if isinstance(value, float) else value for name, value in windows.items()},
            "jain": micro(fairness_index(service, demand, weights)),
            "jain_equal_share": micro(equal_share_index(service, demand, weights)),
            "priorities": self._by_priority(),
        }

    def _by_priority(self) -> dict[str, Any]:
        late = self._late()
        ages: dict[Group, float] = {}
        for client in self.clients.values():
            for id, since in client.queue.items():
                group = self.live[id].group
                ages[group] = max(ages.get(group, 0.0), self.now - since)
        return {
            str(priority): {
                "arrived": group.arrived,
                "completed": group.completed,
                "max_queue_age_s": micro(max(group.oldest, ages.get(group, 0.0))),
                "deadlines": group.deadlines(late[group]),
                "slo_attainment": micro(group.good / group.arrived) if self.slo is not None else None,
            }
            for priority, group in sorted(self.priorities.items())
        }

    def _late(self) -> Counter[Group]:
        """Deadlines that have passed without a first token, of requests that are alive, by client and by class."""
        late: Counter[Group] = Counter()
        for request in self.live.values():
            if request.times or request.deadline is None:
                continue
            if self.now - request.arrival > request.deadline:
                late.update((request.client, request.group))
        return late

    def _state(self) -> tuple[dict[str, float], dict[str, float]]:
        """Outstanding units and weight of every client."""
        return (
            {name: client.outstanding for name, client in self.clients.items()},
            {name: client.weight for name, client in self.clients.items()},
        )

    # ---- folding ----------------------------------------------------------------------------------

    def add(self, it: Iteration) -> None:
        """Fold one record in."""
        if it.rebuilt is not None:
            self._set_knobs(dict(it.rebuilt.knobs))
            for id, prompt_ids in it.rebuilt.prompts:
                self._encode_anew(self.live[id], len(prompt_ids))
        for change in it.knobs:
            self._set_knobs({change.name: change.new})
        if self.windows.over(it.t_start):
            self.windows.close(*self._state())
        for new in it.arrived:
            self._arrive(new)
        for refused in it.rejected:
            self._client(refused.client).rejected += 1
        for victim in it.preempted:
            self._preempt(victim, it.t_start)
        for item in it.scheduled:
            request = self.live[item.id]
            # A plain decode gives its client nothing here: its token is charged below.
            if item.kind is not Kind.RUNNING or item.recomputed or request.done < request.prompt_len:
                self._schedule(item, request, it.t_start)
        for token in it.tokens:
            self._sample(token.id, it.t_end)
        for done in it.finished:
            self._finish(done, it.t_end)
        self._compare(it.t_end)
        self.now = it.t_end

    def _compare(self, now: float) -> None:
        """Who is backlogged in this iteration, and what each client got in it."""
        for name in self._touched:  # first: who leaves meets nobody who comes
            if not self.clients[name].queue:
                self.difference.leave(name)
        for name in self._touched:
            if self.clients[name].queue:
                self.difference.enter(name)
        self._touched.clear()
        if self._charges:
            for name, units in self._charges.items():
                self.windows.charge(name, units)
            self.difference.charge({name: got / self.clients[name].weight for name, got in self._charges.items()}, now)
            self._charges.clear()

    def _set_knobs(self, knobs: Mapping[str, KnobValue]) -> None:
        if "client_weights" in knobs:
            self._set_weights(knobs["client_weights"])
        if "count_cached_tokens" in knobs and self._follow_knob:
            self.count_cached = bool(knobs["count_cached_tokens"])

    def _set_weights(self, text: KnobValue) -> None:
        self._weights = read_weights(text) if isinstance(text, str) else {}
        for name, client in self.clients.items():
            client.weight = self._weights.get(name, 1.0)

    def _client(self, name: str) -> Client:
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = Client(name=name, weight=self._weights.get(name, 1.0))
        return client

    def _arrive(self, new: Arrived) -> None:
        client, group = self._client(new.client), self.priorities.setdefault(new.priority, Group())
        expected = new.max_tokens if new.expected_output is None else min(new.expected_output, new.max_tokens)
        self.live[new.id] = _Live(client, group, new.arrival, len(new.prompt_ids), expected, new.deadline)
        client.arrived += 1
        group.arrived += 1
        client.outstanding += self.w_p * len(new.prompt_ids) + self.w_q * expected
        client.queue[new.id] = new.arrival
        self._touched[client.name] = None

    def _encode_anew(self, request: _Live, prompt_len: int) -> None:
        """Another model reads another prompt, from the start."""
        request.client.outstanding += self.w_p * (prompt_len - (request.prompt_len - request.done))
        request.prompt_len, request.done = prompt_len, 0

    def _preempt(self, victim: Preempted, now: float) -> None:
        client = self.live[victim.id].client
        client.suffered += 1
        causer = self.live.get(victim.by)
        if causer is not None and victim.by != victim.id:
            causer.client.caused += 1
        client.queue[victim.id] = now
        self._touched[client.name] = None

    def _schedule(self, item: Scheduled, request: _Live, now: float) -> None:
        client, before = request.client, item.computed_before
        if item.kind is not Kind.RUNNING:
            self._leave_queue(item.id, request, now)
            if request.waited is None:
                request.waited = now - request.arrival
        client.recomputed_tokens += item.recomputed
        cached = min(before, request.prompt_len) - request.done
        if cached > 0:  # only an admission can find more than was done
            request.done += cached
            client.cached_tokens += cached
            client.outstanding -= self.w_p * cached
            if self.count_cached:
                self._charge(client, self.w_p * cached)
        processed = min(before + item.num_tokens, request.prompt_len) - request.done
        if processed > 0:
            request.done += processed
            client.prompt_tokens += processed
            client.outstanding -= self.w_p * processed
            self._charge(client, self.w_p * processed)

    def _sample(self, id: str, now: float) -> None:
        request = self.live[id]
        client = request.client
        if not request.times and request.deadline is not None:
            met = now - request.arrival <= request.deadline
            for group in (client, request.group):
                group.met += met
                group.missed += not met
        request.times.append(now)
        client.output_tokens += 1
        if request.left > 0:  # what it gets beyond the expectation was not asked for before
            request.left -= 1
            client.outstanding -= self.w_q
        self._charge(client, self.w_q)

    def _finish(self, done: Finished, now: float) -> None:
        request = self.live.pop(done.id)
        client = request.client
        client.outstanding -= self.w_p * (request.prompt_len - request.done) + self.w_q * request.left
        self._leave_queue(done.id, request, now)
        if not request.times and request.deadline is not None:
            client.missed += 1
            request.group.missed += 1
        if done.reason not in COMPLETED:
            if done.reason is FinishReason.ABORT:
                client.aborted += 1
            else:
                client.failed += 1
            return
        times = request.times
        client.completed += 1
        request.group.completed += 1
        ttft = times[0] - request.arrival if times else None
        if ttft is not None:
            client.ttft.append(ttft)
        if request.waited is not None:
            client.waits.append(request.waited)
        client.itl.extend(gaps(times))
        if self.slo is not None:
            tpot = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None
            good = self.slo.met(ttft, tpot)
            client.good += good
            request.group.good += good

    def _leave_queue(self, id: str, request: _Live, now: float) -> None:
        since = request.client.queue.pop(id, None)
        if since is None:
            return
        age = max(0.0, now - since)
        for group in (request.client, request.group):
            group.oldest = max(group.oldest, age)
        if self._starved is None or age > self._starved.seconds:
            self._starved = Starvation(age, request.client.name, id)
        self._touched[request.client.name] = None

    def _charge(self, client: Client, units: float) -> None:
        client.service += units
        self._charges[client.name] = self._charges.get(client.name, 0.0) + units
