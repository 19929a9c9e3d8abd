"""A worker as a Ray actor: the class that runs in the actor's process. It knows nothing of Ray."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from gramary.cluster.executor.base import Failed, Result
from gramary.cluster.executor.batch import Batch, Watched, open_bench
from gramary.compiler.errors import GramaryError

TICK_S = 0.02


class Seat:
    """Methods run on threads of the actor (`max_concurrency`), so that `cancel` gets through while `run` works."""

    def __init__(self, bench: str) -> None:
        self._bench = open_bench(bench)
        self._running: dict[int, Watched] = {}

    def ping(self) -> int:
        """The process's number: another one after a restart."""
        return os.getpid()

    def learn(self, fingerprint: bytes, vocabulary: bytes | str) -> GramaryError | None:
        """Take a tokenizer, as bytes or a path; returns what is wrong with it."""
        try:
            self._bench.learn(fingerprint, vocabulary if isinstance(vocabulary, bytes) else Path(vocabulary))
        except GramaryError as error:
            return error
        return None

    def run(self, number: int, batch: Batch) -> tuple[list[tuple[int, Result]], tuple[int, Failed] | None]:
        """Run a batch: its answers, and the task that hit a hard limit, if one did. After that the process is of no
        more use, since that task goes on in it.
        """
        results: list[tuple[int, Result]] = []
        finished = threading.Event()
        watched = Watched(self._bench, done=lambda i, result: results.append((i, result)), finished=finished.set)
        self._running[number] = watched
        try:
            watched.start(batch)
            while not finished.wait(TICK_S):
                over = watched.over()
                if over is not None:
                    return list(results), over
            return results, None
        finally:
            del self._running[number]

    def cancel(self, number: int) -> None:
        """Leave out what has not begun of a batch."""
        watched = self._running.get(number)
        if watched is not None:
            watched.cancel()
