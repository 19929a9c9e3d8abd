"""Reading a store: what the writer, readers of the live environment and readers of sealed generations share."""

from __future__ import annotations

import heapq
import os
import struct
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import lmdb

from gramary.cluster.records import Key, Kind, shard_prefix
from gramary.cluster.store.blob import Blob, Epoch
from gramary.cluster.store.environment import Environment, translated
from gramary.cluster.store.errors import StoreClosed
from gramary.cluster.store.layout import Header, HeaderError, decode_header, encoded_key, group_of, is_sound, stored_key
from gramary.runtime._core import FORMAT_VERSION

FOLLOW_SECONDS = 0.5
"""How often a reader looks whether the writer has switched to another file."""
MOST_CHECKED = 1 << 17
"""Keys whose checksums a process remembers to have checked."""
MOST_TOUCHED = 1 << 16
"""Keys that a reader remembers between two calls of `touched`."""
MOST_DAMAGED = 1 << 12
_TRIES = 5
_CHUNK = 256
"""Keys that a scan reads in one transaction."""


@dataclass
class ReadStats:
    """What reading has counted since the store was opened, in this process."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    """Values whose checksum or header was wrong; each was a miss."""
    switches: int = 0
    """How often the writer's file was followed to another."""

    def as_dict(self) -> dict[str, int]:
        """For JSON and metrics."""
        return asdict(self)


