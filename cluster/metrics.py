"""Every metric there is: of a node (`NodeMetrics`) and of a worker (`WorkerMetrics`).

Base units, no label that a user, a tool or a digest could make grow. docs/operations.md says what to watch; a test
holds the rules and the dashboard in deploy/ against this module.
"""

from __future__ import annotations

from gramary.cluster.counting import Counter, Gauge, Group, Histogram

# From a look-up in mapped memory (1 us) to a compile that hits its limit (30 s).
FAST_BUCKETS = (
    *(1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.25, 1.0, 5.0),
)
SLOW_BUCKETS = (1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

TIERS = ("process", "lmdb", "peer", "compile")
"""Where a look-up ends: this process's memory, the node's store, another node, or work."""
RESULTS = ("hit", "miss", "error")
KINDS = ("unit", "entry", "manifest", "tokenizer")
CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED", "other"),
)
"""gRPC's status codes by name."""
METHODS = (
    *("Compile", "CompileStream", "Lookup", "FindMissing", "BatchRead", "Read", "GetShards", "PutShards", "Watch"),
    *("RegisterTokenizer", "GetCapabilities", "Stats", "Claim", "Release", "Complete", "Wait", "other"),
)


class NodeMetrics(Group):
    """What an agent or `gramary serve` counts."""

    def __init__(self) -> None:
        self.lookups = Counter(
            "gramary_lookups_total", "Look-ups by the tier that was asked.", {"tier": TIERS, "result": RESULTS}
        )
        self.lookup_duration = Histogram(
            "gramary_lookup_duration_seconds", "Time of one look-up in one tier.", {"tier": TIERS}, buckets=FAST_BUCKETS
        )
        self.compile_duration = Histogram(
            "gramary_compile_duration_seconds",
            "Time of one stage of compiling.",
            {"stage": ("queue", "lower", "entries", "commit")},
            buckets=SLOW_BUCKETS,
        )
        self.compiles = Counter(
            "gramary_compiles_total",
            "Sources compiled: for the cluster under a lease, or here only because the cluster could not be asked.",
            {"where": ("cluster", "local"), "result": ("ok", "invalid", "limit", "cancelled", "died")},
        )
        self.units_compiled = Counter(
            "gramary_units_compiled_total",
            "Distinct stored units that this node built; without faults the cluster's sum is the number of units.",
            {"where": ("cluster", "local")},
        )
        self.compile_inflight = Gauge("gramary_compile_inflight", "Compile requests worked on now.")
        self.compile_queued = Gauge("gramary_compile_queued", "Compile requests that wait.")
        self.singleflight_waits = Counter(
            "gramary_singleflight_waits_total",
            "Waits for somebody else's compile, by how they ended.",
            {"result": ("done", "takeover", "timeout")},
        )
        self.leases = Gauge("gramary_leases", "Leases that this node, as an owner, has given out and not got back.")
        self.leases_expired = Counter("gramary_leases_expired_total", "Leases whose holder did not come back.")
        self.unique_artifacts = Gauge("gramary_unique_artifacts", "Distinct values in the store.", {"kind": KINDS})
        self.store_bytes = Gauge(
            "gramary_store_bytes",
            "The store: what its values take, its file, its budget, and what the disk has left.",
            {"kind": ("live", "file", "budget", "free")},
        )
        self.store_entries = Gauge("gramary_store_entries", "Values in the store, of all kinds.")
        self.evictions = Counter(
            "gramary_evictions_total", "Values removed.", {"reason": ("budget", "version", "disk", "quarantine")}
        )
        self.store_errors = Counter(
            "gramary_store_errors_total",
            "Writes that failed.",
            {"reason": ("disk_full", "map_full", "readers_full", "other")},
        )
        self.corruption = Counter(
            "gramary_corruption_total",
            "Values that were not what their key or checksum says, by where they came from.",
            {"origin": ("store", "peer", "worker", "sealed")},
        )
        self.verified = Counter(
            "gramary_entries_reverified_total", "Entries built again to check them.", {"result": ("same", "different")}
        )
        self.quarantined = Gauge("gramary_quarantined_origins", "Nodes whose entries are not believed any more.")
        self.peer_bytes = Counter(
            "gramary_peer_fetch_bytes_total", "Payload bytes from and to peers.", {"direction": ("in", "out")}
        )
        self.peer_errors = Counter("gramary_peer_fetch_errors_total", "Failed requests to peers.", {"code": CODES})
        self.peers = Gauge(
            "gramary_peers",
            "Known peers by the state of their circuit breaker.",
            {"state": ("closed", "open", "half_open")},
        )
        self.requests = Counter("gramary_requests_total", "Requests served.", {"method": METHODS, "code": CODES})
        self.request_duration = Histogram(
            "gramary_request_duration_seconds", "Time of one request, streams to their end.", {"method": METHODS},
            buckets=SLOW_BUCKETS,
        )  # fmt: skip
        self.refused = Counter(
            "gramary_refused_total",
            "Requests refused before any work.",
            {"reason": ("auth", "size", "malformed", "busy", "draining")},
        )
        self.watchers = Gauge("gramary_watchers", "Open subscriptions to new values.")
        self.executor_workers = Gauge(
            "gramary_executor_workers", "Processes or actors that compile.", {"state": ("idle", "busy")}
        )
        self.executor_queued = Gauge("gramary_executor_queued", "Pieces of work that wait for a compile worker.")
        self.executor_restarts = Counter(
            "gramary_executor_restarts_total",
            "Compile workers replaced.",
            {"reason": ("died", "limit", "cancelled")},
        )
        self.lmdb_oldest_reader = Gauge(
            "gramary_lmdb_oldest_reader_txns",
            "Transactions since the oldest reader began; pages freed since are not reused.",
        )
        self.lmdb_readers = Gauge(
            "gramary_lmdb_reader_slots", "Reader slots of the live environment.", {"kind": ("used", "most")}
        )
        self.sealed_time = Gauge(
            "gramary_sealed_generation_timestamp_seconds", "When the current sealed generation was made; 0: none."
        )
        self.credentials_stale = Gauge(
            "gramary_credentials_stale", "Token, key and certificate files that could not be read at the last look."
        )

    def lookup(self, tier: str, result: str, seconds: float) -> None:
        """Count one look-up."""
        self.lookups.inc(tier, result)
        self.lookup_duration.observe(seconds, tier)


