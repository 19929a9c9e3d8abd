"""The node's store as a client reads it: opened when it is there, never closed, and missed without anybody noticing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from gramary.cluster.kernel import Manifest, Source
from gramary.cluster.log import get_logger
from gramary.cluster.records import Key, Kind
from gramary.cluster.store import Reads, StoreError, open_reader
from gramary.runtime._core import FORMAT_VERSION
from gramary.runtime._core import Compiler as Core

RETRY_S = 5.0
CHUNK = 64
_log = get_logger("gramary.client")


class NodeStore:
    """Brings sources, units and mask entries from the node's store into a compiler. Thread-safe."""

    def __init__(self, path: Path | None, access: Literal["auto", "live", "sealed"] = "auto") -> None:
        self._path, self._access = path, access
        self._reader: Reads | None = None
        self._next_try = 0.0
        self._lock = threading.Lock()
        self.damaged = 0
        """Sources whose stored values did not fit together."""

    @property
    def reader(self) -> Reads | None:
        """The store, if it can be read now."""
        if self._reader is None and self._path is not None and time.monotonic() >= self._next_try:
            with self._lock:
                if self._reader is None:
                    self._next_try = time.monotonic() + RETRY_S
                    try:
                        self._reader = open_reader(self._path, mode=self._access)
                    except StoreError as error:
                        _log.debug("store_not_readable", path=str(self._path), reason=error.message)
        return self._reader

    def install(self, core: Core, sources: Sequence[Source]) -> tuple[list[Source], list[bytes]]:
        """Install those of `sources` that are stored whole. Errors of the store are misses.

        Returns the other sources, and the digests of units that are new in memory.
        """
        reader = self.reader
        if reader is None:
            return list(sources), []
        try:
            blobs = reader.blobs([Key(Kind.MANIFEST, source.key) for source in sources])
            found = [(source, bytes(blob)) for source, blob in zip(sources, blobs, strict=True) if blob is not None]
            units, absent = self._units(reader, core, [manifest for _, manifest in found])
        except (StoreError, ValueError, OSError) as error:
            _log.warning("store_read_failed", error=str(error))
            return list(sources), []
        whole = [
            (source, manifest)
            for source, manifest in found
            if not absent or absent.isdisjoint(Manifest.parse(manifest).units)
        ]
        done = self._take(core, whole, units)
        left = [source for source in sources if source.key not in done]
        return left, list(units) if done else []

    def _units(self, reader: Reads, core: Core, manifests: Sequence[bytes]) -> tuple[dict[bytes, bytes], set[bytes]]:
        units: dict[bytes, bytes] = {}
        absent: set[bytes] = set()
        digests = core.missing_units(manifests)
        for digest, blob in zip(digests, reader.blobs([Key(Kind.UNIT, digest) for digest in digests]), strict=True):
            if blob is None:
                absent.add(digest)
            else:
                units[digest] = bytes(blob)
        return units, absent

    def _take(self, core: Core, whole: Sequence[tuple[Source, bytes]], units: dict[bytes, bytes]) -> set[bytes]:
        if not whole:
            return set()
        given = list(units.items())
        try:
            core.install(whole, given, trusted=True)
        except ValueError:
            # One of them is not sound; the others are taken one by one.
            done = set()
            for source, manifest in whole:
                try:
                    core.install([(source, manifest)], given, trusted=True)
                    done.add(source.key)
                except ValueError as error:
                    self.damaged += 1
                    _log.warning("stored_source_damaged", source=source.key.hex(), error=str(error))
            return done
        return {source.key for source, _ in whole}

    def offer(self, core: Core, tokenizer: bytes, units: Iterable[bytes]) -> int:
        """Offer the stored mask entries of these units; returns how many there were."""
        reader = self.reader
        if reader is None:
            return 0
        offered = 0
        try:
            for unit in units:
                entries = [(unit, blob.key.slot, bytes(blob)) for blob in reader.shard(tokenizer, unit)]
                if entries:
                    offered += core.offer_entries(entries)
        except (StoreError, ValueError, OSError) as error:
            _log.warning("store_read_failed", error=str(error))
        return offered

    def install_ahead(self, core: Core, keys: Sequence[Key]) -> tuple[int, list[bytes]]:
        """Take over stored sources before anybody asks; returns how many, and the digests of their units."""
        reader = self.reader
        if reader is None:
            return 0, []
        number, fresh = 0, list[bytes]()
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            try:
                blobs = zip(part, reader.blobs(part), strict=True)
                found = [(key.digest, bytes(blob)) for key, blob in blobs if blob is not None]
                units, absent = self._units(reader, core, [manifest for _, manifest in found])
                if absent:
                    found = [one for one in found if absent.isdisjoint(Manifest.parse(one[1]).units)]
                core.install_ahead(found, list(units.items()), trusted=True)
            except (StoreError, ValueError, OSError) as error:
                _log.warning("store_read_failed", error=str(error))
                continue
            number += len(found)
            fresh += units
        return number, fresh

    def sources(self, most: int) -> list[Key]:
        """Keys of up to `most` stored sources of this format version."""
        reader = self.reader
        if reader is None:
            return []
        found: list[Key] = []
        try:
            for key in reader.keys(Kind.MANIFEST, version=FORMAT_VERSION):
                found.append(key)
                if len(found) >= most:
                    break
        except (StoreError, OSError) as error:
            _log.warning("store_read_failed", error=str(error))
        return found

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            self._path = None
