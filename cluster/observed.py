"""A node's peers and executor, with what they do counted and traced. They do the same, told to the node's metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from gramary.cluster import trace
from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.peer import Claim, Outcome, PeerError, SourceItem
from gramary.cluster.records import Key, Record
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, CorruptAnswer
from gramary.compiler import errors
from gramary.compiler.errors import GramaryError

Stats = TypeVar("Stats", covariant=True)


class ObservedPeer(GrpcPeer):
    """Another node. Set `metrics` before the first call."""

    metrics: NodeMetrics

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except CorruptAnswer:
            self.metrics.peer_errors.inc("DATA_LOSS")
            self.metrics.corruption.inc("peer")
            raise
        except CallFailed as error:
            self.metrics.peer_errors.inc(error.code)
            raise

    async def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        with self._counted():
            return await super().find_missing(keys)

    async def read(self, keys: Sequence[Key]) -> list[Record | None]:
        started = time.perf_counter()
        try:
            with trace.span(trace.LOOKUP, tier="peer", keys=len(keys)), self._counted():
                records = await super().read(keys)
        except PeerError:
            self.metrics.lookups.inc("peer", "error", by=len(keys))
            raise
        there = [record for record in records if record is not None]
        self.metrics.lookup_duration.observe(time.perf_counter() - started, "peer")
        self.metrics.lookups.inc("peer", "hit", by=len(there))
        self.metrics.lookups.inc("peer", "miss", by=len(records) - len(there))
        self.metrics.peer_bytes.inc("in", by=sum(len(record.payload) for record in there))
        return records

    async def put(self, records: Sequence[Record]) -> None:
        with self._counted():
            await super().put(records)
        self.metrics.peer_bytes.inc("out", by=sum(len(record.payload) for record in records))

    async def shards(
        self, tokenizer: bytes, units: Sequence[bytes], *, after: bytes = b""
    ) -> AsyncGenerator[Record, None]:
        with self._counted():
            async for record in super().shards(tokenizer, units, after=after):
                self.metrics.peer_bytes.inc("in", by=len(record.payload))
                yield record

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        with self._counted():
            return await super().claim(digests, holder=holder, lease_s=lease_s)

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        with self._counted():
            await super().release(digests, holder=holder)

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        with self._counted():
            await super().complete(digests, holder=holder)

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        with self._counted():
            return await super().wait(digests, timeout_s=timeout_s)

    async def compile(self, sources: Sequence[SourceItem], *, deadline_s: float) -> list[Outcome]:
        with self._counted():
            return await super().compile(sources, deadline_s=deadline_s)


class Compiling(Protocol[Stats]):
    """What is used of `gramary.cluster.executor.Executor`."""

    @property
    def workers(self) -> int: ...
    def stats(self) -> Stats: ...
    async def register_tokenizer(self, fingerprint: bytes, vocabulary: bytes | Path) -> None: ...
    async def lower(
        self, sources: Sequence[SourceItem], *, limits: Any = ..., deadline_s: float = ..., done: Any = ...
    ) -> list[Any]: ...
    async def build(
        self,
        tokenizer: bytes,
        closure: Mapping[bytes, bytes],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = ...,
        deadline_s: float = ...,
    ) -> list[Record]: ...
    async def close(self) -> None: ...


class ObservedExecutor(Generic[Stats]):
    """An executor: how long sources and entries take in a worker, how long they wait for one, how they end."""

    def __init__(self, executor: Compiling[Stats], metrics: NodeMetrics) -> None:
        self._executor, self._metrics = executor, metrics

    @property
    def workers(self) -> int:
        """As the executor says."""
        return self._executor.workers

    def stats(self) -> Stats:
        """As the executor says."""
        return self._executor.stats()

    async def register_tokenizer(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        """As the executor does."""
        await self._executor.register_tokenizer(fingerprint, vocabulary)

    async def lower(
        self, sources: Sequence[SourceItem], *, limits: Any = None, deadline_s: float = 60.0, done: Any = None
    ) -> list[Any]:
        """As the executor does; what its worker needed is "lower", the rest of the time "queue"."""
        started = time.perf_counter()
        with trace.span(trace.COMPILE_BATCH, sources=len(sources)):
            results = await self._executor.lower(sources, limits=limits, deadline_s=deadline_s, done=done)
        wall = time.perf_counter() - started
        worked = [getattr(result, "cost_ns", 0) / 1e9 for result in results]
        self._metrics.compile_duration.observe(max(0.0, wall - sum(worked)), "queue")
        for result, seconds in zip(results, worked, strict=True):
            failure: Mapping[str, str] | None = getattr(result, "error", None)
            self._metrics.compiles.inc("cluster", "ok" if failure is None else _how(failure, result.retryable))
            if failure is None:
                self._metrics.compile_duration.observe(seconds, "lower")
        return results

    async def build(
        self,
        tokenizer: bytes,
        closure: Mapping[bytes, bytes],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = 0.0,
        deadline_s: float = 60.0,
    ) -> list[Record]:
        """As the executor does; the time is "entries"."""
        started = time.perf_counter()
        with trace.span(trace.COMPILE_BATCH, units=len(wanted)):
            records = await self._executor.build(
                tokenizer, closure, wanted, min_cost_us=min_cost_us, deadline_s=deadline_s
            )
        self._metrics.compile_duration.observe(time.perf_counter() - started, "entries")
        return records

    async def close(self) -> None:
        """As the executor does."""
        await self._executor.close()


def _how(failure: Mapping[str, str], retryable: bool) -> str:
    """How a source's compile ended, for the metric."""
    name = failure.get("type", "")
    if retryable or name in ("WorkerDied", "KernelFault"):
        return "died"
    if name in ("LimitExceeded", "Cancelled"):
        return "limit" if name == "LimitExceeded" else "cancelled"
    kind = getattr(errors, name, GramaryError)
    return "invalid" if issubclass(kind, errors.CompileError) else "died"
