"""Counters, gauges and histograms that cost little: plain numbers under a lock, with every label value known ahead.

A `prometheus_client` counter and histogram cost 1.9 us an event, which is more than the look-up they would count. These
cost a fraction of it, need no import, and are turned into
`prometheus_client`'s families only when somebody scrapes (`gramary.cluster.exposition`). Label values are enumerated,
so nothing from outside can make the number of series grow: what is not known counts as "other" where a label has that
value, and is a `ValueError` where it has not.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Labels = tuple[str, ...]

_families: weakref.WeakSet[Family] = weakref.WeakSet()


class Family:
    """One metric: its name, its help, and one number or histogram for each combination of label values."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Mapping[str, Sequence[str]] | None = None) -> None:
        self.name, self.help = name, help
        self.labels = {label: tuple(values) for label, values in (labels or {}).items()}
        self._lock = threading.Lock()
        self._rows: dict[Labels, int] = {
            row: index for index, row in enumerate(itertools.product(*self.labels.values()))
        }
        _families.add(self)

    @property
    def rows(self) -> list[Labels]:
        """Every combination of label values, in order."""
        return list(self._rows)

    def _row(self, labels: Labels) -> int:
        row = self._rows.get(labels)
        return self._unusual(labels) if row is None else row

    def _unusual(self, labels: Labels) -> int:
        if len(labels) == len(self.labels):
            known = zip(labels, self.labels.values(), strict=True)
            row = self._rows.get(tuple(one if one in values else "other" for one, values in known))
            if row is not None:
                return row
        wanted = ", ".join(f"{label} in {values}" for label, values in self.labels.items()) or "none"
        raise ValueError(f"{self.name} has the labels {wanted}; not {labels}")

    def snapshot(self) -> list[Any]:
        """The state as JSON-able numbers, in the order of `rows`."""
        raise NotImplementedError


class Counter(Family):
    """Only grows. The name ends in `_total`."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(name, help, labels)
        self._values: list[float] = [0] * len(self._rows)
        self._sources: list[tuple[Callable[[], Mapping[Labels, float]], list[float]]] = []

    def inc(self, *labels: str, by: float = 1) -> None:
        """Add `by`, which is not negative."""
        if not by >= 0:
            raise ValueError(f"{self.name} only grows, not by {by}")
        row = self._rows.get(labels)
        if row is None:
            row = self._unusual(labels)
        with self._lock:
            self._values[row] += by

    def bind(self, *labels: str) -> Callable[[], None]:
        """What adds one for these labels, for where every nanosecond counts."""
        row, values = self._row(labels), self._values

        def inc() -> None:
            with self._lock:
                values[row] += 1

        return inc

    def follow(self, source: Callable[[], Mapping[Labels, float]]) -> None:
        """Add what `source` has counted, asked at every scrape; one that raises or falls adds what it had."""
        self._sources.append((source, [0] * len(self._values)))

    def value(self, *labels: str) -> float:
        """The count of these labels."""
        return float(self.snapshot()[self._row(labels)])

    def total(self) -> float:
        """The sum over all labels."""
        return float(sum(self.snapshot()))

    def snapshot(self) -> list[Any]:
        for source, counted in self._sources:
            try:
                for labels, value in source().items():
                    row = self._row(labels)
                    counted[row] = max(counted[row], value)
            except Exception:
                # A scrape must answer with what there is: what a source reads may be closing or gone.
                continue
        with self._lock:
            return [sum(row) for row in zip(self._values, *(counted for _, counted in self._sources), strict=True)]


class Gauge(Family):
    """Goes up and down, or is asked for when somebody scrapes (`follow`)."""

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(name, help, labels)
        self._values: list[float] = [0] * len(self._rows)
        self._sources: list[Callable[[], Mapping[Labels, float]]] = []

    def set(self, value: float, *labels: str) -> None:
        """Make it `value`."""
        row = self._row(labels)
        with self._lock:
            self._values[row] = value

    def inc(self, *labels: str, by: float = 1) -> None:
        """Add `by`, which may be negative."""
        row = self._row(labels)
        with self._lock:
            self._values[row] += by

    def dec(self, *labels: str) -> None:
        """Take one away."""
        self.inc(*labels, by=-1)

    def follow(self, source: Callable[[], Mapping[Labels, float]]) -> None:
        """Ask `source` for values at every scrape; one that raises leaves what it said last."""
        self._sources.append(source)

    def value(self, *labels: str) -> float:
        """The value of these labels as last set or asked for."""
        return self._values[self._row(labels)]

    def snapshot(self) -> list[Any]:
        for source in self._sources:
            try:
                for labels, value in source().items():
                    self.set(value, *labels)
            except Exception:
                # A scrape must answer with what there is: what a source reads may be closing or gone.
                continue
        with self._lock:
            return list(self._values)


class Histogram(Family):
    """How often what took at most so long, or was so large."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Mapping[str, Sequence[str]] | None = None, *, buckets: Sequence[float]
    ) -> None:
        super().__init__(name, help, labels)
        self.buckets = tuple(buckets)
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or not math.isfinite(self.buckets[-1]):
            raise ValueError(f"the buckets of {name} must be finite and rise")
        self._counts = [[0] * (len(self.buckets) + 1) for _ in self._rows]
        self._sums = [0.0] * len(self._rows)

    def observe(self, value: float, *labels: str) -> None:
        """Count one of `value`."""
        row = self._rows.get(labels)
        if row is None:
            row = self._unusual(labels)
        bucket = bisect_left(self.buckets, value)
        with self._lock:
            self._counts[row][bucket] += 1
            self._sums[row] += value

    def bind(self, *labels: str) -> Callable[[float], None]:
        """`observe` for these labels, for where every nanosecond counts."""
        row, sums, bounds = self._row(labels), self._sums, self.buckets
        counts = self._counts[row]

        def observe(value: float) -> None:
            bucket = bisect_left(bounds, value)
            with self._lock:
                counts[bucket] += 1
                sums[row] += value

        return observe

    def load(self, counts: Sequence[int], total: float, *labels: str) -> None:
        """Take over what was counted elsewhere: a number for each bucket and one beyond, and the sum."""
        if len(counts) != len(self.buckets) + 1:
            raise ValueError(f"{self.name} has {len(self.buckets) + 1} buckets, not {len(counts)}")
        row = self._row(labels)
        with self._lock:
            self._counts[row][:] = counts
            self._sums[row] = total

    def count(self, *labels: str) -> int:
        """How many were counted."""
        return sum(self._counts[self._row(labels)])

    def sum(self, *labels: str) -> float:
        """Their sum."""
        return self._sums[self._row(labels)]

    def quantile(self, q: float, *labels: str) -> float:
        """The upper bound of the bucket that holds the quantile; 0 if nothing was counted, inf beyond the last."""
        counts = self._counts[self._row(labels)]
        wanted, seen = q * sum(counts), 0
        for bound, count in zip((*self.buckets, math.inf), counts, strict=True):
            seen += count
            if seen and seen >= wanted:
                return bound
        return 0.0

    def snapshot(self) -> list[Any]:
        with self._lock:
            return [[*counts, total] for counts, total in zip(self._counts, self._sums, strict=True)]


class Group:
    """The families of one kind of process, as attributes. Derive and set them in `__init__`."""

    def families(self) -> list[Family]:
        """All of them, in order of declaration."""
        return [value for value in vars(self).values() if isinstance(value, Family)]


def _after_fork() -> None:
    # A thread of the parent may have held a lock at the fork; nobody in the child would ever release it.
    for family in _families:
        family._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
