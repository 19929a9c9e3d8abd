"""Which nodes own a digest: rendezvous (highest random weight) hashing.

Every node computes the same order of all nodes for a digest, without talking; when a node leaves, only what it owned
moves, evenly, to the nodes that came second; when one joins, it takes over 1/n of everything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

MOST_REMEMBERED = 1 << 16
"""Digests whose order is remembered."""


class Ring:
    """An immutable set of node names with optional weights (a node of weight 2 owns twice as much)."""

    def __init__(self, nodes: Iterable[str], weights: Mapping[str, float] | None = None) -> None:
        self.nodes: tuple[str, ...] = tuple(sorted(set(nodes)))
        if weights and any(not 0 < weights.get(node, 1.0) < 1e9 for node in self.nodes):
            raise ValueError("the weight of a node is a positive number")
        self._seeds = np.array([xxhash.xxh3_64_intdigest(node.encode()) for node in self.nodes], dtype=np.uint64)
        self._weights: npt.NDArray[np.float64] | None = None
        if weights and len({weights.get(node, 1.0) for node in self.nodes}) > 1:
            self._weights = np.array([weights.get(node, 1.0) for node in self.nodes])
        self._remembered: OrderedDict[tuple[bytes, int], tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.nodes)

    def owners(self, digest: bytes, k: int = 2) -> tuple[str, ...]:
        """The first `k` nodes (fewer if there are fewer) in the order of `digest`, the owner first.

        >>> Ring(["a", "b", "c"]).owners(bytes(32), 2)
        ('a', 'c')
        """
        asked = (digest, k)
        found = self._remembered.get(asked)
        if found is None:
            found = tuple(self.nodes[i] for i in self._order(digest, k))
            self._remembered[asked] = found
            if len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return found

    def _order(self, digest: bytes, k: int) -> Sequence[int]:
        if not self.nodes:
            return ()
        scores: npt.NDArray[np.uint64] | npt.NDArray[np.float64] = _mix(
            self._seeds ^ np.uint64(xxhash.xxh3_64_intdigest(digest))
        )
        if self._weights is not None:
            scores = self._weights / -np.log((scores.astype(np.float64) + 0.5) * 2.0**-64)
        best = np.argpartition(scores, -k)[-k:] if k < len(self.nodes) else np.arange(len(self.nodes))
        return [int(i) for i in best[np.argsort(scores[best], kind="stable")[::-1]]]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of splitmix64: every bit of the input changes every bit of the output with probability 1/2."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
