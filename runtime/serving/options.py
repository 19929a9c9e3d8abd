"""What an engine's worker is told: `WorkerOptions`, from the settings of every other process (docs/configuration.md).

GRAMARY_CLIENT_ADDRESS=unix:/run/gramary/agent.sock GRAMARY_STORE_PATH=/var/lib/gramary vllm serve ...
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gramary.compiler.compiler import PropertyOrder, Whitespace
from gramary.runtime._core import Limits
from gramary.runtime.serving.source import CompileOptions


@dataclass(frozen=True)
class WorkerOptions:
    """One worker's options. Sizes in bytes."""

    address: str | None = None
    """The node's agent or the cluster's service; None: no cluster."""
    store_path: Path | None = None
    """The node's store; None: none is mapped."""
    cache_bytes: int = 512 << 20
    """Units and mask entries kept in memory."""
    grammars: int = 256
    """Compiled grammars kept for requests that ask for the same again."""
    compile_s: float = 30.0
    """How long one request's grammar may take, in all."""
    quick_s: float = 0.1
    """What takes longer goes on behind everything else, on a thread of its own, so that it delays nobody."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Bounds of one compile, by the names of `Limits`."""
    threads: int = 4
    """Threads that compile, or wait for the cluster to do it."""
    overlap_tokens: int = 1024
    """Requests with prompts of at least so many tokens are scheduled while their grammar is still compiled."""
    fill_wait_ms: float = 200.0
    """How long the first mask of such a request may wait for its grammar, with the whole batch waiting."""
    admission_ms: float = 10.0
    """What judging a request's grammar may take in the API server; what takes longer is judged by the engine."""
    prefetch_entries: int = 32
    """Mask entries built in the background when a request arrives."""
    metrics_listen: str = ""
    """Where this worker serves its metrics, or one of the next ports; empty: nowhere."""
    take_over: bool = False
    """Answer to requests for the backend "xgrammar" too."""
    whitespace: Whitespace = "flexible"
    property_order: PropertyOrder = "declared"
    lenient: bool = False
    """Turn what a schema asks for and cannot be enforced into a warning, instead of refusing the request."""

    def compile_options(self, *, seconds: float) -> CompileOptions:
        """How this worker compiles, in at most so many seconds."""
        bounds: dict[str, Any] = dict(self.limits)
        bounds["seconds"] = min(seconds, bounds.get("seconds", seconds))
        return CompileOptions(self.property_order, self.whitespace, self.lenient, Limits(**bounds))

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> WorkerOptions:
        """From the environment, the secrets' folder and the file that `GRAMARY_CONFIG` names.

        Raises `gramary.cluster.config.ConfigError` for what is wrong there.
        """
        from gramary.cluster.config import load  # imports pydantic, which an engine has anyway

        environ = os.environ if environ is None else environ
        settings = load(role="worker", environ=environ)
        client, worker, store, limits = settings.client, settings.worker, settings.store, settings.limits
        address = client.address
        return cls(
            address=None if address is None else str(address),
            store_path=Path(store.path) if address is not None or "path" in store.model_fields_set else None,
            cache_bytes=int(client.cache_bytes),
            grammars=worker.grammars,
            compile_s=settings.deadlines.compile_s,
            limits={
                "source_bytes": int(limits.source_bytes),
                "depth": limits.depth,
                "fsm_states": limits.fsm_states,
                "items_per_set": limits.items_per_set,
                "memory": int(limits.memory_bytes),
                "seconds": limits.seconds,
            },
            threads=worker.threads,
            overlap_tokens=worker.overlap_tokens,
            fill_wait_ms=settings.deadlines.fill_wait_ms,
            admission_ms=worker.admission_ms,
            prefetch_entries=worker.prefetch_entries,
            take_over=worker.take_over,
            metrics_listen=worker.metrics_listen,
            whitespace=worker.whitespace,
            property_order=worker.property_order,
            lenient=worker.lenient,
        )
