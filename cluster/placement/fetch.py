"""Bringing records from the nodes that have them: hedged, and remembering for a while who has not.

What arrives is checked (`Verifier`) and put in the local store, so that it is asked for once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gramary.cluster.peer import Peer, PeerError
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings, Verifier
from gramary.cluster.records import Key, Kind, Record
from gramary.compiler.errors import GramaryError

T = TypeVar("T")

MOST_ABSENT = 1 << 16
MOST_SHARD_RECORDS = 1 << 18
"""Entries taken from one stream; a peer that sends more is not believed to be honest."""


class Fetcher:
    """Reads through to other nodes."""

    def __init__(
        self,
        membership: Membership,
        store: LocalStore,
        verify: Verifier,
        settings: Settings,
        stats: PlacementStats,
    ) -> None:
        self._membership, self._store, self._verify = membership, store, verify
        self._settings, self._stats = settings, stats
        self._absent: OrderedDict[tuple[str, Key], float] = OrderedDict()

    async def records(
        self, keys: Sequence[Key], *, end: float, hint: str | None = None, remember_absent: bool = False
    ) -> dict[Key, Record]:
        """Those of `keys` that other nodes have, by `end` (loop time); now in the local store too.

        `hint`: a node that is likely to have all of them. `remember_absent`: do not ask again those who lacked a key a
        moment ago, and remember who lacks one now.
        """
        found: dict[Key, Record] = {}
        if hint is not None and hint != self._membership.me:
            found |= await self._round({(hint,): list(keys)}, end, remember_absent)
        # Decided once: whom to ask next must not depend on who was found to be down meanwhile.
        candidates = {key: self._candidates(key, remember_absent) for key in keys if key not in found}
        for skip in range(self._settings.replicas):
            groups: dict[tuple[str, ...], list[Key]] = defaultdict(list)
            for key in keys:
                if key not in found:
                    nodes = candidates[key][skip:]
                    if nodes:
                        groups[tuple(nodes[:2])].append(key)
            if not groups:
                break
            found |= await self._round(groups, end, remember_absent)
        if found:
            await self._keep(list(found.values()))
        return found

    async def shards(self, tokenizer: bytes, units: Sequence[bytes], *, end: float) -> dict[bytes, list[Record]]:
        """The mask entries that other nodes have of `units`; now in the local store too.

        Each unit's owner is asked, and the replica for those of which the owner has none.
        """
        found: dict[bytes, list[Record]] = {}
        replicas = self._settings.replicas
        orders = {unit: self._membership.reachable(unit, replicas) for unit in units}  # decided once, as above
        for skip in range(replicas):
            groups: dict[str, list[bytes]] = defaultdict(list)
            for unit in units:
                if unit not in found:
                    for node in orders[unit][skip : skip + 1]:
                        if node != self._membership.me:
                            groups[node].append(unit)
            answers = await asyncio.gather(
                *(self._shards_of(node, tokenizer, wanted, end) for node, wanted in groups.items())
            )
            for records in answers:
                for record in records:
                    found.setdefault(record.key.digest, []).append(record)
        if found:
            await self._keep([record for shard in found.values() for record in shard])
        return found

    async def _keep(self, records: list[Record]) -> None:
        """Store what was brought. A store that cannot take it (a full disk) fails nobody who only wants to read."""
        self._stats.fetched += len(records)
        try:
            await self._store.put(records)
        except GramaryError:
            self._stats.puts_refused += len(records)

    async def _shards_of(self, node: str, tokenizer: bytes, units: Sequence[bytes], end: float) -> list[Record]:
        async def collect(peer: Peer) -> list[Record]:
            out = []
            async for record in peer.shards(tokenizer, units):
                out.append(record)
                if len(out) > MOST_SHARD_RECORDS:
                    raise PeerError(node, f"sent more than {MOST_SHARD_RECORDS} mask entries", retryable=False)
            return out

        try:
            records = await self._membership.ask(node, collect, self._left(end), probe=False)
        except PeerError:
            return []
        asked = set(units)
        fit = [
            r for r in records if r.key.kind is Kind.ENTRY and r.key.tokenizer == tokenizer and r.key.digest in asked
        ]
        return await self._believed(node, fit, len(records))

    async def _believed(self, node: str, records: list[Record], received: int) -> list[Record]:
        good = await self._verify(node, records) if records else []
        self._stats.refused_records += received - len(good)
        return good

    def _left(self, end: float) -> float:
        return min(self._settings.call_s, end - asyncio.get_running_loop().time())

    def _candidates(self, key: Key, remember_absent: bool) -> list[str]:
        nodes = [n for n in self._membership.reachable(key.digest, self._settings.replicas) if n != self._membership.me]
        if not remember_absent:
            return nodes
        now = asyncio.get_running_loop().time()
        return [node for node in nodes if self._absent.get((node, key), 0.0) <= now]

    async def _round(
        self, groups: dict[tuple[str, ...], list[Key]], end: float, remember_absent: bool
    ) -> dict[Key, Record]:
        answers = await asyncio.gather(*(self._read(nodes, keys, end) for nodes, keys in groups.items()))
        found: dict[Key, Record] = {}
        now = asyncio.get_running_loop().time()
        for (node, records), keys in zip(answers, groups.values(), strict=True):
            if not node:
                continue
            sent = [record for record in records if record is not None]
            fit = [r for r, key in zip(records, keys, strict=False) if r is not None and r.key == key]
            good = await self._believed(node, fit, len(sent))
            found |= {record.key: record for record in good}
            if remember_absent:
                for key in keys:
                    if key not in found:
                        self._absent[node, key] = now + self._settings.absent_ttl_s
                        self._absent.move_to_end((node, key))
                while len(self._absent) > MOST_ABSENT:
                    self._absent.popitem(last=False)
        return found

    async def _read(self, nodes: tuple[str, ...], keys: list[Key], end: float) -> tuple[str, list[Record | None]]:
        """Ask the first node, and the second too if the first is slow or fails; the name of who answered, or ""."""
        try:
            return await self.hedged(nodes, lambda peer: peer.read(keys), end)
        except PeerError:
            return "", []

    async def hedged(self, nodes: tuple[str, ...], call: Callable[[Peer], Awaitable[T]], end: float) -> tuple[str, T]:
        """The first good answer of `nodes`, each asked when those before it failed or are slower than they use to be.

        Raises `PeerError` if none gives one.
        """
        tasks: dict[asyncio.Task[T], str] = {}
        error = PeerError("", "nobody can be asked")
        left = list(nodes)
        try:
            while left or tasks:
                delay = None
                if left:
                    name = left.pop(0)
                    if tasks:
                        self._stats.hedges += 1
                    tasks[asyncio.ensure_future(self._membership.ask(name, call, self._left(end)))] = name
                    delay = self._membership.hedge_after_s(name) if left else None
                done, _ = await asyncio.wait(tasks, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    name = tasks.pop(task)
                    failure = task.exception()
                    if failure is None:
                        return name, task.result()
                    if not isinstance(failure, PeerError):
                        raise failure
                    error = failure
            raise error
        finally:
            for task in tasks:
                if not task.cancel() and not task.cancelled():
                    task.exception()
