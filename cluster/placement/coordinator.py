"""Compiling a request's sources wherever they belong; see docs/cluster.md for the whole way.

For each source: this node's store; else its owner (by rendezvous of the source key), or the next replica if the owner
cannot be asked; else, after the cluster's share of the time, this node alone. What others compiled is brought here, so
that the next request is answered locally. Mask entries follow behind the answer (`entries`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from gramary.cluster.executor.base import Executor
from gramary.cluster.peer import Outcome, PeerError, SourceItem
from gramary.cluster.placement.claims import Claims
from gramary.cluster.placement.commit import Committer
from gramary.cluster.placement.delivery import Delivery
from gramary.cluster.placement.entries import Entries
from gramary.cluster.placement.fetch import Fetcher
from gramary.cluster.placement.flights import Flights, ManifestUnits, late
from gramary.cluster.placement.local import LocalPeer
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings, Verifier, believe, left_of
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError

ANSWER_S = 0.25
"""How much longer than its deadline a node is waited for: it answers late work with a typed error."""


class Coordinator:
    """One node's part of the cluster. `peer` is what it answers others; the transport serves it."""

    def __init__(
        self,
        membership: Membership,
        store: LocalStore,
        executor: Executor,
        manifest_units: ManifestUnits,
        *,
        settings: Settings | None = None,
        verify: Verifier = believe,
    ) -> None:
        """`manifest_units`: `lambda data: Manifest.parse(data).units`. `verify`: checks what other nodes send."""
        self.settings = settings or Settings()
        self.stats = PlacementStats()
        self.membership, self.store, self.executor = membership, store, executor
        self.fetcher = Fetcher(membership, store, verify, self.settings, self.stats)
        self.claims = Claims(membership, self.settings, self.stats)
        self.delivery = Delivery(membership, store, self.settings, self.stats)
        self.committer = Committer(membership, store, self.claims, self.delivery, self.settings, self.stats)
        self.flights = Flights(store, executor, self.fetcher, self.committer, manifest_units, self.settings, self.stats)
        self.entries = Entries(
            store, executor, self.fetcher, self.claims, self.delivery, manifest_units, self.settings, self.stats
        )
        self.peer = LocalPeer(membership.me, store, self.flights.compile_owned)
        membership.serve_locally(self.peer)

    async def compile(
        self, sources: Sequence[SourceItem], *, tokenizers: Sequence[bytes] = (), deadline_s: float = 30.0
    ) -> list[Outcome]:
        """Compile sources; one outcome each, in order, within the deadline. The mask entries of `tokenizers` follow.

        A source that cannot be compiled has its typed error as its outcome; what goes wrong elsewhere in the cluster
        fails no source that this node can compile itself.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        end, share_end = began + deadline_s, began + deadline_s * self.settings.cluster_share
        self.stats.requests += 1
        self.stats.sources += len(sources)
        wanted = {source.key: source for source in sources}
        outcomes = self._here(wanted)
        left = [source for key, source in wanted.items() if key not in outcomes]
        self.membership.rank(source.key for source in left)
        orders = {s.key: self.membership.reachable(s.key, self.settings.replicas + 1) for s in left}
        for outcome in await self._through(orders, left, share_end, end):
            outcomes[outcome.key] = outcome
            self.flights.errors.remember(outcome)
        self.entries.want([o.manifest for o in outcomes.values() if o.manifest is not None], tokenizers)
        return [outcomes.get(source.key) or late(source.key) for source in sources]

    async def fetch(self, keys: Sequence[Key], *, deadline_s: float = 2.0) -> dict[Key, Record]:
        """Read through: the records of `keys` from this node's store or from others', which then are here too."""
        here = {record.key: record for record in self.store.get(keys) if record is not None}
        left = [key for key in keys if key not in here]
        if left:
            end = asyncio.get_running_loop().time() + deadline_s
            here |= await self.fetcher.records(left, end=end, remember_absent=True)
        return here

    async def run(self, *, refresh_s: float = 5.0, publish_s: float = 2.0) -> None:
        """What goes on for ever in the background: refresh the list of members, publish what could not be put."""

        async def publish() -> None:
            while True:
                await asyncio.sleep(publish_s)
                if self.delivery.unpublished:
                    await self.delivery.publish()

        tasks = [asyncio.create_task(self.membership.keep_fresh(refresh_s)), asyncio.create_task(publish())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """End the background work of requests; the executor and the store belong to whoever made them."""
        await self.entries.close()
        await self.claims.close()

    # The way of sources.

    def _here(self, wanted: Mapping[bytes, SourceItem]) -> dict[bytes, Outcome]:
        """What this node can answer at once."""
        outcomes: dict[bytes, Outcome] = {}
        for key in wanted:
            error = self.flights.errors.get(key)
            if error is not None:
                self.stats.errors_remembered += 1
                outcomes[key] = error
        found = self.flights.complete([key for key in wanted if key not in outcomes])
        self.stats.hits_local += len(found)
        return outcomes | found

    async def _through(
        self, orders: Mapping[bytes, Sequence[str]], sources: Sequence[SourceItem], share_end: float, end: float
    ) -> list[Outcome]:
        """Have sources compiled by the first nodes of their orders, each asked once for all that is its; what a node
        leaves open by the next ones, and at last here.
        """
        groups: dict[str, list[SourceItem]] = defaultdict(list)
        for source in sources:
            groups[next(iter(orders[source.key]), "")].append(source)

        async def by(node: str, some: list[SourceItem]) -> list[Outcome]:
            if node == self.membership.me:
                return await self.flights.compile_owned(some, left_of(end))
            rest = {source.key: orders[source.key][1:] for source in some}
            share_s = left_of(share_end) / (1.5 if any(rest.values()) else 1)
            if not node or share_s <= 0:
                return await self.flights.compile_alone(some, end) if left_of(end) > 0 else []
            outcomes = await self._ask(node, some, share_s)
            answered = {outcome.key for outcome in outcomes}
            some = [source for source in some if source.key not in answered]
            return outcomes + await self._through(rest, some, share_end, end)

        parts = await asyncio.gather(*(by(node, some) for node, some in groups.items()))
        return [outcome for part in parts for outcome in part]

    async def _ask(self, node: str, sources: Sequence[SourceItem], share_s: float) -> list[Outcome]:
        """Have a node compile, and bring what came of it; only outcomes that can be used here."""
        end = asyncio.get_running_loop().time() + share_s
        try:
            answers = await self.membership.ask(
                node, lambda peer: peer.compile(sources, deadline_s=share_s), share_s + ANSWER_S, probe=False
            )
        except PeerError:
            return []
        asked = {source.key for source in sources}
        good: list[Outcome] = []
        units: dict[bytes, list[bytes]] = {}
        for outcome in answers:
            if outcome.key not in asked:
                continue
            digests = self.flights.units_of(outcome.manifest)
            if digests is not None:
                units[outcome.key] = digests
                good.append(outcome)
            elif outcome.manifest is None and not outcome.retryable:
                good.append(outcome)
        needed = dict.fromkeys(Key(Kind.UNIT, unit) for digests in units.values() for unit in digests)
        missing = self.store.missing(list(needed))
        found = await self.fetcher.records(missing, end=end, hint=node) if missing else {}
        absent = {key.digest for key in missing if key not in found}
        good = [o for o in good if not absent or absent.isdisjoint(units.get(o.key, ()))]
        manifests = [Record(Key(Kind.MANIFEST, o.key), o.manifest) for o in good if o.manifest is not None]
        if manifests:
            try:
                await self.store.put(manifests)
            except GramaryError:
                return [o for o in good if o.manifest is None]
        return good
