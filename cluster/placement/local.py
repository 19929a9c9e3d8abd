"""What this node answers when a node, itself included, asks: the server side of `Peer`, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from gramary.cluster.peer import Claim, Outcome, SourceItem
from gramary.cluster.placement.leases import ClaimTable
from gramary.cluster.placement.settings import LocalStore
from gramary.cluster.records import Key, Kind, Record

CompileOwned = Callable[[Sequence[SourceItem], float], Awaitable[list[Outcome]]]


class LocalPeer:
    """A `Peer` over this node's store and claim table. The transport's server calls it for every request that it has
    authenticated and whose records it has verified.
    """

    def __init__(self, name: str, store: LocalStore, compile_owned: CompileOwned) -> None:
        self._name, self._store, self._compile = name, store, compile_owned
        self.claims = ClaimTable(self._stored)

    def _stored(self, digests: Sequence[bytes]) -> set[bytes]:
        missing = {key.digest for key in self._store.missing([Key(Kind.UNIT, digest) for digest in digests])}
        return set(digests) - missing

    @property
    def name(self) -> str:
        return self._name

    async def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        return self._store.missing(keys)

    async def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return self._store.get(keys)

    async def put(self, records: Sequence[Record]) -> None:
        await self._store.put(records)

    async def shards(self, tokenizer: bytes, units: Sequence[bytes], *, after: bytes = b"") -> AsyncIterator[Record]:
        passed = not after
        for unit in units:
            shard = self._store.shard(tokenizer, unit)
            if not passed and unit == Key.decode(after).digest:
                passed = True
                shard = [record for record in shard if record.key.encode() > after]
            if passed:
                for record in shard:
                    yield record

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        return self.claims.claim(digests, holder, lease_s)

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        self.claims.release(digests, holder)

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        self.claims.complete(digests, holder)

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        return await self.claims.wait(digests, timeout_s)

    async def compile(self, sources: Sequence[SourceItem], *, deadline_s: float) -> list[Outcome]:
        return await self._compile(sources, deadline_s)
