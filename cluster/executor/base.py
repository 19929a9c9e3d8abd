"""The seam between deciding what to compile and compiling it.

An `Executor` runs the kernel somewhere: on threads (`InProcess`), in supervised child processes (`ProcessPool`), in
Ray actors (`RayExecutor`). All three take the same tasks, pass the same tests, and promise:

* every task gets one answer: its result, or a typed error, within its deadline and a short grace;
* a task that hits a limit, or that ends its worker, takes nobody with it (not in-process, which has only the kernel's
  own limits);
* cancelling the coroutine withdraws the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gramary.cluster.peer import Packed, SourceItem
from gramary.cluster.records import Record


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """What one source may cost. The first six are the kernel's own (`gramary.compiler.Limits`; `None`: its default);
    the kernel checks them as it goes and names the place in the source. The hard ones are held by whoever watches the
    worker: they end it.
    """

    source_bytes: int | None = None
    depth: int | None = None
    fsm_states: int | None = None
    items_per_set: int | None = None
    memory: int | None = None
    seconds: float = 10.0
    hard_seconds: float = 15.0
    """Seconds after which the worker is ended, should the kernel not have stopped by itself."""
    hard_bytes: int = 2 << 30
    """Bytes by which one task may grow its worker."""

    def kernel(self) -> dict[str, float | int]:
        """The keyword arguments of `gramary.compiler.Limits`, without `seconds`, which the deadline may shorten."""
        names = ("source_bytes", "depth", "fsm_states", "items_per_set", "memory")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class LowerTask(Packed):
    """Compile one source to a manifest and units."""

    source: SourceItem
    limits: WorkLimits = WorkLimits()


@dataclass(frozen=True, slots=True)
class BuildTask(Packed):
    """Build the mask entries of the units `wanted` for `tokenizer`. `closure`: every unit that they need, by digest."""

    tokenizer: bytes
    closure: Mapping[bytes, bytes]
    wanted: tuple[bytes, ...]
    min_cost_us: float = 0.0
    limits: WorkLimits = WorkLimits()


Task = LowerTask | BuildTask


@dataclass(frozen=True, slots=True)
class Lowered(Packed):
    """A source's manifest and its units as (digest, bytes), each after those that it refers to."""

    manifest: bytes
    units: list[tuple[bytes, bytes]]
    cost_ns: int = 0
    """What lowering took in the worker; units that the worker had lowered before cost nothing."""


@dataclass(frozen=True, slots=True)
class Failed(Packed):
    """A task's typed error, encoded (`gramary.cluster.executor.errors`)."""

    error: dict[str, str]
    retryable: bool = False
    """The failure says nothing about the task: another try, here or elsewhere, may succeed."""


@dataclass(frozen=True, slots=True)
class Built(Packed):
    """Mask entries as (unit digest, slot, bytes, nanoseconds it took)."""

    entries: list[tuple[bytes, bytes, bytes, int]]
    cost_ns: int = 0


Result = Lowered | Built | Failed

Answered = Callable[[int, Lowered | Failed], None]
"""Told which source of a call, counted from 0, was answered how."""


@dataclass(slots=True)
class ExecutorStats:
    """Counters since the start, and gauges."""

    lowered: int = 0
    built: int = 0
    failed: int = 0
    cancelled: int = 0
    batches: int = 0
    workers_lost: int = 0
    """Workers that ended by themselves, by a signal, or for exceeding a hard limit."""
    work_ns: int = 0
    """Time that workers spent on tasks, by their own clocks."""
    queued: int = 0
    running: int = 0
    ns_per_byte: dict[str, float] = field(default_factory=dict)
    """Moving average of what a byte of a task costs, by kind of task; batches are sized by it."""


class Executor(Protocol):
    """Runs the kernel somewhere."""

    @property
    def workers(self) -> int:
        """How many tasks can run at once."""

    def stats(self) -> ExecutorStats: ...

    async def register_tokenizer(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        """Make a tokenizer known: the bytes of a prepared vocabulary (`Vocabulary.to_bytes`) or the file that holds
        them. Workers load it when they first need it. Idempotent.
        """

    async def lower(
        self,
        sources: Sequence[SourceItem],
        *,
        limits: WorkLimits | None = None,
        deadline_s: float = 60.0,
        done: Answered | None = None,
    ) -> list[Lowered | Failed]:
        """Compile each source; one answer each, in order. Never raises for a source's sake.

        `done` is told of each answer as it comes: some sources take longer than all the others together.
        """

    async def build(
        self,
        tokenizer: bytes,
        closure: Mapping[bytes, bytes],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = 0.0,
        deadline_s: float = 60.0,
    ) -> list[Record]:
        """The mask entries of the units `wanted`; those cheaper to build than `min_cost_us` are left out.

        `closure`: the bytes of every unit that `wanted` need, themselves included. One call is one piece of work: split
        what is to run in parallel. Raises a `GramaryError`.
        """

    async def close(self) -> None:
        """Give up what is queued (typed, retryable) and end the workers. Idempotent."""
