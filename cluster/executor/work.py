"""What a worker does, whoever runs it: holds one `Lowering` and, per tokenizer, one `Compiler`, and runs tasks."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from gramary.cluster.executor.base import BuildTask, Built, Lowered, LowerTask, Result, Task
from gramary.cluster.executor.errors import UnknownTokenizer
from gramary.cluster.kernel import Limits, Lowering, Source, Vocabulary
from gramary.runtime._core import Compiler

MOST_INSTALLED = 1 << 16
"""Names of units that a worker remembers to have given a compiler."""


class _Table:
    """A compiler for one tokenizer and the units that it was given."""

    def __init__(self, vocabulary: Vocabulary, cache_bytes: int) -> None:
        self.compiler = Compiler(vocabulary, cache_bytes=cache_bytes)
        self.installed: OrderedDict[bytes, None] = OrderedDict()
        self.lock = threading.Lock()

    def install(self, units: Sequence[tuple[bytes, bytes]], *, again: bool) -> None:
        with self.lock:
            new = [unit for unit in units if again or unit[0] not in self.installed]
            if new:
                self.compiler.install([], new)
            for digest, _ in units:
                self.installed[digest] = None
                self.installed.move_to_end(digest)
            while len(self.installed) > MOST_INSTALLED:
                self.installed.popitem(last=False)


class KernelBench:
    """The real tools. Safe for several threads at once.

    `lowering_bytes`, `cache_bytes`: what is remembered of lowered sources, and of units and entries per tokenizer.
    """

    def __init__(self, *, lowering_bytes: int = 64 << 20, cache_bytes: int = 256 << 20) -> None:
        self._lowering = Lowering(cache_bytes=lowering_bytes)
        self._cache_bytes = cache_bytes
        self._tables: dict[bytes, _Table] = {}
        self._lock = threading.Lock()

    def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        with self._lock:
            if fingerprint in self._tables:
                return
            data = vocabulary if isinstance(vocabulary, bytes) else vocabulary.read_bytes()
            loaded = Vocabulary.from_bytes(data)
            if loaded.fingerprint != fingerprint:
                raise UnknownTokenizer(
                    f"the vocabulary given for tokenizer {fingerprint.hex()} is that of {loaded.fingerprint.hex()}"
                )
            self._tables[fingerprint] = _Table(loaded, self._cache_bytes)

    def run(self, task: Task, seconds: float) -> Result:
        if isinstance(task, LowerTask):
            return self._lower(task, seconds)
        return self._build(task)

    def _lower(self, task: LowerTask, seconds: float) -> Lowered:
        item = task.source
        started = time.perf_counter_ns()
        source = Source.from_parts(item.kind, item.options, item.text)
        if source.key != item.key:
            raise ValueError(f"the source named {item.key.hex()} is {source.key.hex()}")
        limits = Limits(seconds=seconds, **task.limits.kernel())  # type: ignore[arg-type]
        manifest, units = self._lowering.lower(source, limits=limits)
        return Lowered(manifest, units, time.perf_counter_ns() - started)

    def _build(self, task: BuildTask) -> Built:
        table = self._tables.get(task.tokenizer)
        if table is None:
            raise UnknownTokenizer(f"tokenizer {task.tokenizer.hex()} is not registered with this worker")
        started = time.perf_counter_ns()
        units = list(task.closure.items())
        wanted = list(task.wanted)
        try:
            table.install(units, again=False)
            table.compiler.build_entries(wanted, min_cost_us=task.min_cost_us)
        except ValueError:  # the compiler let go of units to stay within its budget
            table.install(units, again=True)
            table.compiler.build_entries(wanted, min_cost_us=task.min_cost_us)
        entries = table.compiler.export_entries(wanted)
        return Built(entries, time.perf_counter_ns() - started)
