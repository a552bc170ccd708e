"""How evenly service is spread over clients. Pure arithmetic on service units; `clients.py` says what a unit is.

Sources: S. Sheng et al., "Fairness in Serving Large Language Models" (VTC, OSDI 2024) for both differences;
R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination" (DEC-TR-301, 1984) for the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

MOST_COMPARED = 128
"""Clients compared pair by pair at a time: the table of pairs then takes 128 KiB, however many clients there are."""


def jain(values: Sequence[float]) -> float | None:
    """J = (sum x)^2 / (n sum x^2): 1 when all are equal, k/n when k of n have all. None: fewer than two, or all 0."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if len(values) > 1 and squares else None


def fair_level(demand: Mapping[str, float], weights: Mapping[str, float], total: float) -> float:
    """The level L at which clients given min(demand, weight L) have `total` together (max-min fairness).

    Without a client that wants less than its share, L is the equal share total / sum of weights. What small clients
    leave over goes to the others. Infinite when everybody can have all it wants.
    """
    left, shares = total, sum(weights[client] for client in demand)
    for client in sorted(demand, key=lambda client: demand[client] / weights[client]):
        if demand[client] * shares > left * weights[client]:
            return left / shares
        left -= demand[client]
        shares -= weights[client]
    return float("inf")


def fairness_index(
    service: Mapping[str, float], demand: Mapping[str, float], weights: Mapping[str, float]
) -> float | None:
    """Jain's index of x_c = service_c / min(demand_c, weight_c L), over the clients with a demand above 0.

    L is `fair_level` for the service that was given. So 1 means: as max-min fairness would have shared it out. Jain's
    index of bare service would call a client that asked for little badly treated.
    """
    asked = {client: wanted for client, wanted in demand.items() if wanted > 0}
    level = fair_level(asked, weights, sum(service[client] for client in asked))
    shares = {client: min(wanted, weights[client] * level) for client, wanted in asked.items()}
    return jain([service[client] / share for client, share in shares.items() if share > 0])


def equal_share_index(
    service: Mapping[str, float], demand: Mapping[str, float], weights: Mapping[str, float]
) -> float | None:
    """As `fairness_index`, with the plain equal share: total service / sum of weights, whatever small clients leave.

    So it is below 1 also for max-min fairness when somebody wants less than his share and others get the rest.
    """
    asked = {client: wanted for client, wanted in demand.items() if wanted > 0}
    shares = sum(weights[client] for client in asked)
    level = sum(service[client] for client in asked) / shares if shares else 0.0
    given = {client: min(wanted, weights[client] * level) for client, wanted in asked.items()}
    return jain([service[client] / share for client, share in given.items() if share > 0])


class BackloggedDifference:
    """Largest difference of accumulated service between two clients while both are backlogged.

    For clients f, g and an iteration t within a period in which both were backlogged all the time since t0, the
    difference is |(S_f(t) - S_f(t0)) - (S_g(t) - S_g(t0))|, S divided by the client's weight. This is what VTC bounds
    by 2U (theorem 4.4). What either had while the other did not wait is no unfairness and does not enter. The maximum
    over pairs is that of max_c S - min_c S for two clients, and for more when they became backlogged together.

    Omission: beyond MOST_COMPARED clients backlogged at once, the later ones are not compared (`left_out` counts).
    """

    def __init__(self) -> None:
        self.worst: float | None = None
        """None until two clients were backlogged together."""
        self.between = ("", "")
        """Who was ahead, who was behind, when it was worst."""
        self.at = 0.0
        self.left_out = 0
        self._slots: dict[str, int] = {}
        self._names: list[str] = [""] * MOST_COMPARED
        self._free = list(range(MOST_COMPARED - 1, -1, -1))
        self._served = np.zeros(MOST_COMPARED)
        """Since the client became backlogged."""
        self._ahead = np.full((MOST_COMPARED, MOST_COMPARED), np.nan)
        """served[i] - served[j] when i and j were first backlogged together; NaN for pairs that are not."""

    def enter(self, client: str) -> None:
        """It is backlogged from now on. Call `leave` first for those who are no longer."""
        if client in self._slots:
            return
        if not self._free:
            self.left_out += 1
            return
        slot = self._free.pop()
        others = list(self._slots.values())
        self._slots[client], self._names[slot], self._served[slot] = slot, client, 0.0
        self._ahead[slot, others] = -self._served[others]
        self._ahead[others, slot] = self._served[others]
        if others and self.worst is None:
            self.worst = 0.0

    def leave(self, client: str) -> None:
        """It is not backlogged any more."""
        slot = self._slots.pop(client, None)
        if slot is not None:
            self._ahead[slot, :] = self._ahead[:, slot] = np.nan
            self._free.append(slot)

    def charge(self, charges: Mapping[str, float], now: float) -> None:
        """What an iteration gave, in units over weight. Clients that are not backlogged are passed over."""
        slots = [self._slots[client] for client in charges if client in self._slots]
        if len(self._slots) < 2 or not slots:
            for slot in slots:
                self._served[slot] += charges[self._names[slot]]
            return
        for slot in slots:
            self._served[slot] += charges[self._names[slot]]
        gaps = self._served[slots, None] - self._served[None, :] - self._ahead[slots, :]
        sizes = np.abs(gaps)
        worst = float(np.fmax.reduce(sizes, axis=None))
        if worst > (self.worst or 0.0):
            row, column = divmod(int(np.nanargmax(sizes)), MOST_COMPARED)
            pair = (self._names[slots[row]], self._names[column])
            self.worst, self.at = worst, now
            self.between = pair if gaps[row, column] > 0 else (pair[1], pair[0])


