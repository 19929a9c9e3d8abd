"""Which worker runs what, and what happens when one is lost: the same for processes, actors and threads.

A free worker takes as many tasks as their moving average says are 10 ms of work, since handing a batch over costs up to
1 ms; which ones is for `waiting` to say. A batch of entries is cut short when there is something to lower. A worker
that is lost is replaced; its batch waits again, without the task to blame, which is tried again alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gramary.cluster.executor.base import (
    Answered,
    BuildTask,
    Built,
    ExecutorStats,
    Failed,
    Lowered,
    LowerTask,
    Result,
    Task,
    WorkLimits,
)
from gramary.cluster.executor.batch import Batch, failed
from gramary.cluster.executor.errors import (
    DeadlineExceeded,
    ExecutorError,
    UnknownTokenizer,
    WorkerDied,
    decode_error,
)
from gramary.cluster.executor.waiting import Call, Pending, Waiting
from gramary.cluster.peer import SourceItem
from gramary.cluster.records import Key, Kind, Record

MOST_ATTEMPTS = 3
"""Workers that one task may end before it is given up."""
MOST_QUEUED = 200_000
GRACE_S = 0.25
"""How long after its deadline or its cancellation a running task is waited for."""
FIRST_GUESS_NS_PER_BYTE = 2_000.0
FIXED_NS = 50_000.0
"""What any task costs at least, whatever its size."""


class WorkerLost(Exception):
    """The worker is gone. `index`: the task to blame (`None`: not known); `answer`: that task's answer, if final."""

    def __init__(self, reason: str, index: int | None = None, answer: Failed | None = None) -> None:
        super().__init__(reason)
        self.reason, self.index, self.answer = reason, index, answer


class Worker(Protocol):
    """One worker, from its start to its loss."""

    async def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        """Give it a tokenizer; raises `GramaryError` or `WorkerLost`."""

    async def run(self, batch: Batch, done: Callable[[int, Result], None]) -> None:
        """Run a batch, reporting each answer; returns when it ends. What was cancelled is not reported."""

    def cancel(self) -> None:
        """Leave out what has not begun of the current batch."""

    async def end(self) -> None:
        """End it now, whatever it does. Idempotent."""


