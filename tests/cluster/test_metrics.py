"""Counting, and what Prometheus gets to read of nodes and workers."""

from __future__ import annotations

import math
import os
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gramary.cluster.counting import Counter, Gauge, Group, Histogram
from gramary.cluster.exposition import MOST_CONNECTIONS, MetricsServer, make_registry
from gramary.cluster.metrics import FAST_BUCKETS, NodeMetrics, WorkerMetrics
from gramary.cluster.worker_metrics import PORTS, metrics_of, serve
from gramary.runtime.serving.exposition import serve_counts
from gramary.runtime.serving.metrics import BOUNDS_NS, WorkerCounts


def test_counters() -> None:
    counter = Counter("x_total", "x", {"code": ("OK", "other"), "way": ("in", "out")})
    counter.inc("OK", "in")
    counter.inc("OK", "in", by=2.5)
    counter.bind("OK", "out")()
    counter.inc("whatever a stranger sends", "in")
    assert counter.value("OK", "in") == 3.5
    assert counter.value("other", "in") == 1
    assert counter.total() == 5.5
    for labels in ((), ("OK",), ("OK", "in", "in"), ("OK", "sideways")):
        with pytest.raises(ValueError, match=r"x_total has the labels code in \('OK', 'other'\)"):
            counter.inc(*labels)
    for by in (-1, math.nan):
        with pytest.raises(ValueError, match="only grows"):
            counter.inc("OK", "in", by=by)


