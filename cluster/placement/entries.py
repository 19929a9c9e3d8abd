"""Mask entries, behind the answers: a request is answered when its units are stored, and nobody waits for entries.

What is wanted for a tokenizer is gathered for a moment; then, for all of it together, entries are brought from the
nodes that have them, and those that nobody has are claimed, built once in the cluster, and put to their units' owners
and replicas. The claim's name is `shard_claim(unit, tokenizer)`, and it is claimed at the unit's owner. Whoever needs
an entry before it is there builds it by itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from gramary.cluster.executor.base import Executor
from gramary.cluster.placement.claims import Claims
from gramary.cluster.placement.delivery import Delivery
from gramary.cluster.placement.fetch import Fetcher
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings, left_of
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError

MOST_KNOWN_SHARDS = 1 << 18
MOST_WANTED = 1 << 14
"""Sources whose entries wait to be seen to; those of more are left to first use."""
SOURCES_PER_TASK = 8
"""Sources whose entries are built in one task of the executor."""

Closure = list[bytes]
"""The units of one source, each after those that it refers to."""


def shard_claim(unit: bytes, tokenizer: bytes) -> bytes:
    """The name under which a unit's entries for a tokenizer are claimed."""
    return blake3(b"gramary shard" + unit + tokenizer).digest()


@dataclass(slots=True, eq=False)
class _Batch:
    done: asyncio.Future[None]
    manifests: dict[bytes, dict[bytes, None]] = field(default_factory=dict)
    """By tokenizer."""
    size: int = 0


class Entries:
    """Has entries built and brought. One per node."""

    def __init__(
        self,
        store: LocalStore,
        executor: Executor,
        fetcher: Fetcher,
        claims: Claims,
        delivery: Delivery,
        units_of: Callable[[bytes], list[bytes]],
        settings: Settings,
        stats: PlacementStats,
    ) -> None:
        self._store, self._executor, self._fetcher, self._units_of = store, executor, fetcher, units_of
        self._claims, self._delivery, self._settings, self._stats = claims, delivery, settings, stats
        self._known: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        """(unit, tokenizer) whose entries are here, or were not worth building."""
        self._gathering: _Batch | None = None
        self._current: _Batch | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, manifests: Sequence[bytes], tokenizers: Sequence[bytes]) -> None:
        """Have the entries of sources with these manifests, whose units are stored here; returns at once."""
        for tokenizer in tokenizers:
            if self._gathering is None:
                self._gathering = _Batch(asyncio.get_running_loop().create_future())
            batch = self._gathering
            wanted = batch.manifests.setdefault(tokenizer, {})
            before = len(wanted)
            wanted.update(dict.fromkeys(manifests[: MOST_WANTED - batch.size]))
            batch.size += len(wanted) - before
        if self._gathering is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def settled(self) -> None:
        """Wait until everything that is wanted now was seen to."""
        batches = [one.done for one in (self._current, self._gathering) if one is not None]
        if batches:
            await asyncio.wait(batches)

    async def close(self) -> None:
        """Give up what was not begun, and what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._gathering is not None:
                await asyncio.sleep(self._settings.gather_s)
                self._current, self._gathering = self._gathering, None
                await self._see_to(self._current)
                self._current.done.set_result(None)
        finally:
            for batch in (self._current, self._gathering):
                if batch is not None and not batch.done.done():
                    batch.done.cancel()
            self._current = self._gathering = None

    async def _see_to(self, batch: _Batch) -> None:
        end = asyncio.get_running_loop().time() + self._settings.entries_s
        for tokenizer, manifests in batch.manifests.items():
            try:
                await self._ensure(tokenizer, [self._units_of(one) for one in manifests], end)
            except GramaryError:  # a full disk, say
                self._stats.entries_failed += 1

    async def _ensure(self, tokenizer: bytes, closures: Sequence[Closure], end: float) -> None:
        """Have the entries of these units built once in the cluster, and bring them."""
        units = dict.fromkeys(unit for closure in closures for unit in closure)
        unknown = [unit for unit in units if (unit, tokenizer) not in self._known]
        if not unknown:
            return
        here = self._store.with_entries(tokenizer, unknown)
        needed = [unit for unit in unknown if unit not in here]
        found = await self._fetcher.shards(tokenizer, needed, end=end) if needed else {}
        claims = {shard_claim(unit, tokenizer): unit for unit in needed if unit not in found}
        built: set[bytes] = set()

        async def build(granted: Mapping[bytes, str]) -> set[bytes]:
            names = {claims[name]: name for name in granted}
            shards: dict[bytes, list[Record]] = {unit: [] for unit in names}
            records = await self._build(closures, tokenizer, set(names), end)
            for record in records:
                shards[record.key.digest].append(record)
            if records:
                await self._store.put(records)
            owners = {claims[name]: owner for name, owner in granted.items()}
            committed = await self._delivery.deliver(owners, shards)
            full = {unit for unit in committed if shards[unit]}
            self._stats.shards_compiled += len(full)
            self._stats.shards_empty += len(committed) - len(full)
            built.update(committed)
            return {names[unit] for unit in committed}

        left = await self._claims.settle(claims, build, end)
        done = [unit for name, unit in claims.items() if name not in left and unit not in built]
        if done:  # somebody else built them while we asked
            await self._fetcher.shards(tokenizer, done, end=end)
        lacking = {unit for name, unit in claims.items() if name in left}
        self._know([unit for unit in unknown if unit not in lacking], tokenizer)

    def _know(self, units: Sequence[bytes], tokenizer: bytes) -> None:
        for unit in units:
            self._known[unit, tokenizer] = None
        while len(self._known) > MOST_KNOWN_SHARDS:
            self._known.popitem(last=False)

    async def _build(
        self, closures: Sequence[Closure], tokenizer: bytes, wanted: set[bytes], end: float
    ) -> list[Record]:
        """The entries of the units `wanted`, each by the first source that has it."""
        left = set(wanted)
        parts: list[tuple[Closure, list[bytes]]] = []
        for closure in closures:
            mine = [unit for unit in closure if unit in left]
            left.difference_update(mine)
            if mine:
                parts.append((closure, mine))
        jobs = []
        for start in range(0, len(parts), SOURCES_PER_TASK):
            jobs.append(self._build_some(tokenizer, parts[start : start + SOURCES_PER_TASK], end))
        return [record for batch in await asyncio.gather(*jobs) for record in batch]

    async def _build_some(
        self, tokenizer: bytes, parts: Sequence[tuple[Closure, list[bytes]]], end: float
    ) -> list[Record]:
        units = dict.fromkeys(unit for closure, _ in parts for unit in closure)
        stored = self._store.get([Key(Kind.UNIT, unit) for unit in units])
        given = {record.key.digest: record.payload for record in stored if record is not None}
        whole = [(closure, mine) for closure, mine in parts if all(unit in given for unit in closure)]
        wanted = [unit for _, mine in whole for unit in mine]
        try:
            return await self._executor.build(
                tokenizer, given, wanted, min_cost_us=self._settings.min_cost_us, deadline_s=left_of(end)
            )
        except GramaryError:
            if len(whole) > 1:  # whichever of them it was
                return [r for part in whole for r in await self._build_some(tokenizer, [part], end)]
            self._stats.entries_failed += 1
            return []
