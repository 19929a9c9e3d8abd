"""What the server serves: the node, as the wire sees it.

The store's methods are plain functions: they are called from the event loop when they are small and from a thread
otherwise, several at once. They must not block on anything but the disk. The others are coroutines on the server's
loop, and are cancelled when the client goes away or its deadline passes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gramary.cluster.peer import Claim, Outcome, SourceItem
from gramary.cluster.records import Key, Record
from gramary.cluster.stats import NodeStats, SlowUnit, TokenizerFigures
from gramary.cluster.wire.feed import Feed

__all__ = [
    "CompileEvent",
    "CompileJob",
    "Finished",
    "Node",
    "NodeInfo",
    "NodeStats",
    "Progress",
    "SlowUnit",
    "Stage",
    "TokenizerFigures",
    "TokenizerFormat",
]


class Stage(Enum):
    """What is being done for most of a job's open sources."""

    QUEUED = 1
    LOOKUP = 2
    LOWERING = 3
    ENTRIES = 4
    COMMIT = 5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a compile job is; counts never go down."""

    stage: Stage
    done: int = 0
    total: int = 0
    known: int = 0
    """Sources of `done` that nobody had to compile."""
    units_built: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """One source of a job is done: which, counted from 0, and what became of it."""

    index: int
    outcome: Outcome


CompileEvent = Progress | Finished


@dataclass(frozen=True, slots=True)
class CompileJob:
    """Sources to compile. A source with an empty key is given its key by the node."""

    sources: Sequence[SourceItem]
    tokenizers: Sequence[bytes]
    deadline_s: float
    """Seconds that the caller still waits."""
    local_only: bool
    """Compile here; do not hand on to owners (the caller is a node that knows the owner)."""


class TokenizerFormat(Enum):
    """What a tokenizer's content is."""

    PREPARED = 1
    HUGGINGFACE = 2
    TEKKEN = 3


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node is. Does not change while it runs."""

    name: str
    software_version: str
    format_version: int
    stored_versions: Sequence[int] = ()
    """Format versions that it stores and serves; none means any."""
    source_kinds: Sequence[str] = ("json_schema", "regex")


class Node(Protocol):
    """What a node does for those who call it."""

    @property
    def info(self) -> NodeInfo:
        """What it is."""

    @property
    def feed(self) -> Feed:
        """News of what it commits; the node publishes, the server passes on."""

    def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        """Those of `keys` that the store lacks, in order."""

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records of `keys`, in order; `None` where there is none. Counts as use."""

    def put(self, records: Sequence[Record], *, origin: str) -> None:
        """Commit records that were checked; idempotent. `origin`: who sent them."""

    def shard_page(self, tokenizer: bytes, unit: bytes, *, version: int, after: bytes, most_bytes: int) -> list[Record]:
        """The next entries of a shard, in order of their encoded keys, from the first above `after` on.

        About `most_bytes` of payloads, at least one record; none at the end. One short look at the store each.
        """

    def lookup(self, sources: Sequence[bytes], *, version: int) -> list[Record | None]:
        """Manifests of source keys, in order, of which every unit is in the store. Counts as use of all of it."""

    def compile(self, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
        """Do a job; every source gets one `Finished`. It may go on after the last of them, with what follows behind the
        answers; who does not care for that stops listening. Raises a `GramaryError` if the job as a whole cannot be
        done.
        """

    async def register_tokenizer(self, fingerprint: bytes, form: TokenizerFormat, data: bytes) -> None:
        """Make a tokenizer known; raises `TokenizerError` if the content has another fingerprint, or is none."""

    def has_tokenizer(self, fingerprint: bytes) -> bool:
        """Whether a tokenizer is known."""

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        """See `gramary.cluster.peer.Peer.claim`, as the owner."""

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        """See `Peer.release`."""

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        """See `Peer.complete`."""

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        """See `Peer.wait`."""

    def stats(self) -> NodeStats:
        """Its figures."""
