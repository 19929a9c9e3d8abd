"""A worker as a Ray actor: the class that runs in the actor's process. It knows nothing of Ray."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

from gramary.cluster.executor.base import Failed, Result
from gramary.cluster.executor.batch import TICK_S, Batch, Watched, open_bench
from gramary.compiler.errors import GramaryError

BUSY_S = 1.0
"""How long a batch waits for one of another executor that shares the actor."""
ENDED = 3
"""Exit status of a process that was told to end."""


class Seat:
    """Methods run on threads of the actor (`max_concurrency`), so that `cancel` gets through while `run` works."""

    def __init__(self, bench: str) -> None:
        self._bench = open_bench(bench)
        self._running: dict[str, Watched] = {}
        self._one = threading.Lock()
        self._life = f"{os.getpid()}-{uuid.uuid4().hex}"

    def ping(self) -> str:
        """The name of this life of the actor: another one after a restart. It begins with the process's number, which
        by itself would not do: those of two nodes, or of two containers, can be equal.
        """
        return self._life

    def end(self, life: str) -> None:
        """End the process, whatever it does, if this is still that life of the actor."""
        if life == self._life:
            os._exit(ENDED)

    def learn(self, fingerprint: bytes, vocabulary: bytes | str) -> GramaryError | None:
        """Take a tokenizer, as bytes or a path; returns what is wrong with it."""
        try:
            self._bench.learn(fingerprint, vocabulary if isinstance(vocabulary, bytes) else Path(vocabulary))
        except GramaryError as error:
            return error
        return None

    def run(self, name: str, batch: Batch) -> tuple[list[tuple[int, Result]], tuple[int, Failed] | None] | None:
        """Run a batch: its answers, and the task that hit a hard limit, if one did. After that the process is of no
        more use, since that task goes on in it. `None`: it is busy with the batch of another executor.
        """
        if not self._one.acquire(timeout=BUSY_S):  # two at once could not tell whose memory grows
            return None
        try:
            return self._watch(name, batch)
        finally:
            self._one.release()

    def _watch(self, name: str, batch: Batch) -> tuple[list[tuple[int, Result]], tuple[int, Failed] | None]:
        results: list[tuple[int, Result]] = []
        finished = threading.Event()
        watched = Watched(self._bench, done=lambda answers, _: results.extend(answers), finished=finished.set)
        self._running[name] = watched
        try:
            watched.start(batch)
            while not finished.wait(TICK_S):
                over = watched.over()
                if over is not None:
                    watched.tell()
                    return list(results), over
            return results, None
        finally:
            del self._running[name]

    def cancel(self, name: str) -> None:
        """Leave out what has not begun of a batch."""
        watched = self._running.get(name)
        if watched is not None:
            watched.cancel()
