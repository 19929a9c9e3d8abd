"""Prometheus' view of an inference worker: what it counts (`gramary.runtime.serving.metrics`), on a port of its own.

An engine's own endpoint cannot show it, since grammars are compiled in another process than the one that serves HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gramary.cluster.address import Address, parse_address
from gramary.cluster.counting import Counter, Family, Group
from gramary.cluster.exposition import MetricsServer, make_registry
from gramary.cluster.metrics import WorkerMetrics

PORTS = 16
"""Ports that are tried: the given one and those after it, since several engines may share a host."""

Snapshot = Callable[[], Mapping[str, Any]]
"""`WorkerCounts.snapshot`."""


def metrics_of(snapshot: Mapping[str, Any]) -> WorkerMetrics:
    """The families that a snapshot fills. What it counts beyond them is for the worker's own log and tests."""
    metrics = WorkerMetrics()
    for histogram, label, durations in (
        (metrics.mask_duration, "call", snapshot["calls"]),
        (metrics.compile_duration, "tier", snapshot["compiles"]),
    ):
        for name, one in durations.items():
            if name in histogram.labels[label]:
                histogram.load(one["buckets"], one["sum"], name)
    counters = {
        one.name.removeprefix("gramary_worker_").removesuffix("_total"): one
        for one in metrics.families()
        if isinstance(one, Counter)
    }
    for name, number in snapshot["counts"].items():
        counter = counters.get(name.partition(".")[0])
        labels = tuple(name.split(".")[1:])
        if counter is not None and labels in counter.rows:
            counter.inc(*labels, by=number)
    return metrics


class _Live(Group):
    """The families as they are at the moment of a scrape."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def families(self) -> list[Family]:
        return metrics_of(self._snapshot()).families()


def serve(snapshot: Snapshot, address: str) -> MetricsServer:
    """Serve a worker's metrics at `address`, or at one of the next ports. Raises `OSError` if none of them is free."""
    where = parse_address(address)
    registry = make_registry(_Live(snapshot))
    last = where.port if where.port == 0 else min(where.port + PORTS - 1, 65535)
    for port in range(where.port, last + 1):
        try:
            return MetricsServer(registry, str(Address(where.host, port)))
        except OSError:
            if port == last:
                raise
    raise AssertionError("a range of ports is never empty")
