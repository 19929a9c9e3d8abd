"""What waits for a worker, and what is next.

Tasks wait in lanes: one for lowering, and one per tokenizer for entries. Somebody waits for lowering, nobody for
entries: those get their turn when there is nothing to lower, and every few batches in any case. Within a lane the calls
take turns, batch by batch, so that who asks for one tool does not wait behind somebody who asks for a thousand.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gramary.cluster.executor.base import LowerTask, Result, Task

BATCH_S = 0.010
"""A batch is at least this much work, while there is enough of it ..."""
MOST_BATCH_S = 0.025
"""... and at most this much, so that a lost worker loses little and whoever comes next waits for little. One of entries
has no more than `BATCH_S`."""
TURNS = 8
"""Every so many batches one is of entries, however much there is to lower."""
LOWERING = b""
"""The lane of what is to be lowered; the others are named by tokenizers."""


@dataclass(slots=True, eq=False)
class Call:
    """What one caller waits for: an answer for each task."""

    results: list[Result | None]
    left: int
    finished: asyncio.Future[None]
    told: Callable[[int, Result], None] | None
    withdrawn: bool = False
    """The caller went away."""
    on_end: set[Callable[[], None]] = field(default_factory=set)
    """Told when nobody waits any more, whether all was answered or not: batches that have a part of it."""

    def end(self) -> None:
        """Nobody waits any more."""
        self.withdrawn = self.left > 0
        for told in list(self.on_end):
            told()


@dataclass(slots=True, eq=False)
class Pending:
    """One task of a call."""

    task: Task
    call: Call
    index: int
    deadline: float
    guess_ns: float
    attempts: int = 0
    alone: bool = False

    @property
    def open(self) -> bool:
        """Somebody waits for its answer."""
        return not self.call.withdrawn and self.call.results[self.index] is None


class _Lane:
    """Tasks of one kind, by call: those of the first call come first, in order."""

    def __init__(self) -> None:
        self._calls: OrderedDict[Call, deque[Pending]] = OrderedDict()
        self.guess_ns = 0.0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def put(self, pending: Pending, *, first: bool = False) -> None:
        queue = self._calls.get(pending.call)
        if queue is None:
            queue = self._calls[pending.call] = deque()
        self.guess_ns += pending.guess_ns
        if first:
            queue.appendleft(pending)
            self._calls.move_to_end(pending.call, last=False)
        else:
            queue.append(pending)

    def head(self) -> Pending:
        """Whose turn it is."""
        return next(iter(self._calls.values()))[0]

    def take(self) -> Pending:
        """Take it out."""
        call, queue = next(iter(self._calls.items()))
        pending = queue.popleft()
        self.guess_ns -= pending.guess_ns
        if not queue:
            del self._calls[call]
        return pending

    def turn(self) -> None:
        """The first call was served for now: the others come before it."""
        if self._calls:
            self._calls.move_to_end(next(iter(self._calls)))

    def all(self) -> Iterable[Pending]:
        return (pending for queue in self._calls.values() for pending in queue)


class Waiting:
    """All lanes. `len` is the number of tasks that wait."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[bytes, _Lane] = OrderedDict()
        self._count = 0
        self._batches = 0

    def __len__(self) -> int:
        return self._count

    @property
    def lowering(self) -> bool:
        """There is something to lower."""
        return LOWERING in self._lanes

    def put(self, pendings: Iterable[Pending]) -> None:
        """These wait from now on."""
        for pending in pendings:
            self._lane(pending).put(pending)
            self._count += 1

    def put_back(self, pendings: Sequence[Pending]) -> None:
        """These, which were taken, wait again, before all others; those that nobody waits for do not."""
        for pending in reversed(pendings):
            if pending.open:
                self._lane(pending).put(pending, first=True)
                self._count += 1

    def take(self, workers: int, now: float) -> tuple[list[Pending], list[Pending]]:
        """The next batch for one of so many workers, or nothing; and tasks whose deadlines have passed. What nobody
        waits for any more is left out.
        """
        late: list[Pending] = []
        while self._lanes:
            name = self._next()
            lane = self._lanes[name]
            self._lanes.move_to_end(name)
            most_ns = BATCH_S * 1e9
            if name == LOWERING:
                most_ns = min(max(lane.guess_ns / workers, most_ns), MOST_BATCH_S * 1e9)
            batch: list[Pending] = []
            total_ns = 0.0
            while lane and total_ns < most_ns and not (batch and lane.head().alone):
                pending = lane.take()
                self._count -= 1
                if not pending.open:
                    continue
                if pending.deadline <= now:
                    late.append(pending)
                    continue
                batch.append(pending)
                total_ns += pending.guess_ns
                if pending.alone:
                    break
            lane.turn()
            if not lane:
                del self._lanes[name]
            if batch:
                return batch, late
        return [], late

    def clear(self) -> list[Pending]:
        """Take everything out."""
        lanes, self._lanes, self._count = self._lanes, OrderedDict(), 0
        return [pending for lane in lanes.values() for pending in lane.all()]

    def _lane(self, pending: Pending) -> _Lane:
        task = pending.task
        return self._lanes.setdefault(LOWERING if isinstance(task, LowerTask) else task.tokenizer, _Lane())

    def _next(self) -> bytes:
        """Of the lanes, the one whose turn it is."""
        entries = next((name for name in self._lanes if name != LOWERING), LOWERING)
        self._batches += 1
        return LOWERING if self.lowering and self._batches % TURNS else entries