def test_gauges_are_set_or_followed() -> None:
    gauge = Gauge("x", "x", {"kind": ("a", "b")})
    gauge.inc("a")
    gauge.inc("a")
    gauge.dec("a")
    gauge.set(7, "b")
    assert gauge.snapshot() == [1, 7]
    gauge.follow(lambda: {("b",): 9})
    gauge.follow(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert gauge.snapshot() == [1, 9]


def test_histograms() -> None:
    histogram = Histogram("x_seconds", "x", buckets=(1, 2, 4))
    assert histogram.quantile(0.5) == 0
    observe = histogram.bind()
    for value in (0.5, 1, 1.5, 3):
        histogram.observe(value)
    observe(99)
    assert histogram.snapshot() == [[2, 1, 1, 1, 105]]
    assert (histogram.count(), histogram.sum()) == (5, 105)
    assert [histogram.quantile(q) for q in (0.4, 0.5, 0.8, 1)] == [1, 2, 4, math.inf]
    for buckets in ((), (2, 1), (1, 1), (1, math.inf)):
        with pytest.raises(ValueError, match="must be finite and rise"):
            Histogram("x", "x", buckets=buckets)


def test_threads_lose_nothing() -> None:
    metrics = NodeMetrics()
    bound = metrics.lookups.bind("lmdb", "hit")

    def work() -> None:
        for _ in range(2000):
            metrics.lookup("peer", "miss", 1e-3)
            bound()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.lookups.value("peer", "miss") == metrics.lookup_duration.count("peer") == 8000
    assert metrics.lookups.value("lmdb", "hit") == 8000


def test_a_fork_leaves_no_lock_held() -> None:
    counter = Counter("x_total", "x")
    with counter._lock:
        child = os.fork()
        if child == 0:
            counter.inc()
            os._exit(int(counter.total()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.mark.parametrize("group", [NodeMetrics(), WorkerMetrics()])
def test_names_follow_the_conventions(group: Group) -> None:
    names = [family.name for family in group.families()]
    assert len(names) == len(set(names)) > 8
    for family in group.families():
        assert re.fullmatch(r"gramary_[a-z_]+", family.name)
        assert family.help.endswith(".")
        assert family.name.endswith("_total") == isinstance(family, Counter), family.name
        assert not isinstance(family, Histogram) or family.name.endswith("_seconds")
        assert len(family.rows) <= 400


def worker_snapshot() -> dict[str, Any]:
    counts = WorkerCounts()
    counts.calls["fill"].add(3_000)
    counts.calls["fill"].add(10_000_000_000)
    counts.compiled("lmdb", 1_500_000)
    counts.compiled("admission", 1)
    counts.count("requests_failed", "limit")
    counts.count("fill_waits", "expired")
    counts.count("of no family", "x")
    counts.count("requests_refused", "InvalidSchema")
    return dict(counts.snapshot())


def test_what_a_worker_counts() -> None:
    assert tuple(bound / 1e9 for bound in BOUNDS_NS) == FAST_BUCKETS
    metrics = metrics_of(worker_snapshot())
    assert metrics.mask_duration.count("fill") == 2
    assert metrics.mask_duration.quantile(0.5, "fill") == 5e-6
    assert metrics.mask_duration.sum("fill") == pytest.approx(10.000003)
    assert metrics.compile_duration.count("lmdb") == metrics.compile_duration.count("admission") == 1
    assert metrics.requests_failed.value("limit") == metrics.fill_waits.value("expired") == 1
    with pytest.raises(ValueError, match="buckets"):
        metrics.mask_duration.load([1], 1, "fill")


def test_workers_of_one_host_find_a_port_each() -> None:
    first = serve(worker_snapshot, "127.0.0.1:0")
    try:
        second = serve(worker_snapshot, f"127.0.0.1:{first.port}")
        try:
            assert first.port < second.port < first.port + PORTS
            _, text = get(f"http://127.0.0.1:{second.port}/metrics")
            assert 'gramary_worker_mask_duration_seconds_count{call="fill"} 2.0' in text
            assert 'gramary_worker_requests_failed_total{reason="limit"} 1.0' in text
        finally:
            second.close()
    finally:
        first.close()


def test_an_endpoint_that_fails_does_not_stop_an_engine(caplog: pytest.LogCaptureFixture) -> None:
    assert serve_counts(WorkerCounts(), "") is None
    assert serve_counts(WorkerCounts(), "nonsense") is None
    assert "metrics_endpoint_failed" in caplog.text
    endpoint = serve_counts(WorkerCounts(), "127.0.0.1:0")
    assert endpoint is not None
    endpoint.close()


@pytest.fixture
def state() -> dict[str, bool]:
    return {"ready": True, "live": True}


@pytest.fixture
def served(state: dict[str, bool]) -> Iterator[tuple[str, NodeMetrics]]:
    metrics = NodeMetrics()
    server = MetricsServer(
        make_registry(metrics),
        "127.0.0.1:0",
        ready=lambda: state["ready"],
        live=lambda: state["live"],
    )
    yield f"http://127.0.0.1:{server.port}", metrics
    server.close()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_prometheus_reads_it(served: tuple[str, NodeMetrics]) -> None:
    url, metrics = served
    metrics.lookup("lmdb", "hit", 1.5e-6)
    metrics.store_bytes.follow(lambda: {("live",): 5, ("budget",): 10})
    _, text = get(f"{url}/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for one in metrics.families():
        assert families[one.name.removesuffix("_total")].type == one.kind
    samples = {(s.name, *sorted(s.labels.values())): s.value for f in families.values() for s in f.samples}
    assert samples["gramary_lookups_total", "hit", "lmdb"] == 1
    assert samples["gramary_lookup_duration_seconds_bucket", "1e-06", "lmdb"] == 0
    assert samples["gramary_lookup_duration_seconds_bucket", "2e-06", "lmdb"] == 1
    assert samples["gramary_lookup_duration_seconds_bucket", "+Inf", "lmdb"] == 1
    assert samples["gramary_lookup_duration_seconds_count", "lmdb"] == 1
    assert samples["gramary_store_bytes", "budget"] == 10
    assert families["gramary_build_info"].samples[0].labels["format_version"].isdigit()
    assert "process_resident_memory_bytes" in families
    _, some = get(f"{url}/metrics?name[]=gramary_store_entries")
    assert "gramary_store_entries" in some
    assert "gramary_lookups" not in some


def test_probes(served: tuple[str, NodeMetrics], state: dict[str, bool]) -> None:
    url, _ = served
    assert get(f"{url}/livez") == (200, "ok\n")
    assert get(f"{url}/readyz")[0] == 200
    state["ready"] = False
    assert get(f"{url}/readyz")[0] == 503
    assert get(f"{url}/livez")[0] == 200
    state["live"] = False
    assert get(f"{url}/livez")[0] == 503
    assert get(f"{url}/anything")[0] == 404


def test_strangers_at_the_endpoint(served: tuple[str, NodeMetrics]) -> None:
    url, _ = served
    port = int(url.rpartition(":")[2])
    for data in (
        b"\xff\x00\r\n\r\n",
        b"GET /" + b"x" * 70000,
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics?" + b"a=1&" * 999,
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(data + b" HTTP/1.1\r\n\r\n")
            stranger.shutdown(socket.SHUT_WR)
            try:
                stranger.recv(1000)
            except ConnectionError:
                continue
    silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(MOST_CONNECTIONS + 8)]
    for one in silent:
        one.close()
    for _ in range(100):
        try:
            assert get(f"{url}/livez")[0] == 200
            break
        except (urllib.error.URLError, ConnectionError):
            continue
    else:
        pytest.fail("the endpoint does not answer any more")


def test_ipv6_and_an_address_in_use() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = MetricsServer(make_registry(NodeMetrics()), "[::1]:0")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    try:
        assert get(f"http://[::1]:{server.port}/livez")[0] == 200
        with pytest.raises(OSError, match=r"in use"):
            MetricsServer(make_registry(NodeMetrics()), f"[::1]:{server.port}")
    finally:
        server.close()