class Reads(ABC):
    """Lookups, over one environment or several of which the first that has a key answers.

    Safe for threads; each has its own transactions. In a forked child it opens its own handles on first use.
    """

    mode: str
    """ "live" or "sealed"."""
    _all: ClassVar[weakref.WeakSet[Reads]] = weakref.WeakSet()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.reads = ReadStats()
        self._environments: tuple[Environment, ...] = ()
        self._follow_at = 0.0
        self._pid = os.getpid()
        self._closed = False
        self._opening = threading.RLock()
        self._checked: set[bytes] = set()
        self._touched: set[bytes] = set()
        self._damaged: dict[bytes, None] = {}
        Reads._all.add(self)

    @abstractmethod
    def _open(self) -> tuple[Environment, ...]:
        """The environments to read from now: those open already where nothing changed. Called with the lock held."""

    def _current(self) -> tuple[Environment, ...]:
        now = time.monotonic()
        if now >= self._follow_at:
            with self._opening:
                if self._closed:
                    raise StoreClosed(f"{self.path} is closed", path=str(self.path))
                if self._pid != os.getpid():
                    self._forked()
                before = self._environments
                self._environments = self._open()
                if self._environments != before:
                    if before:
                        self.reads.switches += 1
                    self._checked.clear()
                    for one in before:
                        if one not in self._environments:
                            one.close()
                self._follow_at = now + FOLLOW_SECONDS
        return self._environments

    def _forked(self) -> None:
        self._pid = os.getpid()
        self._opening = threading.RLock()
        self._environments = ()
        self._follow_at = 0.0

    @contextmanager
    def _holding(self) -> Iterator[tuple[Environment, ...]]:
        """The environments to read from, kept open meanwhile: another thread may be following the writer."""
        for attempt in range(_TRIES):
            environments = self._current()
            with ExitStack() as stack:
                try:
                    for one in environments:
                        stack.enter_context(one.held())
                except StoreClosed:
                    if self._closed or attempt == _TRIES - 1:
                        raise
                    self._follow_at = 0.0
                    continue
                yield environments
                return

    def get(self, key: Key) -> Blob | None:
        """The value of `key`, in place; `None` where there is none, or where it is damaged.

        Raises `StoreClosed`, and `StoreUnavailable` where the store cannot be opened.
        """
        try:
            return self._get(key)
        except StoreClosed:  # another thread followed the writer, and closed what this one was about to read
            if self._closed:
                raise
            with self._holding():
                return self._get(key)

    def _get(self, key: Key) -> Blob | None:
        raw = key.encode()
        stored = stored_key(raw)
        for environment in self._current():
            epoch = environment.epoch()
            value = epoch.txn.get(stored)
            if value is None:  # it may have been put since the epoch began
                newer = environment.newer(epoch)
                if newer is not None:
                    epoch = newer
                    value = epoch.txn.get(stored)
            if value is not None and self._is_hit(value, raw, stored):
                return Blob(epoch, key, value)
        self.reads.misses += 1
        return None

    def _is_hit(self, value: memoryview, raw: bytes, stored: bytes) -> bool:
        if stored not in self._checked and not self._check(value, raw, stored):
            return False
        self.reads.hits += 1
        if len(self._touched) < MOST_TOUCHED:
            self._touched.add(stored)
        return True

    def _check(self, value: memoryview, raw: bytes, stored: bytes) -> bool:
        try:
            header = decode_header(value, raw)
            sound = is_sound(value, header)
        except HeaderError:
            sound = False
        if not sound:
            self.reads.damaged += 1
            if len(self._damaged) < MOST_DAMAGED:
                self._damaged[stored] = None
            return False
        if len(self._checked) >= MOST_CHECKED:
            self._checked.clear()
        self._checked.add(stored)
        return True

    def header(self, key: Key) -> Header | None:
        """The header of `key`'s value, without reading the payload."""
        raw = key.encode()
        with self._holding() as environments:
            for environment in environments:
                epoch = environment.newest()  # held until its value was looked at
                value = epoch.txn.get(stored_key(raw))
                if value is not None:
                    with suppress(HeaderError):
                        return decode_header(value, raw)
        return None

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those of `keys` that are not there, in order. Payloads are not read, so a damaged one counts as there."""
        found = []
        with self._holding() as environments:
            epochs = [environment.newest() for environment in environments]
        for key in keys:
            stored = stored_key(key.encode())
            if stored in self._damaged or not any(epoch.txn.get(stored) is not None for epoch in epochs):
                found.append(key)
        return found

    def shard(
        self, tokenizer: bytes, unit: bytes, version: int = FORMAT_VERSION, *, after: bytes = b""
    ) -> Iterator[Blob]:
        """Every mask entry of a unit and a tokenizer, in order of encoded keys; damaged ones are left out.

        `after`: an encoded key; only those behind it are given, so that a stream that broke can go on. `ValueError` if
        it is no key. What is written meanwhile may or may not be seen.
        """
        prefix = shard_prefix(tokenizer, unit, version)
        for stored, value, epoch in self._scan(prefix, after):
            try:
                raw = encoded_key(stored)
                key = Key.decode(raw)
            except ValueError:
                continue
            if self._is_hit(value, raw, stored):
                yield Blob(epoch, key, value)

    def with_entries(self, tokenizer: bytes, units: Iterable[bytes], version: int = FORMAT_VERSION) -> set[bytes]:
        """Those of `units` of which there is any mask entry for a tokenizer. Entries are not read."""
        found = set()
        with self._holding() as environments:
            epochs = [environment.newest() for environment in environments]
            for epoch in epochs:
                with translated(epoch.path), epoch.txn.cursor() as cursor:
                    for unit in units:
                        prefix = shard_prefix(tokenizer, unit, version)
                        if cursor.set_range(prefix) and bytes(cursor.key()).startswith(prefix):
                            found.add(unit)
        return found

    def keys(
        self,
        kind: Kind | None = None,
        *,
        tokenizer: bytes | None = None,
        version: int | None = None,
        after: bytes = b"",
    ) -> Iterator[Key]:
        """Keys in order, of one kind, format version (and then tokenizer) if these are given."""
        prefix = b""
        if kind is not None:
            prefix = bytes([kind])
            if version is not None:
                prefix += struct.pack(">I", version)
                if tokenizer is not None and kind is Kind.ENTRY:
                    prefix += tokenizer
        for stored, _, _ in self._scan(prefix, after):
            try:
                key = Key.decode(encoded_key(stored))
            except ValueError:
                continue
            if version in (None, key.version) and (tokenizer is None or key.tokenizer == tokenizer):
                yield key

    def blobs(self, keys: Iterable[Key]) -> list[Blob | None]:
        """`get` of each, all in one look at the store."""
        with self._holding() as environments:
            epochs = [environment.newest() for environment in environments]
        found: list[Blob | None] = []
        for key in keys:
            raw = key.encode()
            stored = stored_key(raw)
            blob = None
            for epoch in epochs:
                value = epoch.txn.get(stored)
                if value is not None and self._is_hit(value, raw, stored):
                    blob = Blob(epoch, key, value)
                    break
            else:
                self.reads.misses += 1
            found.append(blob)
        return found

    def _scan(self, prefix: bytes, after: bytes) -> Iterator[tuple[bytes, memoryview, Epoch]]:
        """Stored keys with this prefix, behind the encoded key `after`, in order, each once."""
        start = prefix
        if after:
            start = stored_key(Key.decode(after).encode())
            if start > prefix and not start.startswith(prefix):
                return
            start = max(start, prefix)
        with self._holding() as environments:
            if len(environments) == 1:
                yield from _walk(environments[0], prefix, start, bool(after))
                return
            last = None
            walks = [_walk(one, prefix, start, bool(after)) for one in environments]
            for item in heapq.merge(*walks, key=lambda found: found[0]):
                if item[0] != last:
                    last = item[0]
                    yield item

    def touched(self) -> list[Key]:
        """What was read since the last call, one key for each group that is evicted together: for `LiveStore.touch`."""
        touched, self._touched = self._touched, set()
        return [Key.decode(encoded_key(stored)) for stored in {group_of(one): one for one in touched}.values()]

    def damaged(self) -> list[Key]:
        """What was found damaged since the last call: for `LiveStore.recheck`."""
        found, self._damaged = self._damaged, {}
        return [Key.decode(encoded_key(stored)) for stored in found]

    def forget_checked(self) -> None:
        """Check every value's checksum again when it is read next."""
        self._checked.clear()

    def environments(self) -> tuple[Environment, ...]:
        """What is read from now, newest first."""
        return self._current()

    def close(self) -> None:
        """Let go of the store. Blobs that are held stay valid: what they need is closed with the last of them."""
        with self._opening:
            self._closed = True
            self._follow_at = 0.0
            if self._pid == os.getpid():
                for environment in self._environments:
                    environment.close()
            self._environments = ()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def _forked_all(cls) -> None:
        for reader in list(cls._all):
            reader._forked()


os.register_at_fork(after_in_child=Reads._forked_all)


def _walk(
    environment: Environment, prefix: bytes, start: bytes, beyond: bool
) -> Iterator[tuple[bytes, memoryview, Epoch]]:
    """A scan in pieces, each in an epoch of its own, so that a slow caller does not hold one transaction for long."""
    while True:
        epoch = environment.newest()
        found: list[tuple[bytes, memoryview]] = []
        more = False
        with translated(environment.path):
            cursor: lmdb.Cursor[memoryview] = epoch.txn.cursor()
            if cursor.set_range(start) if start else cursor.first():
                for key, value in cursor.iternext():
                    stored = bytes(key)
                    if not stored.startswith(prefix):
                        break
                    if len(found) == _CHUNK:
                        more = True
                        break
                    if not (beyond and stored == start):
                        found.append((stored, value))
            cursor.close()
        for stored, value in found:
            yield stored, value, epoch
        if not more:
            return
        start, beyond = found[-1][0], True
        del epoch
