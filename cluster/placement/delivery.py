"""Putting records where they belong: to owner and replicas now, or later, when they can be asked again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gramary.cluster.peer import PeerError
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError

PUBLISH_MOST = 4096
"""Records that wait to be published; more are left to be found missing by whoever needs them."""


class Delivery:
    """One per node."""

    def __init__(self, membership: Membership, store: LocalStore, settings: Settings, stats: PlacementStats) -> None:
        self._membership, self._store, self._settings, self._stats = membership, store, settings, stats
        self._unpublished: OrderedDict[Key, None] = OrderedDict()

    @property
    def unpublished(self) -> int:
        """Records that are to be published."""
        return len(self._unpublished)

    async def deliver(self, owners: Mapping[bytes, str], records: Mapping[bytes, Sequence[Record]]) -> set[bytes]:
        """Put each unit's records, which are stored here, to its owner and replicas, one message a node; returns the
        units that one of them at least has.
        """
        groups: dict[str, list[Record]] = defaultdict(list)
        targets: dict[bytes, list[str]] = {}
        for digest, owner in owners.items():
            nodes = self._membership.reachable(digest, self._settings.replicas)
            targets[digest] = [owner, *(node for node in nodes if node != owner)][: self._settings.replicas]
            for node in targets[digest]:
                if node != self._membership.me:
                    groups[node].extend(records[digest])
        took = dict(zip(groups, await asyncio.gather(*(self._put(n, rs) for n, rs in groups.items())), strict=True))
        took[self._membership.me] = True
        committed = set()
        for digest, nodes in targets.items():
            good = [node for node in nodes if took.get(node, not records[digest])]
            if good:
                committed.add(digest)
            if len(good) < min(self._settings.replicas, len(self._membership.ring)):
                self._stats.puts_degraded += 1
            if good:
                self._hand_over([record.key for record in records[digest] if record.key.kind is Kind.UNIT], good)
        return committed

    async def replicate(self, records: Sequence[Record]) -> None:
        """Put manifests, which are stored here, to their owner and replicas. Their units are committed."""
        groups: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            nodes = self._membership.reachable(record.key.digest, self._settings.replicas)
            self._hand_over([record.key], nodes)
            for node in nodes:
                if node != self._membership.me:
                    groups[node].append(record)
        took = await asyncio.gather(*(self._put(node, batch) for node, batch in groups.items()))
        for good, batch in zip(took, groups.values(), strict=True):
            if not good:
                self._stats.puts_degraded += len(batch)
                self.publish_later(record.key for record in batch)

    def _hand_over(self, keys: Iterable[Key], nodes: Iterable[str]) -> None:
        """Others than their owners took these: the owners get them when they can be asked again."""
        took = set(nodes)
        self.publish_later(
            k for k in keys if not took.issuperset(self._membership.owners(k.digest, self._settings.replicas))
        )

    async def _put(self, node: str, records: Sequence[Record]) -> bool:
        """Put records to one node; whether it took them."""
        if not records:
            return True
        size = sum(len(record.payload) for record in records)
        try:
            await self._membership.ask(node, lambda peer: peer.put(records), self._settings.call_s + size / 10e6)
        except (PeerError, GramaryError):
            return False
        return True

    def publish_later(self, keys: Iterable[Key]) -> None:
        """Records that are in the local store only: `publish` puts them where they belong."""
        for key in keys:
            if len(self._unpublished) < PUBLISH_MOST:
                self._unpublished[key] = None

    async def publish(self) -> None:
        """One round of putting what is stored here only to its owners, as far as they can be asked."""
        keys = list(self._unpublished)
        groups: dict[str, list[Key]] = defaultdict(list)
        nodes_of: dict[Key, tuple[str, ...]] = {}
        for key in keys:
            nodes_of[key] = tuple(self._membership.owners(key.digest, self._settings.replicas))
            for node in nodes_of[key]:
                if node != self._membership.me:
                    groups[node].append(key)
        took = {self._membership.me: set(keys)}
        for node, wanted in groups.items():
            try:
                call = self._membership.ask(node, lambda p, w=wanted: p.find_missing(w), self._settings.call_s)  # type: ignore[misc]
                missing = await call
            except PeerError:
                took[node] = set()
                continue
            records = [record for record in self._store.get(missing) if record is not None]
            took[node] = set(wanted) if await self._put(node, records) else set(wanted) - set(missing)
        for key in keys:
            if all(key in took[node] for node in nodes_of[key]):
                self._unpublished.pop(key, None)
                self._stats.units_published += key.kind is Kind.UNIT
