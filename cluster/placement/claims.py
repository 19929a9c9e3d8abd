"""The claimant's side of claims: ask the owners, build what was granted, wait for what others hold.

A node first builds everything that it was granted and only then waits for what others hold, so nobody ever waits for
somebody who waits. Whatever the number of claims, an owner gets one message of each kind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gramary.cluster.peer import Claim, ClaimState, PeerError
from gramary.cluster.placement.membership import Membership
from gramary.cluster.placement.settings import PlacementStats, Settings, left_of

Build = Callable[[Mapping[bytes, str]], Awaitable[set[bytes]]]
"""Builds what was granted (name -> owner) and returns the names of what it committed."""


class Claims:
    """Settles claims at other nodes, and at this one. One per node."""

    def __init__(self, membership: Membership, settings: Settings, stats: PlacementStats) -> None:
        self._membership, self._settings, self._stats = membership, settings, stats
        self._background: set[asyncio.Task[None]] = set()
        self._claimants = 0

    async def settle(self, names: Mapping[bytes, bytes], build: Build, end: float) -> set[bytes]:
        """Settle the claims `names` (name -> unit, at whose owner it is claimed); returns those not settled by `end`
        (loop time).
        """
        self._claimants += 1
        holder = f"{self._membership.me}#{self._claimants}"
        pending = dict(names)
        down: set[str] = set()
        left: set[bytes] = set()
        once_held: set[bytes] = set()
        while pending and left_of(end) > 0:
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
                min(self._settings.call_s, left_of(end)),
            )
        except PeerError:
            return None
        return claims if len(claims) == len(names) else None

    async def _wait(self, node: str, claims: Mapping[bytes, Claim], end: float) -> dict[bytes, Claim] | None:
        """Wait until none of these claims is held, or the first leases must have run out."""
        names = [name for name, claim in claims.items() if claim.holder]
        if not names:  # the owner's table is full
            await asyncio.sleep(min(max(0.01, *(c.remaining_s for c in claims.values())), max(0.0, left_of(end))))
            return {}
        most_s = max(0.0, min(max(claims[name].remaining_s for name in names) + 0.01, left_of(end)))
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

    async def _under_lease(self, granted: Mapping[bytes, str], holder: str, build: Build) -> set[bytes]:
        """Build what was granted while renewing its leases. Then its owners are told, which nobody waits for here: what
        is stored with them is done whether they hear of it or not, and the rest is free when its lease runs out.
        """
        renewing = asyncio.create_task(self._renew(granted, holder))
        committed: set[bytes] = set()
        try:
            committed = await build(granted)
        finally:
            renewing.cancel()
            for node, names in _by_node(granted).items():
                self._later(self._tell(node, holder, names, committed))
        return committed

    async def _renew(self, granted: Mapping[bytes, str], holder: str) -> None:
        groups = _by_node(granted)
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            calls = (self._claim(node, names, holder, float("inf")) for node, names in groups.items())
            await asyncio.gather(*calls)

    async def _tell(self, node: str, holder: str, names: Sequence[bytes], committed: set[bytes]) -> None:
        """Complete what was committed, release the rest."""
        done = [name for name in names if name in committed]
        back = [name for name in names if name not in committed]
        with contextlib.suppress(PeerError):
            if done:
                await self._membership.ask(node, lambda p: p.complete(done, holder=holder), self._settings.call_s)
            if back:
                await self._membership.ask(node, lambda p: p.release(back, holder=holder), self._settings.call_s)

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Give up telling others of what ended."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


def _by_node(granted: Mapping[bytes, str]) -> dict[str, list[bytes]]:
    groups: dict[str, list[bytes]] = defaultdict(list)
    for name, node in granted.items():
        groups[node].append(name)
    return groups
