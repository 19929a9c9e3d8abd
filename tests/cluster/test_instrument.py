"""What the parts of a node count shows in its metrics."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gramary.cluster import instrument
from gramary.cluster.counting import Counter
from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.stats import TokenizerFigures
from gramary.cluster.store.live import LiveStore
from gramary.cluster.store.sealed import seal
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.verifier import Checks, Verifier


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics()


def entry(number: int, tokenizer: bytes = bytes(32), size: int = 100) -> Record:
    return Record(Key(Kind.ENTRY, bytes([number]) * 32, tokenizer, b"slot"), bytes(size), origin="n1")


def test_counters_follow_and_never_fall() -> None:
    counter = Counter("x_total", "x", {"way": ("a", "b")})
    known = {"a": 3.0}
    counter.follow(lambda: {("a",): known["a"]})
    counter.follow(lambda: {("a",): 10, ("b",): 1})
    counter.inc("a")
    assert counter.snapshot() == [14, 1]
    known["a"] = 1
    assert counter.value("a") == 14
    del known["a"]
    assert counter.total() == 15


def test_the_store(metrics: NodeMetrics, tmp_path: Path) -> None:
    store = LiveStore(tmp_path / "store", 64 << 20)
    try:
        instrument.follow_store(metrics, store)
        other = b"\x07" * 32
        store.put([entry(1), entry(2), entry(3, other, size=9000), Record(Key(Kind.UNIT, bytes(32)), b"unit")])
        assert store.get(entry(1).key) is not None
        assert store.get(entry(9).key) is None
        kinds = dict(zip(metrics.unique_artifacts.rows, metrics.unique_artifacts.snapshot(), strict=True))
        assert kinds == {("unit",): 1, ("entry",): 3, ("manifest",): 0, ("tokenizer",): 0}
        sizes = dict(zip(metrics.store_bytes.rows, metrics.store_bytes.snapshot(), strict=True))
        assert 0 < sizes["live",] <= sizes["file",] < sizes["budget",] == 64 << 20
        assert metrics.store_entries.snapshot() == [4]
        assert metrics.sealed_time.snapshot() == [0]
        seal(store)
        assert metrics.sealed_time.snapshot()[0] > 1e9
        assert metrics.lookups.value("lmdb", "hit") == 1
        assert metrics.lookups.value("lmdb", "miss") == 1
        largest, smallest = instrument.tokenizer_figures(store)
        assert (largest.fingerprint, largest.entries, smallest.entries) == (other, 1, 2)
        assert isinstance(largest, TokenizerFigures)
        assert largest.size_bytes > smallest.size_bytes
    finally:
        store.close()
    before = metrics.store_bytes.value("budget")
    assert metrics.store_bytes.snapshot()
    assert metrics.store_bytes.value("budget") == before


def test_calls(metrics: NodeMetrics) -> None:
    observe = instrument.observer(metrics)
    observe("CacheService/Lookup", "OK", 0.001)
    observe("/grpc.health.v1.Health/Check", "OK", 0.001)
    observe("CompileService/Compile", "RESOURCE_EXHAUSTED", 0.001)
    observe("CacheService/PutShards", "UNAUTHENTICATED", 0.001)
    assert metrics.requests.value("Lookup", "OK") == metrics.requests.value("other", "OK") == 1
    assert metrics.refused.value("busy") == metrics.refused.value("auth") == 1
    assert metrics.request_duration.count("Lookup") == 1


def test_what_is_not_believed(metrics: NodeMetrics) -> None:
    mac = Mac([bytes(32)])
    verifier = Verifier(Checks(mac=mac, rebuild=lambda record: record.key.digest[0] != 2, sample=1.0))
    instrument.follow_verifier(metrics, verifier)
    good, refusals = verifier.check([mac.seal(entry(1)), Mac([b"x" * 32]).seal(entry(3))], origin="n1")
    assert (len(good), len(refusals)) == (1, 1)
    assert metrics.quarantined.snapshot() == [0]
    verifier.check([mac.seal(entry(2))], origin="n2")
    assert metrics.corruption.value("peer") == 2
    assert (metrics.verified.value("same"), metrics.verified.value("different")) == (1, 1)
    assert metrics.quarantined.snapshot() == [1]
    assert verifier.quarantined_origins() == {"n2"}


class Claims:
    stats: Any = SimpleNamespace(expired=1)

    def __len__(self) -> int:
        return 5


def test_the_rest(metrics: NodeMetrics) -> None:
    executor: Any = SimpleNamespace(workers=4, stats=lambda: SimpleNamespace(queued=9, running=3, workers_lost=2))
    instrument.follow_executor(metrics, executor)
    assert metrics.executor_workers.snapshot() == [1, 3]
    assert metrics.executor_restarts.value("died") == 2
    assert metrics.executor_queued.snapshot() == [9]
    fields = {"units_compiled": 7, "units_unclaimed": 1, "flights_joined": 2, "takeovers": 3}
    placement: Any = SimpleNamespace(**fields, sources_lowered=5)
    instrument.follow_placement(metrics, placement)
    assert metrics.units_compiled.snapshot() == [7, 1]
    assert metrics.singleflight_waits.value("takeover") == 3
    assert metrics.lookups.value("compile", "hit") == 5
    gates = {"compile": SimpleNamespace(waiting=4), "watch": SimpleNamespace(active=2)}
    servers: Any = [SimpleNamespace(guard=SimpleNamespace(gates=gates)), SimpleNamespace(guard=None)]
    instrument.follow_servers(metrics, servers)
    assert (metrics.compile_queued.snapshot(), metrics.watchers.snapshot()) == ([4], [2])
    instrument.follow_claims(metrics, Claims())
    assert (metrics.leases.snapshot(), metrics.leases_expired.snapshot()) == ([5], [1])
    instrument.follow_breakers(metrics, lambda: ["closed", "closed", "open"])
    assert metrics.peers.snapshot() == [2, 1, 0]
    credentials: Any = SimpleNamespace(stale=[Path("/x")])
    instrument.follow_credentials(metrics, credentials)
    assert metrics.credentials_stale.snapshot() == [1]
