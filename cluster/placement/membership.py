"""Who is in the cluster, and who of them can be asked.

Ownership follows the *list* of members alone, which all nodes share; health decides only whom to ask among a digest's
owners. So nodes that see different failures still agree on where things belong.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

from gramary.cluster.peer import Peer, PeerError
from gramary.cluster.placement.rendezvous import Ring
from gramary.compiler.errors import GramaryError

T = TypeVar("T")

MOST_MEMBERS = 10_000
FAIR_S = 0.1
"""A peer that was given less than this and did not answer is not held to have failed."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node: its name (what is hashed), where it listens, and how much it owns."""

    name: str
    address: str
    weight: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Member:
        """`ADDRESS`, `NAME=ADDRESS`, either with `*WEIGHT` behind it.

        >>> Member.parse("a=10.0.0.1:7070*2")
        Member(name='a', address='10.0.0.1:7070', weight=2.0)
        """
        text, star, weight = text.strip().partition("*")
        name, _, address = text.rpartition("=")
        if not address or any(c.isspace() for c in text):
            raise MembershipError(f"{text!r} is no member: write ADDRESS, NAME=ADDRESS or NAME=ADDRESS*WEIGHT")
        try:
            number = float(weight) if star else 1.0
        except ValueError:
            raise MembershipError(f"{weight!r} is no weight of a member: write a positive number") from None
        if not 0 < number < 1e9:
            raise MembershipError(f"the weight of member {name or address} is {number}; it must be positive")
        return cls(name or address, address, number)


class MembershipError(GramaryError):
    """The list of members cannot be read."""


class Source(Protocol):
    """Where the list of members comes from."""

    async def members(self) -> Sequence[Member]:
        """The list now. Raises `MembershipError` or `OSError`: then the last list goes on being used."""


class StaticSource:
    """A list that never changes."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = tuple(members)

    async def members(self) -> Sequence[Member]:
        return self._members


class FileSource:
    """A file with one member a line (`Member.parse`); empty lines and what follows a `#` are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def members(self) -> Sequence[Member]:
        text = await asyncio.get_running_loop().run_in_executor(None, self._path.read_text)
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return [Member.parse(line) for line in lines if line]


