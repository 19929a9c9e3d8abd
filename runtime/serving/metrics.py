"""What a worker counts: `WorkerCounts`, cheap enough to be updated at every token.

`gramary.cluster.metrics.WorkerMetrics` holds the same families for Prometheus; `snapshot` is what an agent is told and
what tests read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

BOUNDS_NS = tuple(
    int(seconds * 1e9)
    for seconds in (
        *(1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3),
        *(1e-2, 2e-2, 5e-2, 0.1, 0.25, 1.0, 5.0),
    )
)
"""Upper bounds of the histograms' buckets, from a call in the engine to a compile at its limit."""


class Durations:
    """A histogram of nanoseconds."""

    __slots__ = ("buckets", "count", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.buckets = [0] * (len(BOUNDS_NS) + 1)

    def add(self, nanoseconds: int) -> None:
        """Count one duration."""
        self.count += 1
        self.total_ns += nanoseconds
        self.buckets[bisect_left(BOUNDS_NS, nanoseconds)] += 1

    def snapshot(self) -> dict[str, Any]:
        """`count`, `sum` in seconds and counts by bucket."""
        return {"count": self.count, "sum": self.total_ns / 1e9, "buckets": list(self.buckets)}


class WorkerCounts:
    """Counters of one worker process.

    `calls` are written by the engine's thread alone and may miss counts where several threads fill masks at once;
    everything else is exact.
    """

    def __init__(self) -> None:
        self.calls = {call: Durations() for call in ("fill", "accept", "validate", "rollback")}
        self.compiles: dict[str, Durations] = {}
        self._counts: dict[str, int] = {}
        self.kernel: Callable[[], Mapping[str, Any]] = dict
        """The statistics of the worker's compiler (`Compiler.stats`), read whenever counts are."""
        self._lock = threading.Lock()

    def compiled(self, tier: str, nanoseconds: int) -> None:
        """A request's grammar is there; `tier` is the dearest that was needed."""
        with self._lock:
            self.compiles.setdefault(tier, Durations()).add(nanoseconds)

    def count(self, name: str, label: str = "", number: int = 1) -> None:
        """Count events, such as `count("requests_failed", "limit")`."""
        key = f"{name}.{label}" if label else name
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + number

    def value(self, name: str, label: str = "") -> int:
        """How often."""
        return self._counts.get(f"{name}.{label}" if label else name, 0)

    def snapshot(self) -> Mapping[str, Any]:
        """Everything, ready for JSON."""
        kernel = self.kernel()
        built, ahead = kernel.get("entries_built", 0), kernel.get("entries_built_ahead", 0)
        entries = {"entries_built.first_use": built - ahead, "entries_built.ahead": ahead}
        with self._lock:
            return {
                "calls": {call: durations.snapshot() for call, durations in self.calls.items()},
                "compiles": {tier: durations.snapshot() for tier, durations in self.compiles.items()},
                "counts": dict(sorted((self._counts | entries).items())),
            }
