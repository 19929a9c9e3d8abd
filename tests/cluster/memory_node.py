"""A node in memory, for tests of the wire: a dict for a store, and a compiler that does as it is told."""

from __future__ import annotations

import asyncio
import bisect
import struct
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from hashlib import sha256

from gramary.cluster.peer import Claim, ClaimState, Outcome
from gramary.cluster.records import Key, Kind, Record, shard_prefix
from gramary.cluster.stats import NodeStats, SlowUnit, TokenizerFigures
from gramary.cluster.wire.feed import Feed
from gramary.cluster.wire.node import (
    CompileEvent,
    CompileJob,
    Finished,
    NodeInfo,
    Progress,
    Stage,
    TokenizerFormat,
)
from gramary.compiler.errors import TokenizerError
from gramary.runtime._core import FORMAT_VERSION


def digest(name: str) -> bytes:
    """A digest that stands for a name."""
    return sha256(name.encode()).digest()


TOKENIZER = digest("tokenizer")


def unit(name: str, payload: bytes | None = None) -> Record:
    """A unit of opaque bytes."""
    return Record(Key(Kind.UNIT, digest(name)), name.encode() * 20 if payload is None else payload, cost_ns=1000)


def entry(name: str, slot: int, payload: bytes, tokenizer: bytes = TOKENIZER) -> Record:
    """An entry of a unit."""
    return Record(Key(Kind.ENTRY, digest(name), tokenizer, struct.pack(">I", slot)), payload, cost_ns=5)


def manifest(name: str, units: Sequence[str]) -> Record:
    """A manifest: the digests of its units, one after the other."""
    return Record(Key(Kind.MANIFEST, digest(name)), b"".join(digest(unit) for unit in units))


def manifest_units(payload: bytes) -> list[bytes]:
    """The units of such a manifest."""
    if len(payload) % 32:
        raise ValueError("not a multiple of 32 bytes")
    return [payload[start : start + 32] for start in range(0, len(payload), 32)]


class MemoryNode:
    """Implements `gramary.cluster.wire.node.Node`. `compiling`: what `compile` does for each source."""

    def __init__(self, name: str = "memory") -> None:
        self.info = NodeInfo(name, "0.0", FORMAT_VERSION)
        self.feed = Feed()
        self.records: dict[bytes, Record] = {}
        self.ordered: list[bytes] = []
        self.lock = threading.Lock()
        self.puts: list[tuple[str, int]] = []
        self.calls: list[str] = []
        self.jobs: list[CompileJob] = []
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.tokenizers: dict[bytes, bytes] = {}
        self.leases: dict[bytes, str] = {}
        self.done: set[bytes] = set()
        self.released = asyncio.Event()
        self.compiling: Callable[[MemoryNode, CompileJob], AsyncGenerator[CompileEvent, None]] = compile_quickly
        self.put_error: Exception | None = None

    def add(self, *records: Record) -> None:
        """Put without telling anybody."""
        with self.lock:
            for record in records:
                name = record.key.encode()
                if name not in self.records:
                    bisect.insort(self.ordered, name)
                self.records[name] = record

    def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        self.calls.append("find_missing")
        return [key for key in keys if key.encode() not in self.records]

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        self.calls.append("read")
        return [self.records.get(key.encode()) for key in keys]

    def put(self, records: Sequence[Record], *, origin: str) -> None:
        if self.put_error is not None:
            raise self.put_error
        self.puts.append((origin, len(records)))
        self.add(*records)
        self.feed.publish(record.key for record in records)

    def shard_page(self, tokenizer: bytes, unit: bytes, *, version: int, after: bytes, most_bytes: int) -> list[Record]:
        prefix = shard_prefix(tokenizer, unit, version)
        with self.lock:
            place = bisect.bisect_right(self.ordered, after) if after else bisect.bisect_left(self.ordered, prefix)
            out: list[Record] = []
            size = 0
            while place < len(self.ordered) and self.ordered[place].startswith(prefix) and size < most_bytes:
                record = self.records[self.ordered[place]]
                out.append(record)
                size += len(record.payload)
                place += 1
        return out

    def lookup(self, sources: Sequence[bytes], *, version: int) -> list[Record | None]:
        self.calls.append("lookup")
        out: list[Record | None] = []
        for source in sources:
            record = self.records.get(Key(Kind.MANIFEST, source, version=version).encode())
            units = manifest_units(record.payload) if record is not None else []
            whole = not self.find_missing([Key(Kind.UNIT, unit, version=version) for unit in units])
            out.append(record if whole else None)
        return out

    async def compile(self, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
        self.jobs.append(job)
        self.started.set()
        try:
            async for event in self.compiling(self, job):
                yield event
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def register_tokenizer(self, fingerprint: bytes, form: TokenizerFormat, data: bytes) -> None:
        if sha256(data).digest() != fingerprint:
            raise TokenizerError("the content has another fingerprint")
        self.tokenizers[fingerprint] = data
        self.add(Record(Key(Kind.TOKENIZER, fingerprint), data))

    def has_tokenizer(self, fingerprint: bytes) -> bool:
        return fingerprint in self.tokenizers

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        out = []
        for name in digests:
            if name in self.done:
                out.append(Claim(ClaimState.DONE))
            elif self.leases.setdefault(name, holder) == holder:
                out.append(Claim(ClaimState.GRANTED))
            else:
                out.append(Claim(ClaimState.HELD, self.leases[name], lease_s))
        return out

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        for name in digests:
            if self.leases.get(name) == holder:
                del self.leases[name]
        self.released.set()

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        await self.release(digests, holder=holder)
        self.done.update(digests)

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.released.wait(), timeout_s)
        return [
            Claim(ClaimState.DONE)
            if name in self.done
            else Claim(ClaimState.HELD, self.leases[name], 1.0)
            if name in self.leases
            else Claim(ClaimState.GRANTED)
            for name in digests
        ]

    def stats(self) -> NodeStats:
        return NodeStats(
            self.info.name,
            12.5,
            {'lookups_total{tier="lmdb"}': 7.0},
            [TokenizerFigures(TOKENIZER, 3, 999)],
            [SlowUnit(digest("a"), "a", 12)],
        )


async def compile_quickly(node: MemoryNode, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
    """Every source becomes a manifest of one unit, or what its text says."""
    yield Progress(Stage.LOWERING, 0, len(job.sources))
    for index, source in enumerate(job.sources):
        text = source.text.decode()
        key = source.key or digest(text)
        if text.startswith("error:"):
            _, name, message = text.split(":")
            error = {"type": name, "message": message, "pointer": "/a", "keyword": "not", "remedy": "drop it"}
            yield Finished(index, Outcome(key, error=error))
        elif text == "lost":
            yield Finished(index, Outcome(key, error={"type": "WorkerDied", "message": "it died"}, retryable=True))
        else:
            node.add(unit(text), built := Record(Key(Kind.MANIFEST, key), digest(text)))
            yield Finished(index, Outcome(key, built.payload))
        yield Progress(Stage.COMMIT, index + 1, len(job.sources), 0, index + 1)


async def compile_forever(node: MemoryNode, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
    """Says that it began, and goes on until somebody stops it."""
    yield Progress(Stage.QUEUED, 0, len(job.sources))
    await asyncio.Event().wait()
