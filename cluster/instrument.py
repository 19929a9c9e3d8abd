"""Connects what the parts of a node count by themselves with its metrics.

Store, placement, executor and verifier keep plain counters of their own; they are read at a scrape and for
`gramary top`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.records import Kind

if TYPE_CHECKING:
    from gramary.cluster.credentials import Credentials
    from gramary.cluster.stats import TokenizerFigures
    from gramary.cluster.store.live import LiveStore
    from gramary.cluster.wire.server import WireServer
    from gramary.cluster.wire.verifier import Verifier


class PlacementCounts(Protocol):
    """What is read of placement's counters."""

    units_compiled: int
    units_unclaimed: int
    flights_joined: int
    takeovers: int
    sources_lowered: int


class ClaimCounts(Protocol):
    """What is read of the counters of an owner's claims."""

    expired: int


class CountingClaims(Protocol):
    """What is read of an owner's table of claims; its length is the number of leases."""

    @property
    def stats(self) -> ClaimCounts: ...
    def __len__(self) -> int: ...


class ExecutorCounts(Protocol):
    """What is read of an executor's counters."""

    queued: int
    running: int
    workers_lost: int


class CountingExecutor(Protocol):
    """What is read of an executor."""

    @property
    def workers(self) -> int: ...
    def stats(self) -> ExecutorCounts: ...


def observer(metrics: NodeMetrics) -> Callable[[str, str, float], None]:
    """What `WireServer` tells of every call, counted."""
    refused = {"UNAUTHENTICATED": "auth", "PERMISSION_DENIED": "auth", "RESOURCE_EXHAUSTED": "busy"}
    refused["INVALID_ARGUMENT"] = "malformed"

    def observe(method: str, code: str, seconds: float) -> None:
        name = method.rpartition("/")[2]
        metrics.requests.inc(name, code)
        metrics.request_duration.observe(seconds, name)
        if code in refused:
            metrics.refused.inc(refused[code])

    return observe


def follow_store(metrics: NodeMetrics, store: LiveStore) -> None:
    """The node's store, as its writer sees it."""
    from gramary.cluster.store.environment import MOST_READERS
    from gramary.cluster.store.paths import CURRENT, SEALED

    metrics.store_bytes.follow(
        lambda: {
            ("live",): (now := store.stats()).live_bytes,
            ("file",): now.file_bytes,
            ("budget",): now.budget_bytes,
            ("free",): now.free_disk_bytes,
        }
    )
    metrics.store_entries.follow(lambda: {(): store.stats().values})
    metrics.lmdb_oldest_reader.follow(lambda: {(): store.stats().reader_lag})
    metrics.lmdb_readers.follow(lambda: {("used",): store.stats().readers, ("most",): MOST_READERS})
    metrics.unique_artifacts.follow(lambda: _by_kind(store))
    metrics.evictions.follow(lambda: {("budget",): store.counters.evicted})
    metrics.corruption.follow(lambda: {("store",): store.counters.damaged})
    metrics.store_errors.follow(lambda: {("disk_full",): store.counters.disk_full, ("map_full",): store.counters.full})
    metrics.sealed_time.follow(lambda: {(): _modified(store.path / SEALED / CURRENT)})
    metrics.lookups.follow(lambda: {("lmdb", "hit"): store.reads.hits, ("lmdb", "miss"): store.reads.misses})


def _modified(path: Path) -> float:
    """When a file was last replaced; 0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _by_kind(store: LiveStore) -> Mapping[tuple[str, ...], float]:
    counts: dict[tuple[str, ...], float] = {(kind.name.lower(),): 0.0 for kind in Kind}
    for group, figures in list(store.ledger.groups.items()):
        counts[(Kind(group[0]).name.lower(),)] += figures.count
    return counts


def follow_placement(metrics: NodeMetrics, stats: PlacementCounts) -> None:
    """What was compiled, where, and how it was found."""
    metrics.units_compiled.follow(lambda: {("cluster",): stats.units_compiled, ("local",): stats.units_unclaimed})
    metrics.singleflight_waits.follow(lambda: {("done",): stats.flights_joined, ("takeover",): stats.takeovers})
    metrics.lookups.follow(lambda: {("compile", "hit"): stats.sources_lowered})


def follow_executor(metrics: NodeMetrics, executor: CountingExecutor) -> None:
    """Compile workers: busy, idle and lost."""
    metrics.executor_workers.follow(
        lambda: {
            ("busy",): (busy := min(executor.stats().running, executor.workers)),
            ("idle",): executor.workers - busy,
        }
    )
    metrics.executor_queued.follow(lambda: {(): executor.stats().queued})
    metrics.executor_restarts.follow(lambda: {("died",): executor.stats().workers_lost})


def follow_claims(metrics: NodeMetrics, claims: CountingClaims) -> None:
    """Leases that this node gave out as an owner."""
    metrics.leases.follow(lambda: {(): len(claims)})
    metrics.leases_expired.follow(lambda: {(): claims.stats.expired})


def follow_servers(metrics: NodeMetrics, servers: Sequence[WireServer]) -> None:
    """Calls that wait, and subscriptions that are open. `servers` may still grow."""

    def gates(name: str, field: str) -> int:
        return sum(getattr(one.guard.gates[name], field) for one in servers if one.guard is not None)

    metrics.compile_queued.follow(lambda: {(): gates("compile", "waiting")})
    metrics.watchers.follow(lambda: {(): gates("watch", "active")})


def follow_verifier(metrics: NodeMetrics, verifier: Verifier, store: LiveStore | None = None) -> None:
    """What was sent here and not believed, and whose is not believed any more."""
    wrong = ("digest", "mac", "manifest", "tokenizer", "false")

    def counts() -> Mapping[str, int]:
        return dict(verifier.counters)

    metrics.corruption.follow(lambda: {("peer",): sum(counts().get(name, 0) for name in wrong)})
    metrics.verified.follow(
        lambda: {
            ("same",): (now := counts()).get("sampled", 0) - now.get("false", 0),
            ("different",): now.get("false", 0),
        }
    )
    metrics.quarantined.follow(
        lambda: {(): len(verifier.quarantined_origins() | (store.quarantined if store is not None else frozenset()))}
    )


def follow_credentials(metrics: NodeMetrics, credentials: Credentials) -> None:
    """Files that could not be read."""
    metrics.credentials_stale.follow(lambda: {(): len(credentials.stale)})


def follow_breakers(metrics: NodeMetrics, states: Callable[[], Iterable[str]]) -> None:
    """`states`: "closed", "open" or "half_open" of every known peer."""

    def counts() -> Mapping[tuple[str, ...], float]:
        out: dict[tuple[str, ...], float] = {(name,): 0.0 for name in ("closed", "open", "half_open")}
        for state in states():
            out[(state,)] += 1
        return out

    metrics.peers.follow(counts)


def tokenizer_figures(store: LiveStore, most: int = 100) -> list[TokenizerFigures]:
    """What each tokenizer's mask entries take in the store, the largest first."""
    from gramary.cluster.stats import TokenizerFigures

    sizes: dict[bytes, list[int]] = {}
    for group, figures in list(store.ledger.groups.items()):
        if group[0] == Kind.ENTRY:
            known = sizes.setdefault(group[5:37], [0, 0])
            known[0] += figures.count
            known[1] += figures.size
    ranked = sorted(sizes.items(), key=lambda item: -item[1][1])[:most]
    return [TokenizerFigures(fingerprint, count, size) for fingerprint, (count, size) in ranked]
