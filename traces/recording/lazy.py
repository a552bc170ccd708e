"""What a restored view holds of requests without having read it: prompts, answers, requests far back in the queue.

Lengths are known at once; the rest is read from the recording when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.view import RequestView, copy_request


class LazyTuple(Sequence[int]):
    """Stands for a tuple of known length, equal to it and with its hash."""

    __slots__ = ("_length", "_load", "_values")

    def __init__(self, length: int, load: Callable[[], tuple[int, ...]]) -> None:
        self._length = length
        self._load = load
        self._values: tuple[int, ...] | None = None

    def values(self) -> tuple[int, ...]:
        if self._values is None:
            self._values = self._load()
        return self._values

    def read(self) -> tuple[int, ...]:
        """The values, not kept."""
        return self._values if self._values is not None else self._load()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        return self.values()[at]

    def __iter__(self) -> Iterator[int]:
        return iter(self.values())

    def __add__(self, other: Any) -> tuple[int, ...]:
        return (*self.values(), *other)

    def __radd__(self, other: Any) -> Any:
        return type(other)([*other, *self.values()])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyTuple):
            other = other.values()
        return isinstance(other, tuple) and len(other) == self._length and other == self.values()

    def __hash__(self) -> int:
        return hash(self.values())

    def __repr__(self) -> str:
        return repr(self.values()) if self._values is not None else f"<{self._length} tokens, not read>"


class LazyList(Sequence[Any]):
    """Stands for a list of which the first `length` items have not been read; it grows at the end without reading."""

    __slots__ = ("_length", "_load", "_tail", "_values")

    def __init__(self, length: int, load: Callable[[], list[Any]], tail: list[Any] | None = None) -> None:
        self._length = length
        self._load = load
        self._tail: list[Any] = tail if tail is not None else []
        self._values: list[Any] | None = None

    def values(self) -> list[Any]:
        if self._values is None:
            self._values = [*self._load(), *self._tail]
            self._tail = []
        return self._values

    def append(self, item: Any) -> None:
        (self._tail if self._values is None else self._values).append(item)

    def extend(self, items: Any) -> None:
        (self._tail if self._values is None else self._values).extend(items)

    def copy(self) -> Any:
        return LazyList(self._length, self._load, self._tail.copy()) if self._values is None else self._values.copy()

    def __len__(self) -> int:
        return self._length + len(self._tail) if self._values is None else len(self._values)

    def __getitem__(self, at: Any) -> Any:
        return self.values()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __add__(self, other: Any) -> list[Any]:
        return [*self.values(), *other]

    def __radd__(self, other: Any) -> Any:
        return type(other)([*other, *self.values()])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyList):
            other = other.values()
        return isinstance(other, list) and len(other) == len(self) and other == self.values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._values) if self._values is not None else f"<{len(self)} items, not read>"


class LazyRequests(dict[str, RequestView]):
    """Requests by id, in order of arrival; those in `unread` are made when somebody asks for them.

    Whoever walks through all of them makes them all.
    """

    def __init__(
        self,
        read: Mapping[str, RequestView],
        unread: dict[str, int],
        numbers: dict[str, int],
        make: Callable[[int], RequestView],
        following: int = 0,
    ) -> None:
        """unread: numbers of requests still to be made; numbers: of those and of the ones in `read`.

        following: the number of the next request that arrives.
        """
        super().__init__(read)
        self._next = following
        self._unread = unread
        self._numbers = numbers
        self._make = make
        self._out_of_order = bool(unread)

    def __missing__(self, id: str) -> RequestView:
        number = self._unread.pop(id)
        request = self[id] = self._make(number)
        return request

    def __setitem__(self, id: str, request: RequestView) -> None:
        # numbers are shared with copies, which meet the same arrivals in the same order
        number = self._numbers.setdefault(id, self._next)
        self._next = max(self._next, number + 1)
        super().__setitem__(id, request)

    def number_of(self, id: str) -> int | None:
        return self._numbers.get(id)

    def _read_all(self) -> None:
        if not self._out_of_order:
            return
        self._out_of_order = False
        made = [self._make(number) for number in self._unread.values()]
        self._unread = {}
        requests = [*super().values(), *made]
        last = len(self._numbers) + max(self._numbers.values())
        requests.sort(key=lambda request: self._numbers.get(request.id, last))  # later ones stay behind, in order
        super().clear()
        for request in requests:
            super().__setitem__(request.id, request)

    def copied(self, same: Callable[[RequestView], bool]) -> LazyRequests:
        """For a view that goes on by itself; requests that are `same` are shared."""
        read = {id: request if same(request) else copy_request(request) for id, request in super().items()}
        new = LazyRequests(read, self._unread.copy(), self._numbers, self._make, self._next)
        new._out_of_order = self._out_of_order
        return new

    def __contains__(self, id: object) -> bool:
        return super().__contains__(id) or id in self._unread

    def get(self, id: str, default: Any = None) -> Any:
        try:
            return self[id]
        except KeyError:
            return default

    def pop(self, id: str, *default: Any) -> Any:
        if id in self._unread:
            self[id]
        return super().pop(id, *default)

    def __len__(self) -> int:
        return super().__len__() + len(self._unread)

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return super().__iter__()

    def keys(self) -> Any:
        self._read_all()
        return super().keys()

    def values(self) -> Any:
        self._read_all()
        return super().values()

    def items(self) -> Any:
        self._read_all()
        return super().items()

    def __eq__(self, other: object) -> bool:
        self._read_all()
        return super().__eq__(other)

    __hash__ = None
