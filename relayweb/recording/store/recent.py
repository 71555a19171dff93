"""A bounded memory of what was used lately."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakValueDictionary

from relayweb.recording.kernels import Generations

K = TypeVar("K")
V = TypeVar("V")

named: WeakValueDictionary[str, Recent[Any, Any]] = WeakValueDictionary()
"""What this process remembers, for `/metrics`. Of one name the first counts: the writer's lasts, others come and go."""


class Recent(Generations[K, V]):
    """At most about `size` values; what has not been asked for longest goes first.

    Args:
        name: by which `/metrics` tells how many there are.
    """

    def __init__(self, size: int, name: str | None = None) -> None:
        super().__init__(size)
        if name is not None:
            named.setdefault(name, self)
