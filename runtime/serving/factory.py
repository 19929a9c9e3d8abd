"""Opens the source of grammars that a worker's options ask for."""

from __future__ import annotations

import importlib

from gramary.compiler.compiler import Compiler
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import GrammarSource, LocalSource

_events = Events(__name__)

CLUSTER_SOURCE = "gramary.cluster.client:open_worker_source"
"""`(compiler, options) -> GrammarSource`: the cluster's client, where an address or a store is configured."""


def open_source(compiler: Compiler, options: WorkerOptions, counts: WorkerCounts) -> GrammarSource:
    """The cluster's client if `options` name a cluster or a store, else `LocalSource`; it counts in `counts`.

    A client that cannot be opened does not keep the engine from serving: it is reported, and everything is compiled
    here.
    """
    if options.address is None and options.store_path is None:
        return LocalSource(compiler)
    module, name = CLUSTER_SOURCE.split(":")
    try:
        source: GrammarSource = getattr(importlib.import_module(module), name)(compiler, options, count=counts.count)
    except Exception as error:
        _events.error("cluster_client_failed", error=f"{type(error).__name__}: {error}", consequence="compiled here")
        return LocalSource(compiler)
    return source
