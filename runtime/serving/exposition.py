"""A worker's counts for Prometheus."""

from __future__ import annotations

import importlib
from typing import Protocol

from gramary.runtime.serving.events import Events
from gramary.runtime.serving.metrics import WorkerCounts

_events = Events(__name__)

SERVE = "gramary.cluster.worker_metrics:serve"


class Endpoint(Protocol):
    """Something that listens."""

    port: int

    def close(self) -> None: ...


def serve_counts(counts: WorkerCounts, address: str) -> Endpoint | None:
    """Serve `counts` at `address`, if there is one. One that fails is reported, and does not stop the engine."""
    if not address:
        return None
    module, name = SERVE.split(":")
    try:
        endpoint: Endpoint = getattr(importlib.import_module(module), name)(counts.snapshot, address)
    except Exception as error:
        _events.error("metrics_endpoint_failed", address=address, error=f"{type(error).__name__}: {error}")
        return None
    _events.info("metrics_endpoint", port=endpoint.port)
    return endpoint
