"""The executor without processes: threads of this one. Tasks have the kernel's own limits and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from gramary.cluster.executor.base import Result, WorkLimits
from gramary.cluster.executor.batch import KERNEL, TICK_S, Batch, Bench, Watched, open_bench
from gramary.cluster.executor.dispatch import Dispatcher, Worker


class InProcess(Dispatcher):
    """Runs tasks on `workers` threads, which share one kernel memory. For laptops and tests: a source that defeats the
    kernel's limits takes the process with it.
    """

    def __init__(self, workers: int = 1, *, limits: WorkLimits | None = None, bench: str = KERNEL) -> None:
        shared: list[Bench] = []

        async def make(slot: int) -> Worker:
            if not shared:
                shared.append(open_bench(bench))
            return _Thread(shared[0])

        super().__init__(make, workers, limits=limits, name="the in-process executor", endable=False)


class _Thread:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._watched: Watched | None = None

    async def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._bench.learn, fingerprint, vocabulary)

    async def run(self, batch: Batch, done: Callable[[int, Result], None]) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def call(function: Callable[..., None], *arguments: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(function, *arguments)

        def hand_on(answers: list[tuple[int, Result]]) -> None:
            for index, result in answers:
                done(index, result)

        watched = self._watched = Watched(
            self._bench, done=lambda answers, _: call(hand_on, answers), finished=lambda: call(ended.set_result, None)
        )
        watched.start(batch)
        while not ended.done():
            await asyncio.wait((ended,), timeout=TICK_S)
            watched.tell()

    def cancel(self) -> None:
        if self._watched is not None:
            self._watched.cancel()

    async def end(self) -> None:
        self.cancel()