class Windows:
    """Service difference window by window, as VTC's table has it: sum_c min(max S - S_c, |demand_c - S_c|).

    S_c is what c had in the window over its weight; demand_c is what it still wanted when the window began and what
    arrived in it (VTC's script counts arrivals only, so that a client that waits through a window seems to want
    nothing). So |demand_c - S_c| is what is outstanding at the window's end. Windows without any service do not count.
    """

    def __init__(self, length: float) -> None:
        self.length = length
        """Seconds."""
        self._origin: float | None = None
        self._number = 0
        self._served: dict[str, float] = {}
        """Of the window that is open, not over weight."""
        self._differences = _Running()
        self._indices = _Running()

    def over(self, now: float) -> bool:
        """Whether the open window ended before `now`: `close` it then. The first call begins the first window."""
        if self._origin is None:
            self._origin = now
        before, self._number = self._number, max(self._number, int((now - self._origin) // self.length))
        return self._number > before

    def close(self, outstanding: Mapping[str, float], weights: Mapping[str, float]) -> None:
        """End the open window and begin the next. outstanding: units each client still wants."""
        _close(self._served, outstanding, weights, self._differences, self._indices)
        self._served = {}

    def charge(self, client: str, units: float) -> None:
        self._served[client] = self._served.get(client, 0.0) + units

    def summary(self, outstanding: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float | int | None]:
        """The window that is still open counts as it is. `variance` is over windows (n, not n - 1)."""
        differences, indices = self._differences.copy(), self._indices.copy()
        _close(self._served, outstanding, weights, differences, indices)
        return {
            "length_s": self.length,
            "n": differences.n,
            "mean": differences.mean,
            "max": differences.high,
            "variance": differences.variance,
            "jain_mean": indices.mean,
            "jain_min": indices.low,
        }


def _close(
    served: Mapping[str, float],
    outstanding: Mapping[str, float],
    weights: Mapping[str, float],
    differences: _Running,
    indices: _Running,
) -> None:
    if not served:
        return
    waiting = {client: units for client, units in outstanding.items() if units > 0}
    service = {client: served.get(client, 0.0) for client in {**served, **waiting}}
    most = max(units / weights[client] for client, units in service.items())
    differences.add(
        sum(
            min(most - units / weights[client], waiting.get(client, 0.0) / weights[client])
            for client, units in service.items()
        )
    )
    demand = {client: units + waiting.get(client, 0.0) for client, units in service.items()}
    index = fairness_index(service, demand, weights)
    if index is not None:
        indices.add(index)


class _Running:
    """Mean, variance and extremes of values that are not kept (Welford)."""

    def __init__(self) -> None:
        self.n = 0
        self._mean = self._squares = 0.0
        self.low: float | None = None
        self.high: float | None = None

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self._mean
        self._mean += step / self.n
        self._squares += step * (value - self._mean)
        self.low = value if self.low is None else min(self.low, value)
        self.high = value if self.high is None else max(self.high, value)

    @property
    def mean(self) -> float | None:
        return self._mean if self.n else None

    @property
    def variance(self) -> float | None:
        return self._squares / self.n if self.n else None

    def copy(self) -> _Running:
        new = _Running()
        new.__dict__.update(self.__dict__)
        return new
