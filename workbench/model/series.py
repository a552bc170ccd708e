"""A number for each executed step, of the newest steps only."""

from __future__ import annotations

from array import array


class Series:
    """Grows at the right; forgets at the left once it holds twice `keep`. Indexed by step."""

    def __init__(self, typecode: str, keep: int) -> None:
        self._values = array(typecode)
        self._keep = keep
        self.first = 0
        """Step of the oldest value."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def end(self) -> int:
        """One past the newest step."""
        return self.first + len(self._values)

    def append(self, step: int, value: float) -> None:
        if not self._values:
            self.first = step
        self._values.append(value)  # type: ignore[arg-type]
        if len(self._values) > 2 * self._keep:
            del self._values[: -self._keep]
            self.first = step + 1 - self._keep

    def __getitem__(self, step: int) -> float:
        if not self.first <= step < self.end:
            raise IndexError(step)
        return self._values[step - self.first]

    def replace(self, step: int, value: float) -> None:
        self._values[step - self.first] = value  # type: ignore[call-overload]

    def between(self, start: int, stop: int) -> array:  # type: ignore[type-arg]
        """Values of the steps start..stop-1 that are still known."""
        return self._values[max(0, start - self.first) : max(0, stop - self.first)]
