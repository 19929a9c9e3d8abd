"""Records cut into the chunks that a stream carries, and what is said of them made false.

Both ends take chunks from strangers, so the same lies are told to clients (`test_wire_liars`) and to servers
(`test_wire_clients`).
"""

import os
import struct
from typing import Any

from gramary.cluster.records import Record
from gramary.cluster.wire.codec import chunks
from gramary.cluster.wire.limits import CHUNK_BYTES
from gramary.cluster.wire.pb import values_pb2
from tests.cluster.memory_node import entry

GOOD = entry("a", 1, os.urandom(1000))
"""A record of one chunk."""

LONG = entry("a", 2, os.urandom(CHUNK_BYTES + 1000))
"""A record of two."""

ZSTD = values_pb2.COMPRESSOR_ZSTD

BOMB = bytes.fromhex("28b52ffd84") + struct.pack("<I", 0x7FFFFFFF)
"""The head of a zstd frame that claims 2 GiB."""


def pieces(record: Record, **changes: Any) -> list[values_pb2.RecordChunk]:
    """A record's chunks, the first with other fields."""
    out = list(chunks(record, zstd=False))
    for name, value in changes.items():
        if name in ("key", "cost_ns", "mac"):
            setattr(out[0].header, name, value)
        elif name in ("hash", "size_bytes"):
            setattr(out[0].header.payload, name, value)
        else:
            setattr(out[0], name, value)
    return out
