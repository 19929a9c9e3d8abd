"""Counting, what workers report, and what Prometheus gets to read."""

from __future__ import annotations

import json
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
from gramary.cluster.metrics import NodeMetrics, WorkerMetrics
from gramary.cluster.reports import MOST_WORKERS, WorkerReports


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


class Numbers(Group):
    def __init__(self) -> None:
        self.done = Counter("done_total", "x", {"way": ("a", "b")})
        self.time = Histogram("time_seconds", "x", buckets=(1.0,))
        self.now = Gauge("now", "x")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def report(a: float, b: float = 0, times: int = 0) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps({"done_total": [a, b], "time_seconds": [[times, 0, times * 0.5]]}))
    return answer


def test_reports_add_up_and_never_fall() -> None:
    clock = Clock()
    reports = WorkerReports(Numbers(), clock=clock)
    assert reports.totals() == report(0)
    reports.absorb("w1", report(3, 1, 2))
    reports.absorb("w2", report(10))
    reports.absorb("w1", report(4, 1, 3))
    assert reports.totals() == report(14, 1, 3)
    assert reports.workers() == 2
    reports.gone("w1")
    reports.gone("nobody")
    assert reports.totals() == report(14, 1, 3)
    reports.absorb("w2", report(2))
    assert reports.totals() == report(16, 1, 3)
    clock.now = 61
    assert reports.workers() == 0
    assert reports.totals() == report(16, 1, 3)
    reports.absorb("w2", {"done_total": [1, 0], "of a newer version": [1]})
    assert reports.totals() == report(17, 1, 3)
    assert Numbers().snapshot() == report(0)


@pytest.mark.parametrize(
    "bad",
    [
        {"done_total": [1]},
        {"done_total": [1, -1]},
        {"done_total": [1, math.nan]},
        {"done_total": [1, 2.0**60]},
        {"done_total": [1, True]},
        {"done_total": [1, "2"]},
        {"done_total": {"a": 1}},
        {"done_total": [1, 1], "time_seconds": [[1, 2]]},
        {"time_seconds": [[1, 2, 3], [1, 2, 3]]},
        {"time_seconds": [1]},
        {"time_seconds": None},
    ],
)
def test_reports_are_checked(bad: dict[str, Any]) -> None:
    reports = WorkerReports(Numbers())
    with pytest.raises(ValueError, match="is not what this version counts"):
        reports.absorb("w", bad)
    assert reports.workers() == 0


def test_workers_that_report_are_bounded() -> None:
    reports = WorkerReports(Numbers())
    for number in range(MOST_WORKERS):
        reports.absorb(str(number), {"done_total": [1, 0]})
    with pytest.raises(ValueError, match="more than"):
        reports.absorb("one more", {"done_total": [1, 0]})
    assert reports.totals()["done_total"] == [MOST_WORKERS, 0]


@pytest.fixture
def state() -> dict[str, bool]:
    return {"ready": True, "live": True}


@pytest.fixture
def served(state: dict[str, bool]) -> Iterator[tuple[str, NodeMetrics]]:
    metrics, reports = NodeMetrics(), WorkerReports(WorkerMetrics())
    worker = WorkerMetrics()
    worker.mask_duration.observe(3e-6, "fill")
    reports.absorb("w", worker.snapshot())
    server = MetricsServer(
        make_registry(metrics, reports=reports),
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
    for one in [*metrics.families(), *(f for f in WorkerMetrics().families())]:
        assert families[one.name.removesuffix("_total")].type == one.kind
    samples = {(s.name, *sorted(s.labels.values())): s.value for f in families.values() for s in f.samples}
    assert samples["gramary_lookups_total", "hit", "lmdb"] == 1
    assert samples["gramary_lookup_duration_seconds_bucket", "1e-06", "lmdb"] == 0
    assert samples["gramary_lookup_duration_seconds_bucket", "2e-06", "lmdb"] == 1
    assert samples["gramary_lookup_duration_seconds_bucket", "+Inf", "lmdb"] == 1
    assert samples["gramary_lookup_duration_seconds_count", "lmdb"] == 1
    assert samples["gramary_store_bytes", "budget"] == 10
    assert samples["gramary_worker_mask_duration_seconds_count", "fill"] == 1
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
