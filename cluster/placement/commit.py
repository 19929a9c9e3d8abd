"""From lowered sources to committed ones: claim new units at their owners, store them here with their manifests, and
put them to owner and replica.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from gramary.cluster.executor.base import Lowered
from gramary.cluster.peer import PeerError
from gramary.cluster.placement.claims import Claims
from gramary.cluster.placement.delivery import Delivery
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings
from gramary.cluster.records import Key, Kind, Record


class Committer:
    """Stores what was lowered. One per node."""

    def __init__(
        self,
        membership: Membership,
        store: LocalStore,
        claims: Claims,
        delivery: Delivery,
        settings: Settings,
        stats: PlacementStats,
    ) -> None:
        self._membership, self._store, self._claims = membership, store, claims
        self._delivery, self._settings, self._stats = delivery, settings, stats

    async def commit(self, sources: Mapping[bytes, Lowered], end: float) -> None:
        """Have every unit of these sources counted as compiled once in the cluster, by `end` (loop time), and store
        them and the manifests here and where they belong.

        What cannot be settled by then (nobody can be asked, somebody holds it) is stored here and published later.
        """
        units = self._absent(sources)
        manifests = _manifests(sources)

        # Mostly all of it is granted; asked meanwhile, nobody waits for the answer.
        asking = asyncio.create_task(self._at_replicas(list(units)))

        async def build(granted: Mapping[bytes, str]) -> set[bytes]:
            # One commit here for what was granted and, of the manifests, those that need nothing else.
            whole = [key for key, one in sources.items() if all(d in granted or d not in units for d, _ in one.units)]
            here = [*(units[d] for d in granted), *(manifests.pop(k) for k in whole if k in manifests)]
            replicated = await asking
            _, committed = await asyncio.gather(
                self._store.put(here),
                self._delivery.deliver(granted, {digest: [units[digest]] for digest in granted}),
            )
            self._stats.units_compiled += len(committed - replicated)
            self._stats.units_repaired += len(committed & replicated)
            return committed

        try:
            left = await self._claims.settle({digest: digest for digest in units}, build, end)
        finally:
            asking.cancel()
        lacking = self._store.missing([record.key for record in units.values()])
        rest = [*(units[key.digest] for key in lacking), *manifests.values()]
        if rest:  # what others built or hold
            await self._store.put(rest)
        self._stats.units_unclaimed += len(left)
        self._delivery.publish_later(Key(Kind.UNIT, digest) for digest in left)
        await self._delivery.replicate(list(_manifests(sources).values()))

    async def commit_alone(self, sources: Mapping[bytes, Lowered]) -> None:
        """Store what was compiled without the cluster's knowledge, to be published when it can be asked again."""
        records = [*self._absent(sources).values(), *_manifests(sources).values()]
        await self._store.put(records)
        self._stats.units_unclaimed += len(records) - len(sources)
        self._delivery.publish_later(record.key for record in records)

    def _absent(self, sources: Mapping[bytes, Lowered]) -> dict[bytes, Record]:
        """The units of these sources that are not stored here."""
        units: dict[bytes, bytes] = {}
        for lowered in sources.values():
            units |= lowered.units
        absent = [key.digest for key in self._store.missing([Key(Kind.UNIT, digest) for digest in units])]
        self._membership.rank(absent)
        costs = _costs(sources.values(), set(absent))
        return {digest: Record(Key(Kind.UNIT, digest), units[digest], costs.get(digest, 0)) for digest in absent}

    async def _at_replicas(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that another node than their owner has: then, if the owner lacks it, it is new, or was away."""
        groups: dict[str, list[bytes]] = defaultdict(list)
        for digest in digests:
            for node in self._membership.reachable(digest, self._settings.replicas)[1:]:
                if node != self._membership.me:
                    groups[node].append(digest)

        async def ask(node: str, digests: list[bytes]) -> set[bytes]:
            keys = [Key(Kind.UNIT, digest) for digest in digests]
            try:
                missing = await self._membership.ask(node, lambda p: p.find_missing(keys), self._settings.call_s)
            except PeerError:
                return set()
            return set(digests) - {key.digest for key in missing}

        return set().union(*await asyncio.gather(*(ask(n, d) for n, d in groups.items())))


def _manifests(sources: Mapping[bytes, Lowered]) -> dict[bytes, Record]:
    return {key: Record(Key(Kind.MANIFEST, key), one.manifest, one.cost_ns) for key, one in sources.items()}


def _costs(sources: Collection[Lowered], absent: set[bytes]) -> dict[bytes, int]:
    """What each absent unit cost to lower: its source's time, divided among them by size."""
    costs: dict[bytes, int] = {}
    for one in sources:
        new = {digest: len(data) for digest, data in one.units if digest in absent and digest not in costs}
        total = sum(new.values()) or 1
        costs |= {digest: one.cost_ns * size // total for digest, size in new.items()}
    return costs
