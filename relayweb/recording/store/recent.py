"""A bounded memory of what was used lately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K")
V = TypeVar("V")

named: WeakValueDictionary[str, Recent[Any, Any]] = WeakValueDictionary()
"""What this process remembers, for `/metrics`. Of one name the first counts: the writer's lasts, others come and go."""


class Recent(Generic[K, V]):
    """At most about `size` values; what has not been asked for longest goes first.

    Two generations instead of a linked list: a hit costs one or two dict look-ups.
    """

    def __init__(self, size: int, name: str | None = None) -> None:
        self.size = size
        if name is not None:
            named.setdefault(name, self)
        self._half = max(1, size // 2)
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None and self._old:
            value = self._old.pop(key, None)
            if value is not None:
                self._young[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        self._young[key] = value

    def trim(self, full: bool = False) -> bool:
        """Drop the older half when the younger is full, or said to be; gives whether it did.

        Between batches, so that no batch loses what it works on.
        """
        full = full or len(self._young) > self._half
        if full:
            self._old, self._young = self._young, {}
        return full

    def drop(self, key: K) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        self._young.clear()
        self._old.clear()

    def __iter__(self) -> Iterator[V]:
        yield from self._young.values()
        yield from self._old.values()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