class DnsSource:
    """Every address of a host name (a headless service of Kubernetes); members are named by their addresses."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def members(self) -> Sequence[Member]:
        found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        hosts = sorted({str(info[4][0]) for info in found})
        return [Member(a, a) for a in (f"[{h}]:{self._port}" if ":" in h else f"{h}:{self._port}" for h in hosts)]


class Circuit(Enum):
    CLOSED = "closed"
    """It answers."""
    OPEN = "open"
    """It failed several times in a row and is left alone for a while."""
    HALF_OPEN = "half-open"
    """One call is let through to see."""


class Breaker:
    """The circuit breaker of one peer, by a monotonic clock."""

    def __init__(self, *, failures: int = 3, cool_down_s: float = 1.0, most_cool_down_s: float = 15.0) -> None:
        """`failures` in a row open it, for `cool_down_s`, doubled each time that the trial call fails."""
        self._most_failures, self._first_s, self._most_s = failures, cool_down_s, most_cool_down_s
        self._failures = 0
        self._cool_down_s = cool_down_s
        self._open_until: float | None = None
        self._trial_until = 0.0

    def state(self, now: float) -> Circuit:
        if self._open_until is None:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self._open_until else Circuit.HALF_OPEN

    def permits(self, now: float) -> bool:
        """Whether a call may be made now."""
        state = self.state(now)
        return state is Circuit.CLOSED or (state is Circuit.HALF_OPEN and now >= self._trial_until)

    def begin(self, now: float) -> bool:
        """Like `permits`, and takes the trial of a half-open circuit."""
        if not self.permits(now):
            return False
        if self._open_until is not None:
            self._trial_until = now + self._cool_down_s
        return True

    def succeeded(self) -> None:
        self._failures, self._open_until, self._cool_down_s, self._trial_until = 0, None, self._first_s, 0.0

    def failed(self, now: float) -> None:
        self._failures += 1
        if self._open_until is not None:
            self._cool_down_s = min(self._cool_down_s * 2, self._most_s)
            self._open_until = now + self._cool_down_s
        elif self._failures >= self._most_failures:
            self._open_until = now + self._cool_down_s
        self._trial_until = 0.0


class Latency:
    """A running estimate of one peer's 95th percentile, in seconds: up a step when exceeded, down 1/19 of one when
    not.
    """

    def __init__(self, first_s: float = 0.02) -> None:
        self.p95_s = first_s

    def observe(self, seconds: float) -> None:
        step = 0.05 * self.p95_s
        self.p95_s = max(1e-4, self.p95_s + (0.95 * step if seconds > self.p95_s else -0.05 * step))


@dataclass(slots=True)
class _Known:
    peer: Peer
    breaker: Breaker
    latency: Latency


class Membership:
    """The members, the peers to ask, and their health.

    `me`: the name of this node, for which `serve_locally` names who answers. `connect` makes the peer of another member
    when it is first asked something, `disconnect` is told when it left or moved.
    """

    def __init__(
        self,
        me: str,
        source: Source,
        connect: Callable[[Member], Peer],
        *,
        disconnect: Callable[[Peer], Awaitable[None]] | None = None,
        breaker: Callable[[], Breaker] = Breaker,
    ) -> None:
        self.me = me
        self._source, self._connect, self._disconnect, self._breaker = source, connect, disconnect, breaker
        self._members: dict[str, Member] = {}
        self._known: dict[str, _Known] = {}
        """Of the members that were ever asked something."""
        self._local: Peer | None = None
        self.ring = Ring([me])
        self.epoch = 0
        """Counts changes of the list."""
        self.refresh_failures = 0

    def serve_locally(self, peer: Peer) -> None:
        """`peer` answers what this node asks of itself."""
        self._local = peer

    async def refresh(self) -> bool:
        """Read the list again; whether it changed. A list that cannot be read, or is empty, changes nothing."""
        try:
            listed = list(await self._source.members())
        except (OSError, GramaryError, UnicodeDecodeError):
            self.refresh_failures += 1
            return False
        if not listed or len(listed) > MOST_MEMBERS:
            self.refresh_failures += 1
            return False
        members = {member.name: member for member in listed}
        members.setdefault(self.me, Member(self.me, ""))
        if members == self._members:
            return False
        for name in [name for name in self._known if members.get(name) != self._members.get(name)]:
            peer = self._known.pop(name).peer
            if self._disconnect is not None:
                with contextlib.suppress(Exception):
                    await self._disconnect(peer)
        self._members = members
        self.ring = Ring(members, {name: member.weight for name, member in members.items()})
        self.epoch += 1
        return True

    async def keep_fresh(self, every_s: float = 5.0) -> None:
        """Refresh for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(every_s)

    def owners(self, digest: bytes, k: int = 2) -> tuple[str, ...]:
        """The nodes that a digest belongs to, the owner first: by the list alone."""
        return self.ring.owners(digest, k)

    def rank(self, digests: Iterable[bytes]) -> None:
        """These will be asked about (`owners`, `reachable`): see `Ring.rank`."""
        self.ring.rank(digests)

    def reachable(self, digest: bytes, k: int = 2) -> list[str]:
        """The first `k` nodes in the order of a digest that are not known to be down."""
        if len(self.ring) == 1:
            return [self.me]
        first = [name for name in self.ring.owners(digest, k) if self.can_ask(name)]
        if len(first) == min(k, len(self.ring)):
            return first
        wider = [name for name in self.ring.owners(digest, k + 6) if self.can_ask(name)]
        return wider[:k]

    def can_ask(self, name: str) -> bool:
        if name == self.me:
            return True
        known = self._known.get(name)
        if known is None:
            return name in self._members
        return known.breaker.permits(asyncio.get_running_loop().time())

    def circuits(self, now: float | None = None) -> Mapping[str, Circuit]:
        """The state of the circuit of every peer that was ever asked something, for metrics.

        `now`: the loop's time, for who asks from another thread.
        """
        now = asyncio.get_running_loop().time() if now is None else now
        return {name: known.breaker.state(now) for name, known in list(self._known.items())}

    def hedge_after_s(self, name: str) -> float:
        """After how long without an answer somebody else should be asked too."""
        known = self._known.get(name)
        return 0.05 if known is None else min(max(known.latency.p95_s, 0.002), 1.0)

    def _of(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            if name not in self._members:
                raise PeerError(name, "is no member")
            known = _Known(self._connect(self._members[name]), self._breaker(), Latency())
            self._known[name] = known
        return known

    async def ask(self, name: str, call: Callable[[Peer], Awaitable[T]], timeout_s: float, *, probe: bool = True) -> T:
        """Make one call to a node within `timeout_s` and take note of how it went. Raises `PeerError` only.

        `probe`: the call's duration says something about the peer's speed (calls that wait on purpose do not).
        """
        loop = asyncio.get_running_loop()
        if name == self.me:
            if self._local is None:
                raise PeerError(name, "this node does not serve itself", retryable=False)
            known = None
            peer = self._local
        else:
            known = self._of(name)
            if not known.breaker.begin(loop.time()):
                raise PeerError(name, "did not answer lately and is left alone for a while")
            peer = known.peer
        began = loop.time()
        try:
            result = await asyncio.wait_for(call(peer), max(timeout_s, 0.0))
        except PeerError as error:
            if known is not None:
                if error.retryable:
                    known.breaker.failed(loop.time())
                else:
                    known.breaker.succeeded()  # it answered, if only to refuse
            raise
        except (asyncio.TimeoutError, OSError) as error:
            if known is not None and timeout_s >= FAIR_S:
                known.breaker.failed(loop.time())
                if probe:
                    known.latency.observe(loop.time() - began)
            raise PeerError(name, str(error) or f"did not answer within {timeout_s:.3f} s") from error
        if known is not None:
            known.breaker.succeeded()
            if probe:
                known.latency.observe(loop.time() - began)
        return result
