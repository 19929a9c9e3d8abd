"""Compiling a request's sources wherever they belong; see docs/cluster.md for the whole way.

For each source: this node's store; else its owner (by rendezvous of the source key), or the next replica if the owner
cannot be asked; else, after the cluster's share of the time, this node alone. What others compiled is brought here, so
that the next request is answered locally.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from gramary.cluster.executor.base import Executor
from gramary.cluster.peer import Outcome, PeerError, SourceItem
from gramary.cluster.placement.commit import Committer
from gramary.cluster.placement.fetch import Fetcher
from gramary.cluster.placement.flights import Flights, ManifestUnits, late
from gramary.cluster.placement.local import LocalPeer
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings, Verifier, believe
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
        self.committer = Committer(membership, store, executor, self.fetcher, self.settings, self.stats)
        self.flights = Flights(
            membership, store, executor, self.fetcher, self.committer, manifest_units, self.settings, self.stats
        )
        self.peer = LocalPeer(membership.me, store, self.flights.compile_owned)
        membership.serve_locally(self.peer)

    async def compile(
        self, sources: Sequence[SourceItem], *, tokenizers: Sequence[bytes] = (), deadline_s: float = 30.0
    ) -> list[Outcome]:
        """Compile sources, with the mask entries of `tokenizers`; one outcome each, in order, within the deadline.

        A source that cannot be compiled has its typed error as its outcome; what goes wrong elsewhere in the cluster
        fails no source that this node can compile itself.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        end, share_end = began + deadline_s, began + deadline_s * self.settings.cluster_share
        self.stats.requests += 1
        self.stats.sources += len(sources)
        wanted = {source.key: source for source in sources}
        outcomes = self._here(wanted, tokenizers)
        groups: dict[tuple[str, ...], list[SourceItem]] = defaultdict(list)
        for key, source in wanted.items():
            if key not in outcomes:
                groups[tuple(self.membership.reachable(key, self.settings.replicas + 1))].append(source)
        parts = [self._through(nodes, part, tokenizers, share_end, end) for nodes, part in groups.items()]
        for part in await asyncio.gather(*parts):
            for outcome in part:
                outcomes[outcome.key] = outcome
                self.flights.errors.remember(outcome)
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
                if self.committer.unpublished:
                    await self.committer.publish()

        tasks = [asyncio.create_task(self.membership.keep_fresh(refresh_s)), asyncio.create_task(publish())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """End the background work of requests; the executor and the store belong to whoever made them."""
        await self.committer.close()

    # One source's way.

    def _here(self, wanted: dict[bytes, SourceItem], tokenizers: Sequence[bytes]) -> dict[bytes, Outcome]:
        """What this node can answer at once."""
        outcomes: dict[bytes, Outcome] = {}
        for key in wanted:
            error = self.flights.errors.get(key)
            if error is not None:
                self.stats.errors_remembered += 1
                outcomes[key] = error
        for key, (manifest, units) in self.flights.complete([key for key in wanted if key not in outcomes]).items():
            if all(self.committer.has_shard(tokenizer, unit) for tokenizer in tokenizers for unit in units):
                self.stats.hits_local += 1
                outcomes[key] = Outcome(key, manifest)
        return outcomes

    async def _through(
        self,
        nodes: tuple[str, ...],
        sources: Sequence[SourceItem],
        tokenizers: Sequence[bytes],
        share_end: float,
        end: float,
    ) -> list[Outcome]:
        """Sources that belong to `nodes`: ask the first, then the next, then compile here."""
        outcomes: dict[bytes, Outcome] = {}
        left = list(sources)
        for position, node in enumerate(nodes):
            left = [source for source in left if source.key not in outcomes]
            if not left:
                break
            if node == self.membership.me:
                for outcome in await self.flights.compile_owned(left, tokenizers, _left(end)):
                    outcomes[outcome.key] = outcome
                break
            share = _left(share_end) / (1 if position + 1 == len(nodes) else 1.5)
            if share <= 0:
                break
            for outcome in await self._ask(node, left, tokenizers, share):
                outcomes[outcome.key] = outcome
        left = [source for source in left if source.key not in outcomes]
        if left and _left(end) > 0:
            for outcome in await self.flights.compile_alone(left, tokenizers, end):
                outcomes[outcome.key] = outcome
        return list(outcomes.values())

    async def _ask(
        self, node: str, sources: Sequence[SourceItem], tokenizers: Sequence[bytes], share_s: float
    ) -> list[Outcome]:
        """Have a node compile, and bring what came of it; only outcomes that can be used here."""
        end = asyncio.get_running_loop().time() + share_s
        try:
            answers = await self.membership.ask(
                node,
                lambda peer: peer.compile(sources, tokenizers=tokenizers, deadline_s=share_s),
                share_s + ANSWER_S,
                probe=False,
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
        absent = await self._bring(node, units, tokenizers, end)
        good = [o for o in good if not absent or not absent.intersection(units.get(o.key, ()))]
        manifests = [Record(Key(Kind.MANIFEST, o.key), o.manifest) for o in good if o.manifest is not None]
        if manifests:
            try:
                await self.store.put(manifests)
            except GramaryError:
                return [o for o in good if o.manifest is None]
        return good

    async def _bring(
        self, node: str, sources: dict[bytes, list[bytes]], tokenizers: Sequence[bytes], end: float
    ) -> set[bytes]:
        """Bring the units and entries of sources that `node` compiled; returns units that nobody has."""
        units = list(dict.fromkeys(unit for digests in sources.values() for unit in digests))
        missing = self.store.missing([Key(Kind.UNIT, unit) for unit in units])
        found = await self.fetcher.records(missing, end=end, hint=node) if missing else {}
        for tokenizer in tokenizers:
            needed = [unit for unit in units if not self.committer.has_shard(tokenizer, unit)]
            if needed:
                await self.fetcher.shards(tokenizer, needed, end=end, only=node)
        absent = {key.digest for key in missing if key not in found}
        self.committer.know_shards([unit for unit in units if unit not in absent], tokenizers)
        return absent


def _left(end: float) -> float:
    return end - asyncio.get_running_loop().time()
