"""Workers' counts, gathered by their agent.

A worker sends its snapshot now and then; the agent keeps the last one of each process and shows the sum. When a process
ends or says nothing for long, what it had counted stays in the sum, so that no counter ever falls. A report is data
from outside: names, shapes and numbers are checked, and the number of processes is bounded.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from gramary.cluster.counting import Counter, Family, Gauge, Group, Histogram

MOST_WORKERS = 1024
MOST_COUNT = 2.0**53  # beyond it a float no longer counts by one


class WorkerReports:
    """The sum of what the workers of one node counted. `template` says what a report may hold."""

    def __init__(self, template: Group, *, forget_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._families = {one.name: one for one in template.families() if not isinstance(one, Gauge)}
        self._shapes = {name: one.snapshot() for name, one in self._families.items()}
        self._past = {name: one.snapshot() for name, one in self._families.items()}
        self._last: dict[str, tuple[float, dict[str, list[Any]]]] = {}
        self._forget_s, self._clock = forget_s, clock
        self._lock = threading.Lock()

    def absorb(self, worker: str, report: Mapping[str, Any]) -> None:
        """Take one worker's `Group.snapshot()`, whole or of the families that it knows.

        `worker` names the process for as long as it lives (a restarted one has another name). Raises `ValueError` for a
        report that cannot be one; nothing of it is taken then.
        """
        checked = {name: self._checked(name, report[name]) for name in self._families if name in report}
        now = self._clock()
        with self._lock:
            self._forget(now)
            known = self._last.get(worker)
            if known is None and len(self._last) >= MOST_WORKERS:
                raise ValueError(f"more than {MOST_WORKERS} workers report to one node")
            if known is not None and any(_falls(known[1][name], checked[name]) for name in checked if name in known[1]):
                self._retire(known[1])
            self._last[worker] = (now, checked)

    def gone(self, worker: str) -> None:
        """The process ended; its last counts stay in the sum."""
        with self._lock:
            known = self._last.pop(worker, None)
            if known is not None:
                self._retire(known[1])

    def workers(self) -> int:
        """How many processes report."""
        with self._lock:
            self._forget(self._clock())
            return len(self._last)

    def totals(self) -> dict[str, list[Any]]:
        """The sums, in the form of `Group.snapshot()`."""
        with self._lock:
            self._forget(self._clock())
            out = self._past
            for _, report in self._last.values():
                out = {name: _add(values, report[name]) if name in report else values for name, values in out.items()}
            return dict(out)

    def families(self) -> list[tuple[Family, list[Any]]]:
        """Each family with its sum."""
        totals = self.totals()
        return [(family, totals[name]) for name, family in self._families.items()]

    def _forget(self, now: float) -> None:
        for worker in [one for one, (seen, _) in self._last.items() if now - seen > self._forget_s]:
            self._retire(self._last.pop(worker)[1])

    def _retire(self, report: Mapping[str, list[Any]]) -> None:
        self._past = {name: _add(past, report[name]) if name in report else past for name, past in self._past.items()}

    def _checked(self, name: str, values: Any) -> list[Any]:
        family, shape = self._families[name], self._shapes[name]
        if isinstance(family, Counter):
            good = _numbers(values, len(shape))
        else:
            assert isinstance(family, Histogram)
            good = isinstance(values, list) and len(values) == len(shape)
            good = good and all(_numbers(row, len(family.buckets) + 2) for row in values)
        if not good:
            raise ValueError(f"a report's {name} is not what this version counts")
        return list(values)


def _numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(type(v) in (int, float) and math.isfinite(v) and 0 <= v <= MOST_COUNT for v in values)
    )


def _add(left: list[Any], right: list[Any]) -> list[Any]:
    pairs = zip(left, right, strict=True)
    return [_add(a, b) if isinstance(a, list) else a + b for a, b in pairs]


def _falls(before: list[Any], after: list[Any]) -> bool:
    pairs = zip(before, after, strict=True)
    return any(_falls(a, b) if isinstance(a, list) else b < a for a, b in pairs)
