"""What a worker counts: `WorkerCounts`, cheap enough to be updated at every token.

`gramary.cluster.metrics.WorkerMetrics` holds the same families for Prometheus; `snapshot` is what an agent is told and
what tests read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from gramary.runtime._core import DURATION_BOUNDS_NS, Durations

BOUNDS_NS = DURATION_BOUNDS_NS
"""Upper bounds of the histograms' buckets, from a call in the engine to a compile at its limit."""


class WorkerCounts:
    """Counters of one worker process. `calls` are written by the kernel, which makes those calls."""

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
            durations = self.compiles.setdefault(tier, Durations())
        durations.add(nanoseconds)

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
