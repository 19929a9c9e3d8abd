"""The owner's table of claims: who builds what right now.

                claim                    complete, or it is stored
      (free) ----------> HELD by holder -----------> DONE (the store has it, or the table remembers)
        ^                  |   |  ^
        |  release, expiry |   +--+ claim by the same holder renews
        +------------------+

Everything runs on one event loop and by its clock (`loop.time()`, monotonic): the wall clock plays no part.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from gramary.cluster.peer import Claim, ClaimState

LEAST_LEASE_S, MOST_LEASE_S = 0.05, 120.0
FULL_RETRY_S = 0.1
"""What a claimant is told to wait while the table is full."""


@dataclass(slots=True)
class _Lease:
    holder: str
    until: float
    waiters: set[asyncio.Future[None]] = field(default_factory=set)


@dataclass(slots=True)
class ClaimStats:
    """Counters since the start."""

    granted: int = 0
    held: int = 0
    done: int = 0
    expired: int = 0
    released: int = 0
    refused_full: int = 0


class ClaimTable:
    """`stored(digests)` names those that the owner's store has: they are DONE whatever the table says."""

    def __init__(
        self,
        stored: Callable[[Sequence[bytes]], Collection[bytes]],
        *,
        most_leases: int = 1 << 17,
        most_remembered: int = 1 << 17,
        most_waiters: int = 1 << 16,
    ) -> None:
        self._stored = stored
        self._leases: dict[bytes, _Lease] = {}
        self._finished: OrderedDict[bytes, None] = OrderedDict()
        self._most_leases, self._most_remembered, self._most_waiters = most_leases, most_remembered, most_waiters
        self._waiters = 0
        self.stats = ClaimStats()

    def __len__(self) -> int:
        return len(self._leases)

    def claim(self, digests: Sequence[bytes], holder: str, lease_s: float) -> list[Claim]:
        """Grant what is free; see `Peer.claim`."""
        now = asyncio.get_running_loop().time()
        until = now + min(max(lease_s, LEAST_LEASE_S), MOST_LEASE_S)
        stored = self._stored(digests)
        answers: list[Claim] = []
        for digest in digests:
            answer = self._state(digest, stored, now)
            lease = self._leases.get(digest)
            if answer is None or (lease is not None and lease.holder == holder):
                if lease is None and len(self._leases) >= self._most_leases:
                    self._expire(now)
                if lease is None and len(self._leases) >= self._most_leases:
                    self.stats.refused_full += 1
                    answers.append(Claim(ClaimState.HELD, "", FULL_RETRY_S))
                    continue
                if lease is None:
                    self._leases[digest] = _Lease(holder, until)
                else:
                    lease.until = until
                self.stats.granted += lease is None
                answer = Claim(ClaimState.GRANTED, holder, until - now)
            elif answer.state is ClaimState.HELD:
                self.stats.held += 1
            else:
                self.stats.done += 1
            answers.append(answer)
        return answers

    def release(self, digests: Sequence[bytes], holder: str) -> None:
        """Free what `holder` holds and wake whoever waits for it."""
        for digest in digests:
            lease = self._leases.get(digest)
            if lease is not None and lease.holder == holder:
                self.stats.released += 1
                self._end(digest)

    def complete(self, digests: Sequence[bytes], holder: str) -> None:
        """`holder` has built these and they are stored.

        A holder whose lease ran out may still complete: what it built is what anybody builds. Who holds no lease
        cannot end that of another.
        """
        stored = self._stored(digests)
        for digest in digests:
            lease = self._leases.get(digest)
            if lease is not None and lease.holder != holder and digest not in stored:
                continue
            if lease is not None:
                self._end(digest)
            if digest in stored:  # the store remembers; and when it evicts, the digest is free again
                continue
            self._finished[digest] = None
            self._finished.move_to_end(digest)
            if len(self._finished) > self._most_remembered:
                self._finished.popitem(last=False)

    def forget(self, digests: Sequence[bytes]) -> None:
        """No longer remember these as done; what the store has stays done."""
        for digest in digests:
            self._finished.pop(digest, None)

    def states(self, digests: Sequence[bytes]) -> list[Claim | None]:
        """What became of each; `None`: free."""
        now = asyncio.get_running_loop().time()
        stored = self._stored(digests)
        return [self._state(digest, stored, now) for digest in digests]

    async def wait(self, digests: Sequence[bytes], timeout_s: float) -> list[Claim]:
        """See `Peer.wait`. What is free is reported as HELD by nobody for 0 s: claim it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + min(max(timeout_s, 0.0), MOST_LEASE_S)
        while True:
            now = loop.time()
            states = self.states(digests)
            held = [d for d, s in zip(digests, states, strict=True) if s is not None and s.state is ClaimState.HELD]
            if not held or now >= end or self._waiters >= self._most_waiters:
                return [state or Claim(ClaimState.HELD) for state in states]
            soonest = min(self._leases[digest].until for digest in held)
            future: asyncio.Future[None] = loop.create_future()
            for digest in held:
                self._leases[digest].waiters.add(future)
            self._waiters += 1
            try:
                await asyncio.wait([future], timeout=max(min(end, soonest) - now, 0.0) + 1e-4)
            finally:
                self._waiters -= 1
                for digest in held:
                    lease = self._leases.get(digest)
                    if lease is not None:
                        lease.waiters.discard(future)

    def _state(self, digest: bytes, stored: Collection[bytes], now: float) -> Claim | None:
        lease = self._leases.get(digest)
        if digest in stored:
            if lease is not None:
                self._end(digest)
            return Claim(ClaimState.DONE)
        if lease is not None and lease.until <= now:
            self.stats.expired += 1
            self._end(digest)
            lease = None
        if lease is not None:
            return Claim(ClaimState.HELD, lease.holder, lease.until - now)
        return Claim(ClaimState.DONE) if digest in self._finished else None

    def _end(self, digest: bytes) -> None:
        for waiter in self._leases.pop(digest).waiters:
            if not waiter.done():
                waiter.set_result(None)

    def expire(self) -> None:
        """Forget leases whose holders went away; they are granted anew in any case."""
        self._expire(asyncio.get_running_loop().time())

    def _expire(self, now: float) -> None:
        for digest in [digest for digest, lease in self._leases.items() if lease.until <= now]:
            self.stats.expired += 1
            self._end(digest)
