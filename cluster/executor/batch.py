"""Running a batch of tasks in a worker under watch.

`Watched` runs a batch on a thread of its own while the thread that owns it watches clock and memory: the kernel
releases the GIL, so the watch goes on while it works.
"""

from __future__ import annotations

import importlib
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from gramary.cluster.executor.base import Failed, Result, Task, WorkLimits
from gramary.cluster.executor.errors import DeadlineExceeded, encode_error
from gramary.cluster.peer import Packed
from gramary.compiler.errors import GramaryError, LimitExceeded

KERNEL = "gramary.cluster.executor.work:KernelBench"
"""The bench that workers use unless told otherwise."""


class Bench(Protocol):
    """The worker's tools. Tests bring their own."""

    def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        """Take a tokenizer; raises `TokenizerError` if it is not what its fingerprint says."""

    def run(self, task: Task, seconds: float) -> Result:
        """Run one task within `seconds`. Raises a `GramaryError`, or anything if there is a bug."""


def open_bench(name: str) -> Bench:
    """The bench that `module:attribute` makes."""
    module, _, attribute = name.partition(":")
    return cast(Bench, getattr(importlib.import_module(module), attribute)())


def failed(error: BaseException) -> Failed:
    """An exception as a task's answer."""
    return Failed(encode_error(error), bool(getattr(error, "retryable", False)))


def attempt(bench: Bench, task: Task, left_s: float) -> Result:
    """Run one task with `left_s` seconds to its deadline; whatever is raised becomes its answer."""
    limits: WorkLimits = task.limits
    if left_s <= 0:
        return failed(DeadlineExceeded("the deadline passed before the work began"))
    try:
        return bench.run(task, min(limits.seconds, left_s))
    except LimitExceeded as error:
        if error.limit == "seconds" and left_s < limits.seconds:
            return failed(DeadlineExceeded(f"the deadline passed after {left_s:.3f} s of work"))
        return failed(error)
    except MemoryError:
        return failed(LimitExceeded("the worker ran out of memory", limit="memory"))
    except GramaryError as error:
        return failed(error)
    except BaseException as error:  # a panic of the kernel is a BaseException: the worker lives on
        return failed(error)


@dataclass(frozen=True, slots=True)
class Batch(Packed):
    """Tasks that one worker runs one after the other, with the seconds that each has left from now on."""

    tasks: tuple[Task, ...]
    left_s: tuple[float, ...]


def resident_bytes() -> int:
    """This process's resident memory; 0 where /proc does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


_PAGE = resource.getpagesize()

GATHER_S = 0.005
"""Answers are handed over together while they are younger than this: each by itself would cost more than many tasks."""
TICK_S = 0.02
"""How often whoever watches a batch looks at clock and memory, and has it tell."""


class Watched:
    """Runs one batch at a time on its own thread. The owner calls `over` every few milliseconds and, when that names a
    task, ends the process: nothing less stops a thread that does not return.

    `done(answers, running)` is told what has been answered since it was told last, and which task runs now, if one is
    known to: on the working thread, or on that which calls `tell`.
    """

    def __init__(
        self,
        bench: Bench,
        *,
        done: Callable[[list[tuple[int, Result]], int | None], None],
        finished: Callable[[], None],
    ) -> None:
        self._bench = bench
        self._done, self._finished = done, finished
        self._cancelled = False
        self._current: tuple[int, WorkLimits, float, int] | None = None
        self._answers: list[tuple[int, Result]] = []
        self._told: int | None = None
        self._telling = threading.Lock()

    def start(self, batch: Batch) -> None:
        """Begin; returns at once."""
        self._cancelled = False
        threading.Thread(target=self._work, args=(batch,), name="gramary-work", daemon=True).start()

    def cancel(self) -> None:
        """Leave out what has not begun."""
        self._cancelled = True

    def _work(self, batch: Batch) -> None:
        began = told = time.monotonic()
        try:
            for index, (task, left_s) in enumerate(zip(batch.tasks, batch.left_s, strict=True)):
                if self._cancelled:
                    break
                now = time.monotonic()
                self._current = (index, task.limits, now, resident_bytes())
                result = attempt(self._bench, task, left_s - (now - began))
                with self._telling:
                    self._current = None
                    self._answers.append((index, result))
                if time.monotonic() - told >= GATHER_S:
                    self.tell()
                    told = time.monotonic()
        finally:
            self.tell()
            self._finished()

    def tell(self) -> None:
        """Hand over what was answered, and who runs. The owner calls it now and then, so that no answer waits for the
        end of a task that takes long, and whoever ends the process is known.
        """
        with self._telling:  # held while it is handed over: answers stay in order
            current = self._current
            running = None if current is None else current[0]
            if self._answers or running != self._told:
                answers, self._answers, self._told = self._answers, [], running
                self._done(answers, running)

    def over(self) -> tuple[int, Failed] | None:
        """The task in progress, if it is beyond its hard limits, with its answer."""
        current = self._current
        if current is None:
            return None
        index, limits, since, base = current
        took = time.monotonic() - since
        if took > limits.hard_seconds:
            text = f"the work did not stop by itself and was ended after {took:.1f} s"
            return index, failed(LimitExceeded(text, limit="seconds", value=limits.hard_seconds))
        grown = resident_bytes() - base
        if base and grown > limits.hard_bytes:
            text = f"the work took {grown >> 20} MiB of memory and was ended"
            return index, failed(LimitExceeded(text, limit="memory", value=float(limits.hard_bytes)))
        return None
