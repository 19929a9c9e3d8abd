"""What a worker does, whoever runs it: holds one `Lowering` and, per tokenizer, one `Compiler`, and runs tasks."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from gramary.cluster.executor.base import BuildTask, Built, Lowered, LowerTask, Result, Task
from gramary.cluster.executor.errors import UnknownTokenizer
from gramary.cluster.kernel import Limits, Lowering, Source, Vocabulary
from gramary.runtime._core import Compiler

MOST_UNITS = 4096
"""Units that are remembered as they were handed over last."""


class KernelBench:
    """The real tools. Safe for several threads at once.

    `lowering_bytes`, `cache_bytes`: what is remembered of lowered sources, and of entries per tokenizer.
    """

    def __init__(self, *, lowering_bytes: int = 64 << 20, cache_bytes: int = 256 << 20) -> None:
        self._lowering = Lowering(cache_bytes=lowering_bytes)
        # Most of a tool's units are those of every other tool: what is one object is pickled once a batch.
        self._units: dict[bytes, tuple[bytes, bytes]] = {}
        self._cache_bytes = cache_bytes
        self._compilers: dict[bytes, Compiler] = {}
        self._lock = threading.Lock()

    def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        with self._lock:
            if fingerprint in self._compilers:
                return
            data = vocabulary if isinstance(vocabulary, bytes) else vocabulary.read_bytes()
            loaded = Vocabulary.from_bytes(data)
            if loaded.fingerprint != fingerprint:
                raise UnknownTokenizer(
                    f"the vocabulary given for tokenizer {fingerprint.hex()} is that of {loaded.fingerprint.hex()}"
                )
            self._compilers[fingerprint] = Compiler(loaded, cache_bytes=self._cache_bytes)

    def run(self, task: Task, seconds: float) -> Result:
        if isinstance(task, LowerTask):
            return self._lower(task, seconds)
        return self._build(task, seconds)

    def _lower(self, task: LowerTask, seconds: float) -> Lowered:
        item = task.source
        started = time.perf_counter_ns()
        source = Source.from_parts(item.kind, item.options, item.text)
        if source.key != item.key:
            raise ValueError(f"the source named {item.key.hex()} is {source.key.hex()}")
        limits = Limits(seconds=seconds, **task.limits.kernel())  # type: ignore[arg-type]
        manifest, units = self._lowering.lower(source, limits=limits)
        if len(self._units) > MOST_UNITS:
            self._units.clear()
        units = [self._units.setdefault(unit[0], unit) for unit in units]
        return Lowered(manifest, units, time.perf_counter_ns() - started)

    def _build(self, task: BuildTask, seconds: float) -> Built:
        compiler = self._compilers.get(task.tokenizer)
        if compiler is None:
            raise UnknownTokenizer(f"tokenizer {task.tokenizer.hex()} is not registered with this worker")
        started = time.perf_counter_ns()
        entries = compiler.build_entries(
            list(task.closure.items()),
            task.wanted,
            min_cost_us=task.min_cost_us,
            limits=Limits(seconds=seconds, **task.limits.kernel()),  # type: ignore[arg-type]
        )
        return Built(entries, time.perf_counter_ns() - started)