class WorkerMetrics(Group):
    """What an inference worker counts; it serves them itself (`gramary.cluster.worker_metrics`)."""

    def __init__(self) -> None:
        tiers = ("admission", "process", "lmdb", "peer", "cluster", "local")
        self.compile_duration = Histogram(
            "gramary_worker_compile_duration_seconds",
            "From a request's grammar to a matcher, by the dearest tier that was needed; admission: judging it.",
            {"tier": tiers},
            buckets=FAST_BUCKETS,
        )
        self.lookups = Counter(
            "gramary_worker_lookups_total", "Look-ups of sources by tier.", {"tier": tiers, "result": RESULTS}
        )
        self.mask_duration = Histogram(
            "gramary_worker_mask_duration_seconds",
            "Our time of one call in the engine.",
            {"call": ("fill", "accept", "validate", "rollback", "apply")},
            buckets=FAST_BUCKETS,
        )
        self.fill_waits = Counter(
            "gramary_worker_fill_waits_total",
            "First masks that came before their grammar, by how the wait ended.",
            {"result": ("ready", "expired")},
        )
        self.entries_built = Counter(
            "gramary_worker_entries_built_total",
            "Mask entries built, when a matcher needed them or ahead of that.",
            {"reason": ("first_use", "ahead")},
        )
        self.entries_loaded = Counter(
            "gramary_worker_entries_loaded_total",
            "Mask entries brought in, to be used instead of building them.",
            {"tier": ("lmdb", "peer")},
        )
        self.entries_published = Counter(
            "gramary_worker_entries_published_total",
            "Mask entries offered to the agent.",
            {"result": ("ok", "refused", "dropped")},
        )
        self.fallbacks = Counter(
            "gramary_worker_fallbacks_total",
            "Requests compiled here because the cluster could not serve them in time.",
            {"reason": ("unreachable", "deadline", "corrupt", "version", "error")},
        )
        self.requests_failed = Counter(
            "gramary_worker_requests_failed_total",
            "Requests that ended with an error of ours.",
            {"reason": ("invalid", "limit", "deadline", "token", "internal")},
        )
