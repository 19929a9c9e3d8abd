"""Metrics over HTTP: `/metrics` for Prometheus, `/livez` and `/readyz` for probes.

Kubernetes' gRPC probes speak no TLS, so a node that does is probed here. Plain HTTP by a thread each for at most
`MOST_CONNECTIONS` connections; a slow or silent client is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from gramary.cluster.address import parse_address
from gramary.cluster.counting import Family, Group, Histogram
from gramary.cluster.log import get_logger
from gramary.cluster.version import package_version
from gramary.runtime._core import FORMAT_VERSION

if TYPE_CHECKING:
    import socket

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_log = get_logger(__name__)

MOST_CONNECTIONS = 16
TIMEOUT_S = 10.0


class Collector:
    """What a scrape collects: groups of this process, and what is running here."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = list(groups)

    def collect(self) -> Iterator[Metric]:
        """The families as `prometheus_client` has them."""
        from prometheus_client.core import InfoMetricFamily

        labels = {"version": package_version(), "format_version": str(FORMAT_VERSION)}
        yield InfoMetricFamily("gramary_build", "What is running.", value=labels)
        for group in self._groups:
            for family in group.families():
                yield _metric(family, family.snapshot())


def _metric(family: Family, values: list[Any]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    names = list(family.labels)
    if isinstance(family, Histogram):
        histogram = HistogramMetricFamily(family.name, family.help, labels=names)
        bounds = [*(repr(float(bound)) for bound in family.buckets), "+Inf"]
        for row, (*counts, total) in zip(family.rows, values, strict=True):
            histogram.add_metric(row, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = kind(family.name, family.help, labels=names)
    for row, value in zip(family.rows, values, strict=True):
        metric.add_metric(row, value)
    return metric


def make_registry(*groups: Group) -> CollectorRegistry:
    """A registry of its own, with the process's memory, CPU time and open files."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(groups))
    ProcessCollector(registry=registry)
    return registry


class _Server(HTTPServer):
    request_queue_size = MOST_CONNECTIONS
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *, v6: bool) -> None:
        if v6:
            import socket

            self.address_family = socket.AF_INET6
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        threading.Thread(target=self._work, args=(request, client_address), daemon=True).start()

    def _work(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away or was too slow
        except Exception:
            _log.exception("metrics_request_failed")
        finally:
            self.shutdown_request(request)
            self._slots.release()


class MetricsServer:
    """Serves a registry and the two probes until closed. `address`: `host:port`; port 0 picks a free one.

    `ready` and `live` are asked at each probe: ready is false before start is done and while draining. Raises `OSError`
    if the address cannot be had.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        address: str,
        *,
        ready: Callable[[], bool] = lambda: True,
        live: Callable[[], bool] = lambda: True,
    ) -> None:
        from prometheus_client.exposition import choose_encoder

        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S
            server_version, sys_version = "gramary", ""

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path == "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept") or "")
                    try:
                        names = parse_qs(url.query, max_num_fields=100).get("name[]")
                    except ValueError:
                        self.send_error(400)
                        return
                    chosen = registry.restricted_registry(names) if names else registry
                    self._answer(200, encode(chosen), content_type)
                elif url.path in ("/livez", "/readyz"):
                    good = (live if url.path == "/livez" else ready)()
                    self._answer(200 if good else 503, b"ok\n" if good else b"not now\n", "text/plain")
                else:
                    self._answer(404, b"/metrics, /livez or /readyz\n", "text/plain")

            def _answer(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a probe every ten seconds is no news."""

        where = parse_address(address)
        self._server = _Server((where.host, where.port), Handler, v6=":" in where.host)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), daemon=True, name="gramary-metrics"
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; scrapes in flight are finished by their threads."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
