"""Records on their way into the store: encoded, and cut into what one transaction takes.

Encoding needs no lock and a transaction does, so the writer takes its lock once a batch and never while encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gramary.cluster.records import Record
from gramary.cluster.store.layout import encode_value, group_of, page_bytes_of, stored_key

_BATCH_VALUES = 1024
_BATCH_BYTES = 32 << 20


class Encoded(NamedTuple):
    """A record and what is stored of it."""

    record: Record
    raw: bytes
    """The encoded key, as headers name it."""
    stored: bytes
    """The key in LMDB."""
    value: bytes
    page_bytes: int
    """Of LMDB's pages, roughly."""
    group: bytes
    """What it is evicted with."""


def batches(records: Iterable[Record]) -> Iterator[list[Encoded]]:
    """Encode records, in order. `ValueError` for a payload or name that is too long."""
    batch: list[Encoded] = []
    size = 0
    for record in records:
        raw = record.key.encode()
        stored = stored_key(raw)
        value = encode_value(record, raw, stored)
        batch.append(Encoded(record, raw, stored, value, page_bytes_of(stored, len(value)), group_of(stored)))
        size += len(value)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_VALUES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
