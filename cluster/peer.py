"""What one node asks of another: the seam between placement (which decides whom to ask) and transport (which asks).

`gramary.cluster.wire` implements it over gRPC, `gramary.cluster.placement` drives it, `tests/benchmarks/fleet.py`
implements it in memory with a simulated clock. All methods are coroutines, honour cancellation, and raise `PeerError`
when the peer cannot be asked; a peer's answer is data from outside and is checked by the caller's verifier before it
is believed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from gramary.cluster.records import Key, Record
from gramary.compiler.errors import GramaryError


class PeerError(GramaryError):
    """A peer could not be asked: not reachable, too slow, or it refused.

    `retryable`: trying again may help.
    """

    def __init__(self, peer: str, reason: str, *, retryable: bool = True) -> None:
        super().__init__(f"node {peer}: {reason}")
        self.peer = peer
        self.reason = reason
        self.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.peer, self.reason, self.retryable)


def _rebuilt(cls: type[PeerError], peer: str, reason: str, retryable: bool) -> PeerError:
    """From a pickle: what else a subclass has is left out."""
    return (
        cls(peer, reason, retryable=retryable)
        if cls.__init__ is PeerError.__init__
        else PeerError(peer, reason, retryable=retryable)
    )


class Packed:
    """A dataclass with slots that travels between processes: pickled as a call of its class. By default it would go
    through its fields by name, which takes ten times as long.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        names: tuple[str, ...] = type(self).__slots__
        return type(self), tuple(getattr(self, name) for name in names)


class ClaimState(Enum):
    GRANTED = "granted"
    """The caller holds the lease and is to build it."""
    HELD = "held"
    """Somebody else holds the lease: `holder`, for `remaining_s` more if it is not renewed."""
    DONE = "done"
    """It is built: `read` has it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to one claim."""

    state: ClaimState
    holder: str = ""
    remaining_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceItem(Packed):
    """One source to compile: what `gramary.cluster.kernel.Source` is made of. `options` is canonical JSON."""

    key: bytes
    kind: str
    options: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one source: a manifest, or the typed error as (class name, message, pointer, attributes)."""

    key: bytes
    manifest: bytes | None = None
    error: dict[str, str] = field(default_factory=dict)
    retryable: bool = False
    """The failure says nothing about the source (a worker died, a deadline passed): another try may succeed."""


class Peer(Protocol):
    """Another node of the cluster."""

    @property
    def name(self) -> str:
        """Its address or name; what rendezvous hashing hashes."""

    async def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        """Those of `keys` that it does not have, in order."""

    async def read(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records of `keys`, in order; `None` where it has none."""

    async def put(self, records: Sequence[Record]) -> None:
        """Store records there; idempotent. Returns when they are committed."""

    def shards(self, tokenizer: bytes, units: Sequence[bytes], *, after: bytes = b"") -> AsyncIterator[Record]:
        """Every mask entry it has of these units, units in the order given, entries in order of their encoded keys.

        `after`: the encoded key of the last record received, to resume a stream that broke.
        """

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        """Ask to build what `digests` (of units or sources) name; the peer is their owner. Claiming again renews."""

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        """Give leases back without having built."""

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        """Tell the owner that they are built and stored; whoever waits is woken."""

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        """Return as soon as none of `digests` is held by anybody, or at the time-out, with the state of each."""

    async def compile(self, sources: Sequence[SourceItem], *, deadline_s: float) -> list[Outcome]:
        """Have it compile sources that it owns; one outcome each, in order."""
