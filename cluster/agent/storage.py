"""The node's store as placement and the wire use it: LMDB, the MAC, news, and writes off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from gramary.cluster.kernel import Manifest
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import LiveStore
from gramary.cluster.wire.feed import Feed
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.node import SlowUnit

MOST_SLOWEST = 20


class AgentStore:
    """Implements `gramary.cluster.placement.LocalStore` over the writer's end of the store."""

    def __init__(self, store: LiveStore, mac: Mac | None = None) -> None:
        self.live = store
        self.mac = mac
        self.feed = Feed()
        self._costs: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}
        # One thread: LMDB has one writer, and commits in the order in which they were asked for.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="gramary-store")

    def get(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records, in order."""
        return [None if blob is None else blob.record() for blob in self.live.blobs(keys)]

    def missing(self, keys: Sequence[Key]) -> list[Key]:
        """Those of `keys` that are not there, in order."""
        return self.live.missing(keys)

    def shard(self, tokenizer: bytes, unit: bytes) -> list[Record]:
        """Every mask entry of a unit, in order of their encoded keys."""
        return [blob.record() for blob in self.live.shard(tokenizer, unit)]

    def with_entries(self, tokenizer: bytes, units: Sequence[bytes]) -> set[bytes]:
        """Those of `units` of which there is any mask entry."""
        return self.live.with_entries(tokenizer, units)

    async def put(self, records: Sequence[Record]) -> None:
        """Store records; what this node built itself gets the cluster's MAC. Returns when they are committed."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self.commit, records)

    def commit(self, records: Sequence[Record]) -> None:
        """`put`, on the calling thread. Raises `StoreError`."""
        sealed = [self.seal(record) for record in records]
        self._note_costs(sealed)
        refused = {key for key, _ in self.live.put(sealed).refused}
        self.feed.publish([record.key for record in sealed if record.key not in refused])

    def _note_costs(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.key.kind is Kind.UNIT and record.cost_ns:
                self._costs[record.key.digest] = record.cost_ns
        if len(self._costs) > MOST_SLOWEST:
            dearest = heapq.nlargest(MOST_SLOWEST, self._costs.items(), key=lambda item: item[1])
            self._costs = dict(dearest)
        for record in records:
            # Units come before the manifest that says what they are called.
            if record.key.kind is Kind.MANIFEST and self._costs.keys() - self._names.keys():
                with contextlib.suppress(ValueError):  # names are for people
                    manifest = Manifest.parse(record.payload)
                    told = zip(manifest.units, manifest.names, strict=False)
                    self._names |= {unit: name for unit, name in told if unit in self._costs}
        self._names = {unit: name for unit, name in self._names.items() if unit in self._costs}

    def slowest(self) -> list[SlowUnit]:
        """The units that took longest to compile, of those committed since the start, the dearest first."""
        # A copy first: the writer's thread goes on noting.
        ranked = sorted(list(self._costs.items()), key=lambda item: -item[1])  # noqa: C414
        return [SlowUnit(unit, self._names.get(unit, ""), cost) for unit, cost in ranked]

    def seal(self, record: Record) -> Record:
        """The record with this cluster's MAC, if it needs one and has none."""
        return record if self.mac is None or record.mac else self.mac.seal(record)

    async def maintain(self) -> None:
        """One round of the store's own upkeep: evict, sync, clear dead readers, remove what was found damaged."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._maintain)

    def _maintain(self) -> None:
        self.live.recheck(self.live.damaged())
        self.live.touch(self.live.touched())
        self.live.maintain()

    async def run(self, function: object, *arguments: object) -> object:
        """Something else that writes (sealing, compacting), in turn with the others."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)  # type: ignore[arg-type]

    def close(self) -> None:
        """Finish what is being written and close the store."""
        self._writer.shutdown()
        self.live.close()

    def manifests(self, sources: Sequence[bytes], version: int) -> list[Record | None]:
        """Manifests of source keys of which every unit is here, in order; use of all of it is noted."""
        found: list[Record | None] = []
        for blob in self.live.blobs(Key(Kind.MANIFEST, source, version=version) for source in sources):
            record = None if blob is None else blob.record()
            if record is not None:
                try:
                    units = Manifest.parse(record.payload).units
                except ValueError:
                    units, record = [], None
                if self.live.missing(Key(Kind.UNIT, unit, version=version) for unit in units):
                    record = None
            found.append(record)
        return found
