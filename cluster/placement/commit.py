"""From lowered sources to committed units: claim at the owner, build, put to owner and replica, complete.

A node first builds everything that it was granted and only then waits for what others hold, so nobody ever waits for
somebody who waits. A claim's name is the unit's digest; for the entries of a known unit and a further tokenizer it is
`shard_claim(unit, tokenizer)`, claimed at the unit's owner too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from blake3 import blake3

from gramary.cluster.executor.base import Executor, Lowered
from gramary.cluster.peer import Claim, ClaimState, PeerError
from gramary.cluster.placement.fetch import Fetcher
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError

MOST_KNOWN_SHARDS = 1 << 18
PUBLISH_MOST = 4096
"""Units that wait to be published; more are left to be found missing by whoever needs them."""


def shard_claim(unit: bytes, tokenizer: bytes) -> bytes:
    """The name under which the entries of a known unit are claimed for a further tokenizer."""
    return blake3(b"gramary shard" + unit + tokenizer).digest()


@dataclass(slots=True)
class Closure:
    """The units of one source, by digest, each after those that it refers to."""

    units: Mapping[bytes, bytes]
    cost_ns: int = 0


class Committer:
    """Claims, builds and stores what is missing. One per node."""

    def __init__(
        self,
        membership: Membership,
        store: LocalStore,
        executor: Executor,
        fetcher: Fetcher,
        settings: Settings,
        stats: PlacementStats,
    ) -> None:
        self._membership, self._store, self._executor = membership, store, executor
        self._fetcher, self._settings, self._stats = fetcher, settings, stats
        self._known_shards: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        self._unpublished: OrderedDict[Key, None] = OrderedDict()
        self._background: set[asyncio.Task[None]] = set()
        self._claimants = 0

    @property
    def unpublished(self) -> int:
        """Units that are stored here only and are to be published."""
        return len(self._unpublished)

    # Units.

    async def commit(self, closures: Sequence[Closure], tokenizers: Sequence[bytes], end: float) -> None:
        """Have every unit of these sources compiled once in the cluster, by `end` (loop time), and store them here.

        What cannot be settled by then (nobody can be asked, somebody holds it) is stored here and published later.
        """
        units: dict[bytes, bytes] = {}
        for closure in closures:
            units |= closure.units
        absent = [key.digest for key in self._store.missing([Key(Kind.UNIT, digest) for digest in units])]
        costs = _costs(closures, set(absent))

        async def build(granted: Mapping[bytes, str]) -> _Committed:
            return await self._build_units(granted, closures, costs, tokenizers, end)

        left = await self._claim_all({digest: digest for digest in absent}, build, end)
        await self._store.put([Record(Key(Kind.UNIT, d), units[d], costs.get(d, 0)) for d in absent])
        self._stats.units_unclaimed += len(left)
        self.publish_later([Key(Kind.UNIT, digest) for digest in left])

    async def _build_units(
        self,
        granted: Mapping[bytes, str],
        closures: Sequence[Closure],
        costs: Mapping[bytes, int],
        tokenizers: Sequence[bytes],
        end: float,
    ) -> _Committed:
        replicated = await self._at_replicas(granted)
        records: dict[bytes, list[Record]] = {digest: [] for digest in granted}
        wanted = set(granted) - replicated
        jobs = []
        for closure in closures:
            mine = [digest for digest in closure.units if digest in wanted]
            wanted.difference_update(mine)
            for digest in closure.units:
                if digest in granted and not records[digest]:
                    record = Record(Key(Kind.UNIT, digest), closure.units[digest], costs.get(digest, 0))
                    records[digest].append(record)
            if mine:
                jobs += [self._entries(tokenizer, closure.units, mine, end) for tokenizer in tokenizers]
        built = [record for batch in await asyncio.gather(*jobs) for record in batch]
        for record in built:
            records[record.key.digest].append(record)
        if built:
            await self._store.put(built)
        committed = await self._put(granted, records)
        fresh = committed - replicated
        self._stats.units_compiled += len(fresh)
        self._stats.units_repaired += len(committed & replicated)
        for digest in fresh:
            for tokenizer in tokenizers:
                self._know(digest, tokenizer)
        return {d: [shard_claim(d, t) for t in tokenizers] if d in fresh else [] for d in committed}

    async def _at_replicas(self, granted: Mapping[bytes, str]) -> set[bytes]:
        """Those that the owner lacks but another of their nodes has: an owner that is new, or was away."""
        groups: dict[str, list[bytes]] = defaultdict(list)
        for digest, owner in granted.items():
            for node in self._membership.reachable(digest, self._settings.replicas):
                if node not in (owner, self._membership.me):
                    groups[node].append(digest)

        async def ask(node: str, digests: list[bytes]) -> set[bytes]:
            keys = [Key(Kind.UNIT, digest) for digest in digests]
            try:
                missing = await self._membership.ask(node, lambda p: p.find_missing(keys), self._settings.call_s)
            except PeerError:
                return set()
            return set(digests) - {key.digest for key in missing}

        return set().union(*await asyncio.gather(*(ask(n, d) for n, d in groups.items())))

    async def _entries(
        self, tokenizer: bytes, units: Mapping[bytes, bytes], wanted: Sequence[bytes], end: float
    ) -> list[Record]:
        try:
            return await self._executor.build(
                tokenizer, units, wanted, min_cost_us=self._settings.min_cost_us, deadline_s=_left(end)
            )
        except GramaryError:
            self._stats.entries_failed += 1
            return []

    async def replicate(self, records: Sequence[Record]) -> None:
        """Put manifests, which are stored here, to their owner and replicas. Their units are committed."""
        groups: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            nodes = self._membership.reachable(record.key.digest, self._settings.replicas)
            self._hand_over([record.key], nodes)
            for node in nodes:
                if node != self._membership.me:
                    groups[node].append(record)
        took = await asyncio.gather(*(self.put(node, batch) for node, batch in groups.items()))
        for good, batch in zip(took, groups.values(), strict=True):
            if not good:
                self._stats.puts_degraded += len(batch)
                self.publish_later(record.key for record in batch)

    async def store_alone(self, source: bytes, lowered: Lowered, tokenizers: Sequence[bytes], end: float) -> None:
        """Store what was compiled without the cluster's knowledge, to be published when it can be asked again."""
        absent = self._store.missing([Key(Kind.UNIT, digest) for digest, _ in lowered.units])
        units = dict(lowered.units)
        costs = _costs([Closure(units, lowered.cost_ns)], {key.digest for key in absent})
        records = [Record(key, units[key.digest], costs.get(key.digest, 0)) for key in absent]
        for tokenizer in tokenizers:
            wanted = [digest for digest in units if not self.has_shard(tokenizer, digest)]
            if wanted and _left(end) > 0:
                records += await self._entries(tokenizer, units, wanted, end)
        manifest = Record(Key(Kind.MANIFEST, source), lowered.manifest, lowered.cost_ns)
        await self._store.put([*records, manifest])
        self._stats.units_unclaimed += len(absent)
        self.publish_later([*absent, manifest.key])

    # Entries for a further tokenizer.

    async def ensure_shards(self, closures: Sequence[Sequence[bytes]], tokenizers: Sequence[bytes], end: float) -> None:
        """Have the mask entries of these units, which are stored here, built once in the cluster, and bring them."""
        for tokenizer in tokenizers:
            units = dict.fromkeys(unit for closure in closures for unit in closure)
            needed = [unit for unit in units if not self.has_shard(tokenizer, unit)]
            found = await self._fetcher.shards(tokenizer, needed, end=end) if needed else {}
            claims = {shard_claim(unit, tokenizer): unit for unit in needed if unit not in found}
            built: set[bytes] = set()

            async def build(
                granted: Mapping[bytes, str],
                tokenizer: bytes = tokenizer,
                claims: Mapping[bytes, bytes] = claims,
                built: set[bytes] = built,
            ) -> _Committed:
                wanted = {claims[name]: name for name in granted}
                records = await self._build_shards(closures, tokenizer, set(wanted), end)
                by_claim: dict[bytes, list[Record]] = {name: [] for name in granted}
                for record in records:
                    by_claim[wanted[record.key.digest]].append(record)
                if records:
                    await self._store.put(records)
                owners = {claims[name]: owner for name, owner in granted.items()}
                committed = await self._put(owners, {claims[name]: rs for name, rs in by_claim.items()})
                full = {record.key.digest for record in records}
                self._stats.shards_compiled += len(committed & full)
                self._stats.shards_empty += len(committed - full)
                built |= committed
                return {wanted[unit]: [] for unit in committed}

            left = await self._claim_all(claims, build, end)
            done = [unit for name, unit in claims.items() if name not in left and unit not in built]
            if done:  # somebody else built them while we asked
                await self._fetcher.shards(tokenizer, done, end=end)
            for name, unit in claims.items():
                if name not in left:
                    self._know(unit, tokenizer)

    async def _build_shards(
        self, closures: Sequence[Sequence[bytes]], tokenizer: bytes, wanted: set[bytes], end: float
    ) -> list[Record]:
        jobs = []
        wanted = set(wanted)
        for closure in closures:
            mine = [unit for unit in closure if unit in wanted]
            if not mine:
                continue
            wanted.difference_update(mine)
            stored = self._store.get([Key(Kind.UNIT, unit) for unit in closure])
            units = {record.key.digest: record.payload for record in stored if record is not None}
            if len(units) == len(set(closure)):
                jobs.append(self._entries(tokenizer, units, mine, end))
        return [record for batch in await asyncio.gather(*jobs) for record in batch]

    def has_shard(self, tokenizer: bytes, unit: bytes) -> bool:
        """Whether the entries of a unit are here, or are known to be none."""
        return (unit, tokenizer) in self._known_shards or self._store.has_shard(tokenizer, unit)

    def _know(self, unit: bytes, tokenizer: bytes) -> None:
        self._known_shards[unit, tokenizer] = None
        if len(self._known_shards) > MOST_KNOWN_SHARDS:
            self._known_shards.popitem(last=False)

    def know_shards(self, units: Sequence[bytes], tokenizers: Sequence[bytes]) -> None:
        """Remember that the entries of these units were built or are not worth building."""
        for tokenizer in tokenizers:
            for unit in units:
                self._know(unit, tokenizer)

    # Claims.

    async def _claim_all(
        self, names: Mapping[bytes, bytes], build: Callable[[Mapping[bytes, str]], Awaitable[_Committed]], end: float
    ) -> set[bytes]:
        """Settle the claims `names` (name -> unit, at whose owner it is claimed); returns those not settled by `end`.

        `build` gets what was granted (name -> owner) and returns what it committed.
        """
        self._claimants += 1
        holder = f"{self._membership.me}#{self._claimants}"
        pending = dict(names)
        down: set[str] = set()
        left: set[bytes] = set()
        once_held: set[bytes] = set()
        while pending and _left(end) > 0:
            groups: dict[str, list[bytes]] = defaultdict(list)
            for name, unit in pending.items():
                for node in self._membership.reachable(unit, self._settings.replicas + 1):
                    if node not in down:
                        groups[node].append(name)
                        break
            if not groups:
                break
            answers = await asyncio.gather(*(self._claim(node, asked, holder, end) for node, asked in groups.items()))
            granted: dict[bytes, str] = {}
            held: dict[str, dict[bytes, Claim]] = defaultdict(dict)
            for (node, asked), claims in zip(groups.items(), answers, strict=True):
                if claims is None:
                    down.add(node)
                    continue
                for name, claim in zip(asked, claims, strict=True):
                    if claim.state is ClaimState.DONE:
                        del pending[name]
                    elif claim.state is ClaimState.GRANTED:
                        granted[name] = node
                    else:
                        held[node][name] = claim
            if granted:
                committed = await self._under_lease(granted, holder, build)
                self._stats.takeovers += len(once_held & committed)
                left |= granted.keys() - committed
                for name in granted:
                    del pending[name]
            once_held.update(name for claims in held.values() for name, claim in claims.items() if claim.holder)
            waits = [self._wait(node, claims, end) for node, claims in held.items()]
            for node, states in zip(held, await asyncio.gather(*waits), strict=True):
                if states is None:
                    down.add(node)
                    continue
                for name, claim in states.items():
                    if claim.state is ClaimState.DONE:
                        del pending[name]
        return left | pending.keys()

    async def _claim(self, node: str, names: Sequence[bytes], holder: str, end: float) -> list[Claim] | None:
        try:
            claims = await self._membership.ask(
                node,
                lambda peer: peer.claim(names, holder=holder, lease_s=self._settings.lease_s),
                min(self._settings.call_s, _left(end)),
            )
        except PeerError:
            return None
        return claims if len(claims) == len(names) else None

    async def _wait(self, node: str, claims: Mapping[bytes, Claim], end: float) -> dict[bytes, Claim] | None:
        """Wait until none of these claims is held, or the first leases must have run out."""
        names = [name for name, claim in claims.items() if claim.holder]
        if not names:  # the owner's table is full
            await asyncio.sleep(min(max(0.01, *(c.remaining_s for c in claims.values())), max(0.0, _left(end))))
            return {}
        most_s = max(0.0, min(max(claims[name].remaining_s for name in names) + 0.01, _left(end)))
        try:
            states = await self._membership.ask(
                node,
                lambda peer: peer.wait(names, timeout_s=most_s),
                most_s + self._settings.call_s,
                probe=False,
            )
        except PeerError:
            return None
        return dict(zip(names, states, strict=False))

    async def _under_lease(
        self,
        granted: Mapping[bytes, str],
        holder: str,
        build: Callable[[Mapping[bytes, str]], Awaitable[_Committed]],
    ) -> set[bytes]:
        """Build what was granted while renewing its leases, then complete it; give the rest back."""
        renewing = asyncio.create_task(self._renew(granted, holder))
        committed: _Committed = {}
        try:
            committed = await build(granted)
        finally:
            renewing.cancel()
            back = _by_node({name: node for name, node in granted.items() if name not in committed})
            for node, names in back.items():
                self._later(self._tell(node, names, holder, complete=False))
        done: dict[str, list[bytes]] = defaultdict(list)
        for name, more in committed.items():
            done[granted[name]] += [name, *more]
        await asyncio.gather(*(self._tell(node, names, holder, complete=True) for node, names in done.items()))
        return set(committed)

    async def _renew(self, granted: Mapping[bytes, str], holder: str) -> None:
        groups = _by_node(granted)
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            calls = (self._claim(node, names, holder, float("inf")) for node, names in groups.items())
            await asyncio.gather(*calls)

    async def _tell(self, node: str, names: Sequence[bytes], holder: str, *, complete: bool) -> None:
        """Complete or release; a node that does not hear of it finds out when the lease runs out."""
        with contextlib.suppress(PeerError):
            if complete:
                await self._membership.ask(node, lambda p: p.complete(names, holder=holder), self._settings.call_s)
            else:
                await self._membership.ask(node, lambda p: p.release(names, holder=holder), self._settings.call_s)

    # Storing.

    async def _put(self, owners: Mapping[bytes, str], records: Mapping[bytes, Sequence[Record]]) -> set[bytes]:
        """Put each unit's records to its owner and replicas; returns the units that one of them at least took."""
        groups: dict[str, list[Record]] = defaultdict(list)
        targets: dict[bytes, list[str]] = {}
        for digest, owner in owners.items():
            nodes = self._membership.reachable(digest, self._settings.replicas)
            targets[digest] = [owner, *(node for node in nodes if node != owner)][: self._settings.replicas]
            for node in targets[digest]:
                groups[node].extend(records[digest])
        took = dict(zip(groups, await asyncio.gather(*(self.put(n, rs) for n, rs in groups.items())), strict=True))
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

    def _hand_over(self, keys: Iterable[Key], nodes: Iterable[str]) -> None:
        """Others than their owners took these: the owners get them when they can be asked again."""
        took = set(nodes)
        self.publish_later(
            k for k in keys if not took.issuperset(self._membership.owners(k.digest, self._settings.replicas))
        )

    async def put(self, node: str, records: Sequence[Record]) -> bool:
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
            took[node] = set(wanted) if await self.put(node, records) else set(wanted) - set(missing)
        for key in keys:
            if all(key in took[node] for node in nodes_of[key]):
                self._unpublished.pop(key, None)
                self._stats.units_published += key.kind is Kind.UNIT

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """End what goes on in the background."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


_Committed = dict[bytes, list[bytes]]
"""Claims that were built and stored -> further names that are done with them."""


def _left(end: float) -> float:
    return end - asyncio.get_running_loop().time()


def _by_node(granted: Mapping[bytes, str]) -> dict[str, list[bytes]]:
    groups: dict[str, list[bytes]] = defaultdict(list)
    for name, node in granted.items():
        groups[node].append(name)
    return groups


def _costs(closures: Sequence[Closure], absent: set[bytes]) -> dict[bytes, int]:
    """What each absent unit cost to lower: its source's time, divided among them by size."""
    costs: dict[bytes, int] = {}
    for closure in closures:
        new = {digest: len(data) for digest, data in closure.units.items() if digest in absent and digest not in costs}
        total = sum(new.values()) or 1
        costs |= {digest: closure.cost_ns * size // total for digest, size in new.items()}
    return costs
