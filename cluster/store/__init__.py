"""A node's store: units, mask entries, manifests and tokenizers in LMDB, read in place by many processes.

One process of a node writes: `LiveStore`, held by the agent. Others read: `open_reader` gives them the live environment
where that is safe, and sealed generations elsewhere. docs/store.md tells how it works, and what it was measured to do.
"""

from gramary.cluster.store.blob import Blob
from gramary.cluster.store.errors import (
    DiskFull,
    InvalidExport,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnavailable,
)
from gramary.cluster.store.feed import News
from gramary.cluster.store.live import LiveStore
from gramary.cluster.store.opener import StoreReader, open_reader
from gramary.cluster.store.reader import Reads, ReadStats
from gramary.cluster.store.sealed import SealedStore, seal
from gramary.cluster.store.stats import PutResult, StoreStats

__all__ = [
    "Blob",
    "DiskFull",
    "InvalidExport",
    "LiveStore",
    "News",
    "PutResult",
    "ReadStats",
    "Reads",
    "SealedStore",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReader",
    "StoreStats",
    "StoreUnavailable",
    "open_reader",
    "seal",
]
