"""A store, or a part of it, as one file: to carry it elsewhere, to ship it with an image.

The format is a stream (docs/store.md): magic, one frame a record, and an end frame with their number and a hash over
all of them. It is read as what it may be, something that a stranger made: lengths are bounded before anything is
allocated, every record's hash is checked, and nothing is believed that `Check` refuses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store.errors import InvalidExport
from gramary.cluster.store.layout import MOST_MAC_BYTES, MOST_ORIGIN_BYTES, MOST_PAYLOAD_BYTES
from gramary.cluster.store.live import LiveStore
from gramary.cluster.store.reader import Reads
from gramary.cluster.store.strangers import Check

MAGIC = b"GRAMARY EXPORT 1\n"
_FRAME = struct.Struct("<HBBIQQ32s")  # key, MAC, origin: lengths; reserved; cost; payload's length; BLAKE3 of the rest
_MOST_KEY_BYTES = 133
_PIECE = 1 << 20
_BATCH_BYTES = 32 << 20
_UNITS_BYTES = 512 << 20
_RECORD_BYTES = 1024  # of Python objects, roughly

Progress = Callable[[int], None]
"""Told how many records are done."""


@dataclass
class ImportResult:
    """What became of a file's records."""

    records: int = 0
    stored: int = 0
    known: int = 0
    refused: list[tuple[Key, str]] = field(default_factory=list)


def export_records(store: Reads, path: Path, keys: Iterable[Key], progress: Progress | None = None) -> int:
    """Write the values of `keys` to a file, replacing it; those that are not there are left out. Returns how many."""
    aside = path.with_name(f".{path.name}.new")
    count, whole = 0, blake3()
    try:
        with aside.open("wb") as file:
            file.write(MAGIC)
            for blob in store.blobs(keys):
                if blob is None:
                    continue
                record = blob.record()
                raw, origin = record.key.encode(), record.origin.encode()
                body = blake3(raw + record.mac + origin).update(record.payload).digest()
                frame = _FRAME.pack(
                    len(raw), len(record.mac), len(origin), 0, record.cost_ns, len(record.payload), body
                )
                file.write(frame + raw + record.mac + origin)
                file.write(record.payload)
                whole.update(frame)
                count += 1
                if progress is not None and count % 256 == 0:
                    progress(count)
            file.write(_FRAME.pack(0, 0, 0, 0, 0, count, whole.digest()))
        aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)
    return count


def read_export(file: BinaryIO, name: str) -> Iterator[Record]:
    """The records of an exported file, each checked against its hash. Raises `InvalidExport` at what is not right.

    That the file is whole is known only when the iterator ends without an error.
    """
    source = _Source(file, name)
    if source.take(len(MAGIC)) != MAGIC:
        raise source.wrong("it does not begin as an export does")
    count, whole = 0, blake3()
    while True:
        frame = source.take(_FRAME.size)
        key_bytes, mac_bytes, origin_bytes, reserved, cost_ns, length, body = _FRAME.unpack(frame)
        if key_bytes == 0:
            if length != count or body != whole.digest():
                raise source.wrong("its end does not fit what precedes it")
            if file.read(1):
                raise source.wrong("something follows its end")
            return
        if (
            key_bytes > _MOST_KEY_BYTES
            or mac_bytes > MOST_MAC_BYTES
            or origin_bytes > MOST_ORIGIN_BYTES
            or length > MOST_PAYLOAD_BYTES
            or reserved
        ):
            raise source.wrong("a length is out of bounds")
        raw, mac, origin = source.take(key_bytes), source.take(mac_bytes), source.take(origin_bytes)
        payload = source.take(length)
        if blake3(raw + mac + origin).update(payload).digest() != body:
            raise source.wrong("a record is damaged")
        try:
            record = Record(Key.decode(raw), payload, cost_ns, mac, origin.decode())
        except ValueError as error:
            raise source.wrong(f"a record has no valid key or origin: {error}") from error
        whole.update(frame)
        count += 1
        yield record


class _Source:
    """Exact reads from a file that may end anywhere."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.offset = 0

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes; allocates as they arrive, whatever was promised."""
        pieces: list[bytes] = []
        left = size
        while left:
            piece = self._file.read(min(left, _PIECE))
            if not piece:
                raise self.wrong("it ends early")
            pieces.append(piece)
            left -= len(piece)
            self.offset += len(piece)
        return b"".join(pieces)

    def wrong(self, reason: str) -> InvalidExport:
        return InvalidExport(
            f"{self._name} is not a whole export: {reason} (byte {self.offset:,}); export it again",
            path=self._name,
            offset=self.offset,
        )


def import_records(
    store: LiveStore, file: BinaryIO, name: str, *, check: Check, progress: Progress | None = None
) -> ImportResult:
    """Store the records of an exported file that `check` (`strangers.stranger_check`) does not refuse.

    Records are stored in batches as the file is read; `InvalidExport` says from where on nothing was taken. Units that
    refer to each other in a circle are checked together, so units that follow each other are one batch, up to 512 MiB.
    """
    result = ImportResult()
    batch: list[Record] = []
    size = 0

    def flush() -> None:
        bad = check(batch)
        result.refused.extend(bad.items())
        put = store.put([record for record in batch if record.key not in bad])
        result.stored += put.stored
        result.known += put.known
        result.refused.extend(put.refused)
        result.records += len(batch)
        batch.clear()
        if progress is not None:
            progress(result.records)

    for record in read_export(file, name):
        if batch and batch[-1].key.kind is not record.key.kind:
            flush()
            size = 0
        batch.append(record)
        size += len(record.payload) + _RECORD_BYTES
        if size >= (_UNITS_BYTES if record.key.kind is Kind.UNIT else _BATCH_BYTES):
            flush()
            size = 0
    flush()
    return result
