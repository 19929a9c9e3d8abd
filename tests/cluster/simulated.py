"""A cluster in one thread: simulated time, a network that drops, delays, partitions and kills, and nodes that run the
real placement code over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gramary.cluster.executor.base import (
    Answered,
    BuildTask,
    Built,
    ExecutorStats,
    Failed,
    Lowered,
    LowerTask,
    WorkLimits,
)
from gramary.cluster.executor.batch import failed
from gramary.cluster.executor.errors import DeadlineExceeded
from gramary.cluster.peer import Claim, Outcome, Peer, PeerError, SourceItem
from gramary.cluster.placement import Coordinator, Member, Membership, Settings, StaticSource
from gramary.cluster.placement.membership import Breaker
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError
from tests.cluster.fakes import FakeBench, manifest_units

T = TypeVar("T")


class Stuck(Exception):
    """Nothing is ready, nothing is scheduled, and the simulation has not ended: a deadlock."""


class _Selector(selectors.SelectSelector):
    """Instead of sleeping until the next timer, moves the clock there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` passes only by sleeping."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def simulate(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in simulated time; `Stuck` if it never ends."""
    loop = SimulatedLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            with contextlib.suppress(Stuck):
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


class MemoryStore:
    """A node's store: a dictionary. `budget`: number of records; the oldest go first (`None`: unlimited)."""

    def __init__(self) -> None:
        self.values: dict[Key, Record] = {}
        self.slots: dict[tuple[bytes, bytes], dict[bytes, Key]] = defaultdict(dict)
        self.full = False

    def get(self, keys: Sequence[Key]) -> list[Record | None]:
        return [self.values.get(key) for key in keys]

    def missing(self, keys: Sequence[Key]) -> list[Key]:
        return [key for key in keys if key not in self.values]

    def shard(self, tokenizer: bytes, unit: bytes) -> list[Record]:
        slots = self.slots.get((unit, tokenizer), {})
        return [self.values[slots[slot]] for slot in sorted(slots)]

    def with_entries(self, tokenizer: bytes, units: Sequence[bytes]) -> set[bytes]:
        return {unit for unit in units if self.slots.get((unit, tokenizer))}

    async def put(self, records: Sequence[Record]) -> None:
        if self.full:
            raise GramaryError("the disk is full")
        for record in records:
            known = self.values.setdefault(record.key, record)
            assert known.payload == record.payload, "equal keys, different content"
            if record.key.kind is Kind.ENTRY:
                self.slots[record.key.digest, record.key.tokenizer][record.key.slot] = record.key

    def delete(self, key: Key) -> None:
        self.values.pop(key, None)
        if key.kind is Kind.ENTRY:
            slots = self.slots.get((key.digest, key.tokenizer))
            if slots is not None:
                slots.pop(key.slot, None)
                if not slots:
                    del self.slots[key.digest, key.tokenizer]

    def of_kind(self, kind: Kind) -> set[bytes]:
        return {key.digest for key in self.values if key.kind is kind}


class SimulatedExecutor:
    """Does the fake kernel's work after a simulated time, `workers` tasks at once."""

    def __init__(self, workers: int = 2, lower_s: float = 0.005, build_s: float = 0.002) -> None:
        self._workers, self.lower_s, self.build_s = workers, lower_s, build_s
        self._slots = asyncio.Semaphore(workers)
        self._bench = FakeBench()
        self.lowered: list[bytes] = []
        self.built: list[tuple[bytes, bytes]] = []

    @property
    def workers(self) -> int:
        return self._workers

    def stats(self) -> ExecutorStats:
        return ExecutorStats()

    async def register_tokenizer(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        self._bench.tokenizers.add(fingerprint)

    async def _work(self, seconds: float, deadline_s: float) -> None:
        async def work() -> None:
            async with self._slots:
                await asyncio.sleep(seconds)

        try:
            await asyncio.wait_for(work(), max(0.0, deadline_s))
        except asyncio.TimeoutError:
            raise DeadlineExceeded("too late") from None

    async def lower(
        self,
        sources: Sequence[SourceItem],
        *,
        limits: WorkLimits | None = None,
        deadline_s: float = 60.0,
        done: Answered | None = None,
    ) -> list[Lowered | Failed]:
        async def one(index: int, source: SourceItem) -> Lowered | Failed:
            result = await self._lower(source, deadline_s)
            if done is not None:
                done(index, result)
            return result

        return list(await asyncio.gather(*(one(index, source) for index, source in enumerate(sources))))

    async def _lower(self, source: SourceItem, deadline_s: float) -> Lowered | Failed:
        try:
            await self._work(self.lower_s, deadline_s)
            result = self._bench.lower(LowerTask(source), 1.0)
        except GramaryError as error:
            return failed(error)
        self.lowered.append(source.key)
        return Lowered(result.manifest, result.units, int(self.lower_s * 1e9))

    async def build(
        self,
        tokenizer: bytes,
        closure: Mapping[bytes, bytes],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = 0.0,
        deadline_s: float = 60.0,
    ) -> list[Record]:
        await self._work(self.build_s * len(wanted), deadline_s)
        self._bench.tokenizers.add(tokenizer)
        built: Built = self._bench.build(BuildTask(tokenizer, closure, tuple(wanted)))
        self.built += [(unit, tokenizer) for unit in wanted]
        return [Record(Key(Kind.ENTRY, unit, tokenizer, slot), data, ns) for unit, slot, data, ns in built.entries]

    async def close(self) -> None:
        pass


class Network:
    """Connects nodes; `latency(source, target)` in seconds. What is lost is lost in silence, as on a real network."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.nodes: dict[str, Node] = {}
        self.latency: Callable[[str, str], float] = lambda a, b: self.random.uniform(0.0002, 0.002)
        self.loss = 0.0
        self.cut: Callable[[str, str], bool] = lambda a, b: False
        self.calls: dict[str, int] = defaultdict(int)
        """Calls received, by node."""
        self.by_method: dict[str, int] = defaultdict(int)

    async def deliver(self, a: str, b: str) -> None:
        """One message's way; never returns if it is lost."""
        await asyncio.sleep(self.latency(a, b))
        ends = self.nodes.get(a), self.nodes.get(b)
        up = all(node is not None and node.alive for node in ends)
        if not up or self.cut(a, b) or self.random.random() < self.loss:
            await asyncio.get_running_loop().create_future()

    async def call(self, a: str, b: str, method: str, work: Callable[[Peer], Awaitable[T]]) -> T:
        self.calls[b] += 1
        self.by_method[method] += 1
        if b in self.nodes and not self.nodes[b].alive and not self.cut(a, b):
            await asyncio.sleep(self.latency(a, b))
            raise PeerError(b, "connection refused")
        await self.deliver(a, b)
        result = await self.nodes[b].serve(a, work(self.nodes[b].coordinator.peer))
        await self.deliver(b, a)
        return result


class RemotePeer:
    """A `Peer` at the other end of the simulated network."""

    def __init__(self, network: Network, me: str, name: str) -> None:
        self._network, self._me, self._name = network, me, name

    @property
    def name(self) -> str:
        return self._name

    async def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        return await self._call("find_missing", lambda p: p.find_missing(keys))

    async def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return await self._call("read", lambda p: p.read(keys))

    async def put(self, records: Sequence[Record]) -> None:
        await self._call("put", lambda p: p.put(records))

    async def shards(self, tokenizer: bytes, units: Sequence[bytes], *, after: bytes = b"") -> AsyncIterator[Record]:
        async def collect(peer: Peer) -> list[Record]:
            return [record async for record in peer.shards(tokenizer, units, after=after)]

        for record in await self._call("shards", collect):
            yield record

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        return await self._call("claim", lambda p: p.claim(digests, holder=holder, lease_s=lease_s))

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        await self._call("release", lambda p: p.release(digests, holder=holder))

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        await self._call("complete", lambda p: p.complete(digests, holder=holder))

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        return await self._call("wait", lambda p: p.wait(digests, timeout_s=timeout_s))

    async def compile(self, sources: Sequence[SourceItem], *, deadline_s: float) -> list[Outcome]:
        return await self._call("compile", lambda p: p.compile(sources, deadline_s=deadline_s))

    async def _call(self, method: str, work: Callable[[Peer], Awaitable[T]]) -> T:
        return await self._network.call(self._me, self._name, method, work)


class Node:
    """One node; `kill` ends it with everything it has in memory, `start` brings it back with its store."""

    def __init__(
        self, network: Network, name: str, members: Sequence[str], settings: Settings, store: MemoryStore | None = None
    ) -> None:
        self.network, self.name, self.members, self.settings = network, name, list(members), settings
        self.store = store or MemoryStore()
        self.alive = False
        self.serving: set[asyncio.Future[Any]] = set()
        network.nodes[name] = self

    async def start(self) -> None:
        self.executor = SimulatedExecutor()
        source = StaticSource([Member(name, name) for name in self.members])
        membership = Membership(
            self.name,
            source,
            lambda member: RemotePeer(self.network, self.name, member.name),
            breaker=lambda: Breaker(cool_down_s=1.0, most_cool_down_s=4.0),
        )
        self.coordinator = Coordinator(membership, self.store, self.executor, manifest_units, settings=self.settings)
        await membership.refresh()
        self.alive = True

    async def serve(self, caller: str, work: Awaitable[T]) -> T:
        """Do work for a node; it ends when this node dies, which `caller` notices, or when the caller hangs up."""
        task = asyncio.ensure_future(work)
        self.serving.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self.serving.discard(task)
        if task.cancelled():
            raise PeerError(self.name, "connection reset")
        return task.result()

    async def compile(
        self, sources: Sequence[SourceItem], tokenizers: Sequence[bytes] = (), deadline_s: float = 10.0
    ) -> list[Outcome]:
        work = self.coordinator.compile(sources, tokenizers=tokenizers, deadline_s=deadline_s)
        return await self.serve(self.name, work)

    def kill(self) -> None:
        self.alive = False
        entries = self.coordinator.entries._task
        tasks = [*self.serving, *self.coordinator.claims._background, *([entries] if entries is not None else [])]
        tasks += [g.task for f in self.coordinator.flights._flights.values() if (g := f.group).task is not None]
        for task in tasks:
            task.cancel()


class Cluster:
    """Some nodes."""

    def __init__(self, count: int, *, seed: int = 0, settings: Settings | None = None) -> None:
        self.network = Network(seed)
        self.names = [f"node-{i}" for i in range(count)]
        self.settings = settings or Settings(lease_s=1.0, call_s=0.5)
        self.nodes = [Node(self.network, name, self.names, self.settings) for name in self.names]

    async def start(self) -> Cluster:
        for node in self.nodes:
            await node.start()
        return self

    async def settle(self) -> None:
        """Wait for the mask entries that follow behind the answers."""
        await asyncio.gather(*(node.coordinator.entries.settled() for node in self.nodes if node.alive))

    def total(self, counter: str) -> int:
        return sum(getattr(node.coordinator.stats, counter) for node in self.nodes)

    def stored_units(self) -> set[bytes]:
        return set().union(*(node.store.of_kind(Kind.UNIT) for node in self.nodes))
