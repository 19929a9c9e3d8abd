"""What placement can be told, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gramary.cluster.executor.base import WorkLimits
from gramary.cluster.records import Key, Record


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are in seconds."""

    replicas: int = 2
    """Nodes that keep every unit, entry and manifest."""
    lease_s: float = 5.0
    """How long a claim is held without being renewed: how long a take-over takes when a builder dies."""
    call_s: float = 2.0
    """The most that one control call may take."""
    cluster_share: float = 0.6
    """The share of a request's time that is spent on asking others; then this node compiles by itself."""
    linger_s: float = 0.05
    """Sources of one request that are compiled after this long are committed apart from the first ones."""
    group: int = 256
    """Sources that are lowered and committed together."""
    most_groups: int = 16
    """Groups at work at once."""
    min_cost_us: float = 100.0
    """Mask entries that are cheaper to build than this are left to first use."""
    gather_s: float = 0.05
    """How long mask entries that are wanted are gathered, to be asked for, claimed and built together."""
    entries_s: float = 30.0
    """How long the entries of what was gathered may take."""
    error_ttl_s: float = 60.0
    """How long a source's typed error is remembered."""
    absent_ttl_s: float = 1.0
    """How long it is remembered that a node lacks a key."""
    limits: WorkLimits = field(default_factory=WorkLimits)


@dataclass(slots=True)
class PlacementStats:
    """Counters since the start. Without faults `units_compiled`, summed over the nodes, is the number of distinct units
    that the cluster has stored.
    """

    requests: int = 0
    sources: int = 0
    hits_local: int = 0
    """Sources that this node's store answered."""
    hits_owner: int = 0
    """Sources that their owner had compiled already, or was just compiling for somebody else."""
    sources_lowered: int = 0
    units_compiled: int = 0
    """Granted claims of units that were built and committed here."""
    shards_compiled: int = 0
    """Granted claims of a unit's entries for a tokenizer that were built and committed here."""
    shards_empty: int = 0
    """The same, where no entry was worth building."""
    units_repaired: int = 0
    """Units that their owner lacked and its replica had: put back instead of compiled."""
    takeovers: int = 0
    """Claims that were granted after somebody else had held them and not completed."""
    flights_joined: int = 0
    """Sources that waited for a compile of the same source that was under way."""
    fallbacks: int = 0
    """Sources that this node compiled by itself because the cluster did not answer in its share of the time."""
    units_unclaimed: int = 0
    """Units stored here without a claim, since no owner could be asked; published later."""
    units_published: int = 0
    puts_degraded: int = 0
    """Records that fewer than `replicas` nodes took."""
    puts_refused: int = 0
    """Records from other nodes that this node's store did not take."""
    entries_failed: int = 0
    """Sources whose mask entries could not be built; the workers build them on first use."""
    errors_remembered: int = 0
    """Sources answered with a typed error from memory."""
    hedges: int = 0
    fetched: int = 0
    """Records brought from other nodes."""
    refused_records: int = 0
    """Records from other nodes that were not what was asked, or did not pass the check."""


class LocalStore(Protocol):
    """This node's store, as placement uses it. Reads are quick and may be called on the event loop."""

    def get(self, keys: Sequence[Key]) -> list[Record | None]:
        """The records, in order."""

    def missing(self, keys: Sequence[Key]) -> list[Key]:
        """Those of `keys` that it does not have, in order."""

    def shard(self, tokenizer: bytes, unit: bytes) -> list[Record]:
        """Every mask entry it has of a unit, in order of their encoded keys."""

    def with_entries(self, tokenizer: bytes, units: Sequence[bytes]) -> set[bytes]:
        """Those of `units` of which it has any."""

    async def put(self, records: Sequence[Record]) -> None:
        """Store them; returns when they are committed. Raises `GramaryError` if they cannot be."""


def left_of(end: float) -> float:
    """Seconds until `end`, by the running loop's clock."""
    return end - asyncio.get_running_loop().time()


Verifier = Callable[[str, list[Record]], Awaitable[list[Record]]]
"""(node, records that it sent) -> those that can be believed."""


async def believe(node: str, records: list[Record]) -> list[Record]:
    """The verifier for when the transport has checked everything."""
    return records