class Dispatcher:
    """An `Executor` over workers that `make` starts."""

    def __init__(
        self,
        make: Callable[[int], Awaitable[Worker]],
        workers: int,
        *,
        limits: WorkLimits | None = None,
        name: str = "executor",
        endable: bool = True,
    ) -> None:
        """`make` gets the worker's place, 0 to `workers` - 1. `endable`: workers can be ended while they work (threads
        cannot).
        """
        if workers < 1:
            raise ValueError("an executor has at least one worker")
        self._make, self._workers, self._name, self._endable = make, workers, name, endable
        self._limits = limits or WorkLimits()
        self._waiting = Waiting()
        self._running = 0
        self._building: set[Worker] = set()
        """Workers with batches of entries."""
        self._wake = asyncio.Condition()
        self._drivers: list[asyncio.Task[None]] = []
        self._tokenizers: dict[bytes, bytes | Path] = {}
        self._stats = ExecutorStats()
        self._ns_per_byte: dict[str, float] = {}
        self._closed = False
        self._last_failure = ""

    # What callers use.

    @property
    def workers(self) -> int:
        return self._workers

    def stats(self) -> ExecutorStats:
        return replace(
            self._stats, queued=len(self._waiting), running=self._running, ns_per_byte=dict(self._ns_per_byte)
        )

    async def register_tokenizer(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        self._tokenizers.setdefault(fingerprint, vocabulary)
        async with self._wake:
            self._wake.notify_all()

    async def lower(
        self,
        sources: Sequence[SourceItem],
        *,
        limits: WorkLimits | None = None,
        deadline_s: float = 60.0,
        done: Answered | None = None,
    ) -> list[Lowered | Failed]:
        tasks = [LowerTask(source, limits or self._limits) for source in sources]
        results: Any = await self._submit(tasks, deadline_s, done)
        return list(results)

    async def build(
        self,
        tokenizer: bytes,
        closure: Mapping[bytes, bytes],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = 0.0,
        deadline_s: float = 60.0,
    ) -> list[Record]:
        if tokenizer not in self._tokenizers:
            raise UnknownTokenizer(f"tokenizer {tokenizer.hex()} is not registered with this executor")
        if not wanted:
            return []
        task = BuildTask(tokenizer, dict(closure), tuple(wanted), min_cost_us, self._limits)
        (result,) = await self._submit([task], deadline_s)
        if isinstance(result, Failed):
            raise decode_error(result.error)
        if not isinstance(result, Built):
            raise ExecutorError("a worker answered a task for mask entries with units")
        return [
            Record(Key(Kind.ENTRY, unit, tokenizer, slot), data, cost_ns=cost)
            for unit, slot, data, cost in result.entries
        ]

    async def close(self) -> None:
        self._closed = True
        drivers, self._drivers = self._drivers, []
        left = set(drivers)
        while left:  # again: a cancellation that arrives together with a result can get lost in `wait_for`
            for driver in left:
                driver.cancel()
            _, left = await asyncio.wait(left, timeout=1.0)
        self._answer_all(self._waiting.clear(), failed(ExecutorError(f"{self._name} was closed")))

    # The queue.

    async def _submit(self, tasks: Sequence[Task], deadline_s: float, told: Any = None) -> list[Result]:
        loop = asyncio.get_running_loop()
        if not tasks:
            return []
        call = Call([None] * len(tasks), len(tasks), loop.create_future(), told)
        deadline = loop.time() + deadline_s
        pendings = [Pending(task, call, i, deadline, self._guess(task)) for i, task in enumerate(tasks)]
        if self._closed:
            self._answer_all(pendings, failed(ExecutorError(f"{self._name} is closed")))
        elif len(self._waiting) + len(tasks) > MOST_QUEUED:
            why = f"{self._name} has {len(self._waiting)} tasks waiting; try again later"
            self._answer_all(pendings, failed(ExecutorError(why)))
        else:
            await self._enqueue(pendings)
        try:
            await asyncio.wait([call.finished], timeout=max(0.0, deadline_s) + GRACE_S)
            if call.left:
                why = f"; workers cannot be started: {self._last_failure}" if self._last_failure else ""
                late = failed(DeadlineExceeded(f"the work was not done within {deadline_s:.3f} s{why}"))
                self._answer_all(pendings, late)
            return [result for result in call.results if result is not None]
        finally:
            self._stats.cancelled += call.left
            call.end()

    async def _enqueue(self, pendings: Sequence[Pending]) -> None:
        if not self._drivers:
            self._drivers = [
                asyncio.create_task(self._drive(i), name=f"{self._name}-{i}") for i in range(self._workers)
            ]
        async with self._wake:
            self._waiting.put(pendings)
            if self._waiting.lowering:
                for worker in self._building:
                    worker.cancel()
            self._wake.notify_all()

    def _answer_all(self, pendings: Iterable[Pending], result: Result) -> None:
        for pending in pendings:
            self._answer(pending, result)

    def _answer(self, pending: Pending, result: Result) -> None:
        if not pending.open:
            return
        call = pending.call
        call.results[pending.index] = result
        call.left -= 1
        if isinstance(result, Failed):
            self._stats.failed += 1
        elif isinstance(result, Lowered):
            self._stats.lowered += 1
        else:
            self._stats.built += 1
        if call.told is not None:
            call.told(pending.index, result)
        if not call.left and not call.finished.done():
            call.finished.set_result(None)

    def _guess(self, task: Task) -> float:
        return FIXED_NS + _size(task) * self._ns_per_byte.get(_sort(task), FIRST_GUESS_NS_PER_BYTE)

    def _learn_cost(self, task: Task, took_ns: int) -> None:
        sort, size = _sort(task), max(1, _size(task))
        seen = max(0.0, took_ns - FIXED_NS) / size
        old = self._ns_per_byte.get(sort)
        self._ns_per_byte[sort] = seen if old is None else old + 0.1 * (seen - old)

    def _take(self) -> list[Pending]:
        """The next batch, or nothing."""
        batch, late = self._waiting.take(self._workers, asyncio.get_running_loop().time())
        self._answer_all(late, failed(DeadlineExceeded("the deadline passed while the work was waiting")))
        return batch

    # The workers.

    async def _drive(self, slot: int) -> None:
        """Keep one worker alive and at work, until closed."""
        worker: Worker | None = None
        known: dict[bytes, bool] = {}
        """The tokenizers that it was told, and whether it refused them."""
        failures = 0
        try:
            while not self._closed:
                async with self._wake:
                    while not self._waiting and (worker is None or self._tokenizers.keys() <= known.keys()):
                        await self._wake.wait()
                if worker is None:
                    try:
                        worker, known = await self._make(slot), {}
                    except Exception as error:  # others may be started meanwhile, and this one later
                        failures += 1
                        self._last_failure = f"{type(error).__name__}: {error}"
                        await asyncio.sleep(min(5.0, 0.1 * 2.0**failures))
                        continue
                    failures, self._last_failure = 0, ""
                batch = self._take()
                taken = len(batch)
                self._running += taken
                try:
                    await self._teach(worker, known, batch)
                    await self._run(worker, batch)
                except WorkerLost as lost:
                    self._stats.workers_lost += 1
                    self._blame(batch, lost)
                    ending, worker = worker, None
                    await ending.end()
                except asyncio.CancelledError:
                    self._waiting.put_back(batch)
                    raise
                finally:
                    self._running -= taken
                async with self._wake:
                    self._wake.notify_all()
        finally:
            if worker is not None:
                await asyncio.shield(worker.end())

    async def _teach(self, worker: Worker, known: dict[bytes, bool], batch: Sequence[Pending]) -> None:
        """Have a worker know the tokenizers of a batch; one that has nothing to do learns whatever there is, since that
        takes tenths of a second, for which the first who needs it, and all behind, would wait.
        """
        needed = {p.task.tokenizer for p in batch if isinstance(p.task, BuildTask)}
        for tokenizer in needed if batch else self._tokenizers.keys() - known.keys():
            if known.get(tokenizer, True):  # not tried yet, or refused, which may have been a file that was not there
                known[tokenizer] = False
                try:
                    await worker.learn(tokenizer, self._tokenizers[tokenizer])
                except WorkerLost:
                    raise
                except Exception as error:  # told to who needs it
                    known[tokenizer] = True
                    self._answer_all(batch, failed(error))

    async def _run(self, worker: Worker, batch: list[Pending]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        batch[:] = [pending for pending in batch if pending.open]
        if not batch:
            return
        open_ = set(range(len(batch)))
        idle = asyncio.Event()
        last = time.perf_counter_ns()

        def done(index: int, result: Result) -> None:
            nonlocal last
            if index not in open_:
                return
            open_.discard(index)
            if isinstance(result, Lowered | Built):
                took, last = time.perf_counter_ns() - last, time.perf_counter_ns()
                cost = result.cost_ns or took
                self._learn_cost(batch[index].task, cost)
                self._stats.work_ns += cost
            self._answer(batch[index], result)

        def ended() -> None:
            if not any(batch[i].open for i in open_):
                idle.set()

        calls = {pending.call for pending in batch}
        for call in calls:
            call.on_end.add(ended)
        if isinstance(batch[0].task, BuildTask):
            self._building.add(worker)
        self._stats.batches += 1
        tasks = Batch(tuple(p.task for p in batch), tuple(p.deadline - now for p in batch))
        running = asyncio.create_task(worker.run(tasks, done))
        waiting = asyncio.create_task(idle.wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():  # nobody waits for what is left of it
                worker.cancel()
                await asyncio.wait({running}, timeout=GRACE_S if self._endable else None)
                if not running.done():
                    raise WorkerLost("ended: its work was withdrawn", None)
            await running
            unanswered = [batch[i] for i in open_]
            self._waiting.put_back(unanswered)
        finally:
            self._building.discard(worker)
            for call in calls:
                call.on_end.discard(ended)
            waiting.cancel()
            running.cancel()
            await asyncio.wait({running}, timeout=GRACE_S)  # unlike `await running`, never hides our own cancellation
            if running.done() and not running.cancelled():
                running.exception()

    def _blame(self, batch: Sequence[Pending], lost: WorkerLost) -> None:
        """Sort the unanswered tasks of a lost worker: the one to blame is answered or tried again alone."""
        rest = [p for p in batch if p.open]
        blamed: list[Pending] = []
        if lost.index is not None and lost.index < len(batch):
            blamed = [p for p in rest if p is batch[lost.index]]
            if lost.answer is not None:
                for pending in blamed:
                    self._answer(pending, lost.answer)
        elif len(rest) == 1:
            blamed = rest
        else:
            for pending in rest:
                pending.alone = True
        for pending in blamed:
            pending.attempts += 1
            pending.alone = True
            if pending.attempts >= MOST_ATTEMPTS:
                text = f"the work ended {pending.attempts} workers, one after the other; the last: {lost.reason}"
                self._answer(pending, failed(WorkerDied(text, retryable=False, attempts=pending.attempts)))
        self._waiting.put_back(rest)


def _sort(task: Task) -> str:
    return task.source.kind if isinstance(task, LowerTask) else "entries"


def _size(task: Task) -> int:
    if isinstance(task, LowerTask):
        return len(task.source.text)
    return sum(len(task.closure.get(digest, b"")) for digest in task.wanted)
