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
KEPT = 8
"""Nodes that are remembered of an order: who asks for more of them, because many are down, has them computed."""


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
        self._remembered: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.nodes)

    def owners(self, digest: bytes, k: int = 2) -> tuple[str, ...]:
        """The first `k` nodes (fewer if there are fewer) in the order of `digest`, the owner first.

        >>> Ring(["a", "b", "c"]).owners(bytes(32), 2)
        ('a', 'c')
        """
        if len(self.nodes) <= 1 or k > KEPT:
            return self.nodes[:k] if len(self.nodes) <= 1 else self._orders([digest], k)[0]
        if digest not in self._remembered:
            self.rank([digest])
        return self._remembered[digest][:k]

    def rank(self, digests: Iterable[bytes]) -> None:
        """Compute the orders of digests about which `owners` will be asked: together they cost little more than one."""
        new = [] if len(self.nodes) <= 1 else [digest for digest in digests if digest not in self._remembered]
        self._remembered.update(zip(new, self._orders(new, KEPT) if new else (), strict=True))
        while len(self._remembered) > max(MOST_REMEMBERED, len(new)):
            self._remembered.popitem(last=False)

    def _orders(self, digests: Sequence[bytes], k: int) -> list[tuple[str, ...]]:
        names = np.array([xxhash.xxh3_64_intdigest(digest) for digest in digests], dtype=np.uint64)
        mixed = _mix(self._seeds ^ names[:, None])
        scores: npt.NDArray[np.uint64] | npt.NDArray[np.float64] = mixed
        if self._weights is not None:
            scores = self._weights / -np.log((mixed.astype(np.float64) + 0.5) * 2.0**-64)
        if k < len(self.nodes):
            best = np.argpartition(scores, -k)[:, -k:]
        else:
            best = np.broadcast_to(np.arange(len(self.nodes)), scores.shape)
        order = np.argsort(np.take_along_axis(scores, best, 1), kind="stable")[:, ::-1]
        return [tuple(self.nodes[i] for i in row) for row in np.take_along_axis(best, order, 1).tolist()]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of splitmix64: every bit of the input changes every bit of the output with probability 1/2."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
