"""The writer of a node's store: what it commits, removes, evicts and tidies.

What it knows of what is there is in its books (`books`), what goes is the ledger's choice (`ledger`), how much may stay
is the room's (`room`), and whether the file can be trusted at the start is the claim's (`claim`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Literal

import lmdb

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import paths
from gramary.cluster.store.batch import Encoded, batches
from gramary.cluster.store.books import Books, Changes, Children
from gramary.cluster.store.claim import CheckAt, Claim, next_name
from gramary.cluster.store.environment import MAP_BYTES, Environment, cannot_write, translated
from gramary.cluster.store.errors import DiskFull, StoreClosed, StoreError, StoreFull
from gramary.cluster.store.feed import Feed, News
from gramary.cluster.store.layout import (
    HeaderError,
    decode_header,
    encoded_key,
    group_of,
    is_sound,
    page_bytes_of,
    stored_key,
)
from gramary.cluster.store.ledger import Ledger
from gramary.cluster.store.reader import Reads, _walk
from gramary.cluster.store.room import Room
from gramary.cluster.store.stats import PutResult, StoreStats

log = logging.getLogger(__name__)

_REMOVED_AT_ONCE = 64


class LiveStore(Reads):
    """The one writer of a node's store; it reads too. Safe for threads; useless in a forked child (`StoreClosed`).

    `budget_bytes`: live pages that may be kept; from `high_ratio` of it on, evict down to `low_ratio`. `children`:
    tells which units a manifest pins. `min_free_bytes`: of the disk, never to be used. `sync_every_s`: how much an
    operating system's crash may cost; a crash of processes costs nothing that `put` has returned for. `grace_s`: from
    choosing a victim to removing it. `cost_bonus_s`: see `ledger`. `feed_keys`: how many commits `watch` remembers.
    `check`: when to verify the file at start: after an unclean end, always, or never.

    Raises `StoreLocked` if another writer lives, `StoreDamaged` for a directory of another layout.
    """

    mode = "live"

    def __init__(
        self,
        path: str | os.PathLike[str],
        budget_bytes: int,
        *,
        children: Children | None = None,
        high_ratio: float = 0.90,
        low_ratio: float = 0.75,
        map_bytes: int = MAP_BYTES,
        min_free_bytes: int = 256 << 20,
        sync_every_s: float = 5.0,
        grace_s: int = 60,
        cost_bonus_s: float = 600.0,
        feed_keys: int = 1 << 16,
        check: CheckAt = "dirty",
    ) -> None:
        super().__init__(path)
        if budget_bytes <= 0:
            raise ValueError("the budget of a store is a positive number of bytes")
        if not 0 < low_ratio < high_ratio <= 1:
            raise ValueError("watermarks are shares of the budget, the low one below the high one")
        self.room = Room(self.path, budget_bytes, map_bytes, min_free_bytes)
        self.high_ratio = high_ratio
        self.low_ratio = low_ratio
        self.grace_s = grace_s
        self.sync_every_s = sync_every_s
        self.counters = StoreStats()
        self.ledger = Ledger(cost_bonus_s)
        self.feed = Feed(feed_keys)
        self.unsealed: set[bytes] | None = None
        """Stored keys that no sealed generation has; `None`: unknown, the next one is a full copy."""
        self.writing = threading.RLock()
        self.sealing = threading.Lock()
        self._sync_at = 0.0
        self._dirty = False
        try:
            self._claim = Claim(self.path)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            self.room.ease()
            opened = self._claim.open(check, map_bytes)
            self._environment = opened.environment
            self.counters.wiped += opened.wiped
            self._quarantine = self._claim.quarantine()
            self._books = Books(self.ledger, opened.environment, children)
            self.room.make_ballast()
            self._sync_at = time.monotonic() + self.sync_every_s
            if opened.scrub:
                self.scrub()
        except BaseException as error:
            self._claim.drop()
            if isinstance(error, OSError):
                raise cannot_write(self.path, error) from error
            raise

    def _open(self) -> tuple[Environment, ...]:
        return (self._environment,)

    def _forked(self) -> None:
        super()._forked()
        self._closed = True
        self.writing = threading.RLock()
        self._claim.drop()

    def current_environment(self) -> Environment:
        """The environment that is written to now."""
        return self._writable()

    def _writable(self) -> Environment:
        if self._closed or self._pid != os.getpid():
            raise StoreClosed(f"{self.path} is closed, or belongs to the parent process", path=str(self.path))
        return self._environment

    def close(self) -> None:
        """Sync, mark the store clean, and let the next writer in. Blobs that are held stay valid."""
        with self.writing:
            if self._closed:
                return
            try:
                self._dirty |= self._books.persist_uses(self._environment)
                self.sync()
                self.room.ease()
                with contextlib.suppress(OSError):  # then the next writer verifies what it finds
                    self._claim.mark_clean()
            finally:
                if self._environment not in self._environments:  # it was never read from
                    self._environment.close()
                super().close()
                self._claim.drop()
                self.feed.close()

    # Writing

    def put(self, records: Iterable[Record]) -> PutResult:
        """Store records. When this returns they are committed and survive the end of any process.

        What is there already is counted as known, whatever its MAC and origin. Another payload under a key that is
        there is an alarm: counted, refused, logged. Raises `StoreFull` and `DiskFull`; batches before that stay
        committed.
        `ValueError` for a payload or name that is too long.
        """
        result = PutResult()
        stored = known = 0
        for batch in batches(records):
            with self.writing:
                one = self._put(batch)
            stored, known = stored + one.stored, known + one.known
            result.refused.extend(one.refused)
        return PutResult(stored, known, result.refused)

    def _put(self, batch: list[Encoded]) -> PutResult:
        environment = self._writable()
        result = PutResult()
        if self._quarantine:
            held = [item for item in batch if item.record.origin in self._quarantine]
            result.refused.extend((item.record.key, "quarantined") for item in held)
            self.counters.refused += len(held)
            batch = [item for item in batch if item.record.origin not in self._quarantine]
        self._make_room(sum(item.page_bytes for item in batch))
        now = self.clock()
        new: list[Encoded] = []
        changes = Changes(self.ledger, now)
        known = healed = 0
        conflicts: list[Key] = []
        try:
            with environment.writing() as txn:
                for item in batch:
                    if txn.put(item.stored, item.value, overwrite=False):
                        new.append(item)
                        changes.note(item.group, item.page_bytes, item.record.cost_ns, 1)
                        continue
                    there = txn.get(item.stored, default=b"")
                    verdict = self._compare(there, item)
                    if verdict == "same":
                        known += 1
                    elif verdict == "damaged":
                        healed += 1
                        changes.note(item.group, item.page_bytes - page_bytes_of(item.stored, len(there)), 0, 0)
                        txn.put(item.stored, item.value)
                    else:
                        conflicts.append(item.record.key)
                changes.write(txn, environment.groups)
        except (StoreFull, DiskFull) as error:
            self._count_full(error)
            raise
        self._committed(environment)
        for item in new:
            self.ledger.add(item.group, item.page_bytes, item.record.cost_ns, now)
            self._checked.add(item.stored)
            self._damaged.pop(item.stored, None)
            if self.unsealed is not None:
                self.unsealed.add(item.stored)
            if item.record.key.kind is Kind.MANIFEST:
                self._books.pin(item.group, item.record.payload)
        for item in batch:
            self._books.use(item.group, now)
        self.counters.stored += len(new)
        self.counters.stored_bytes += sum(len(item.record.payload) for item in new)
        self.counters.known += known
        self.counters.healed += healed
        self.counters.conflicts += len(conflicts)
        for key in conflicts:
            log.error("another payload for %s %s was refused", key.kind.name, key.digest.hex())
        result.refused.extend((key, "conflict") for key in conflicts)
        self.feed.add([item.record.key for item in new])
        return PutResult(len(new), known + healed, result.refused)

    def _compare(self, there: memoryview | bytes, item: Encoded) -> Literal["same", "other", "damaged"]:
        try:
            old = decode_header(there, item.raw)
            if item.stored not in self._checked and not is_sound(there, old):
                return "damaged"
        except HeaderError:
            return "damaged"
        new = decode_header(memoryview(item.value), item.raw)
        self._checked.add(item.stored)
        return "same" if (old.length, old.checksum) == (new.length, new.checksum) else "other"

    def _committed(self, environment: Environment) -> None:
        self._dirty = True
        # A page that a transaction took and gave back may lie behind the file's end. Nobody reads it, but then the
        # file looks truncated to whoever checks it before mapping.
        data = os.path.join(environment.path, "data.mdb")
        if os.stat(data).st_size < environment.file_bytes:
            os.truncate(data, environment.file_bytes)
        if time.monotonic() >= self._sync_at:
            self.sync()

    def _count_full(self, error: StoreError) -> None:
        if isinstance(error, DiskFull):
            self.counters.disk_full += 1
        else:
            self.counters.full += 1

    def _make_room(self, needed: int) -> None:
        """Evict if it must be; raise `StoreFull` or `DiskFull` if there is no room for `needed` bytes then."""
        file = self._environment.file_bytes
        lacking, _ = self.room.lacking(needed, self._environment.live_bytes(), file)
        if lacking <= 0:
            return
        if self.room.lacking(needed, 0, file)[0] <= 0:  # otherwise all would be evicted for nothing
            self.evict(lacking, grace_s=0)
        lacking, of_disk = self.room.lacking(needed, self._environment.live_bytes(), file)
        if lacking > 0:
            error = self.room.error(needed, of_disk)
            self._count_full(error)
            raise error

    def remove(self, keys: Iterable[Key]) -> int:
        """Remove values; returns how many were there. Views that are held stay as they are.

        The next sealed generation is a full copy, without them.
        """
        return self._removed_for_good([stored_key(key.encode()) for key in keys])

    def _removed_for_good(self, stored: list[bytes]) -> int:
        removed = self._remove(stored)
        if removed:
            self.unsealed = None
        return removed

    def recheck(self, keys: Iterable[Key]) -> int:
        """Remove those of `keys` whose values are damaged, as readers report it; returns how many were."""
        bad = []
        for key in keys:
            raw = key.encode()
            stored = stored_key(raw)
            epoch = self._writable().newest()  # held until its value was looked at
            value = epoch.txn.get(stored)
            if value is not None and not _is_good(value, raw):
                bad.append(stored)
        removed = self._removed_for_good(bad)
        self.counters.damaged += removed
        return removed

    def scrub(self) -> int:
        """Check every value's checksum and remove the damaged; returns how many there were."""
        bad = []
        for stored, value, _ in _walk(self._writable(), b"", b"", False):
            try:
                good = _is_good(value, encoded_key(stored))
            except ValueError:
                good = False
            if not good:
                bad.append(stored)
        removed = self._removed_for_good(bad)
        self.counters.damaged += removed
        return removed

    def _remove(self, stored: list[bytes]) -> int:
        removed = 0
        for start in range(0, len(stored), _REMOVED_AT_ONCE):
            batch = stored[start : start + _REMOVED_AT_ONCE]
            with self.writing:
                try:
                    removed += self._remove_batch(batch)
                except (DiskFull, StoreFull):
                    if not self.room.drop_ballast():
                        raise
                    removed += self._remove_batch(batch)
        return removed

    def _remove_batch(self, batch: list[bytes]) -> int:
        environment = self._writable()
        gone: list[tuple[bytes, int, int]] = []
        changes = Changes(self.ledger, self.clock(), removing=True)
        with environment.writing() as txn:
            for stored in batch:
                value = txn.get(stored)
                if value is None:
                    continue
                size, cost_ns = page_bytes_of(stored, len(value)), int.from_bytes(value[16:24], "little")
                gone.append((stored, size, cost_ns))
                changes.note(group_of(stored), -size, -cost_ns, -1)
                txn.delete(stored)
            changes.write(txn, environment.groups)
        self._committed(environment)
        for stored, size, cost_ns in gone:
            self.ledger.drop(group_of(stored), size, cost_ns)
            self._checked.discard(stored)
            self._damaged.pop(stored, None)
            if self.unsealed is not None:
                self.unsealed.discard(stored)
        return len(gone)

    def sync(self) -> None:
        """Have everything on the disk: from here on an operating system's crash costs nothing of it."""
        with self.writing:
            if self._dirty:
                environment = self._writable()
                with translated(environment.path):
                    environment.handle.sync(True)
                self._dirty = False
                self.counters.syncs += 1
            self._sync_at = time.monotonic() + self.sync_every_s

    # Use, eviction, upkeep

    def clock(self) -> int:
        """Seconds that never run backwards, whatever becomes of the machine's clock."""
        return self._books.clock()

    def touch(self, keys: Iterable[Key]) -> None:
        """These were used, here or by a reader (`StoreReader.touched`)."""
        now = self.clock()
        with self.writing:
            for key in keys:
                self._books.use(group_of(stored_key(key.encode())), now)

    def evict(self, needed: int | None = None, *, grace_s: int | None = None) -> int:
        """Evict down to the low watermark if the high one is passed, or until `needed` bytes are free.

        Returns the bytes that were freed now; what was only marked is removed by a later call, after the grace period.
        """
        with self.writing:
            environment = self._writable()
            grace = self.grace_s if grace_s is None else grace_s
            now = self.clock()
            if needed is None:
                live = environment.live_bytes()
                if live >= self.high_ratio * self.room.budget_bytes:
                    needed = live - int(self.low_ratio * self.room.budget_bytes)
                elif not self.ledger.marked:
                    return 0
            self._books.read_pins(self)
            for key in self.touched():
                self.ledger.touch(group_of(stored_key(key.encode())), now)
            if needed is not None:
                self.ledger.mark(needed, now)
            freed = 0
            for group in self.ledger.due(now, grace):
                if needed is not None and grace == 0 and freed >= needed:
                    break
                figures = self.ledger.groups.get(group)
                if figures is None or self.ledger.is_pinned(group):
                    continue
                size = figures.size
                keys = [stored for stored, _, _ in _walk(environment, group, group, False)]
                self.counters.evicted += self._remove(keys)
                if group in self.ledger.groups:  # nothing of it is there any more, whatever was recorded
                    self.ledger.forget(group)
                freed += size
            self.counters.evicted_bytes += freed
            return freed

    def maintain(self) -> None:
        """What is to be done every few seconds: sync, clear dead readers, remove damage, evict, and compact."""
        with self.writing:
            environment = self._writable()
            self.counters.stale_readers += environment.handle.reader_check()
            if self._damaged:
                self.recheck(self.damaged())
            self.touch(self.touched())
            if self._books.uses_are_due():
                self._dirty |= self._books.persist_uses(environment)
            self.evict()
            self.room.make_ballast()
            if time.monotonic() >= self._sync_at:
                self.sync()
            if environment.file_bytes > 1.5 * self.room.budget_bytes and self.can_compact():
                self.compact()

    def can_compact(self) -> bool:
        """Whether the disk has room for a second copy of what is live."""
        return self.room.free_disk_bytes() - self._environment.live_bytes() > self.room.min_free_bytes

    def compact(self) -> int:
        """Copy what is live into a new file, and switch to it; returns by how many bytes the store shrank.

        Readers follow within half a second; what they hold stays valid. Raises `DiskFull` if there is no room for both.
        """
        with self.writing:
            old = self._writable()
            if not self.can_compact():
                raise DiskFull(
                    f"the disk of {self.path} has no room for a second copy of the store",
                    path=str(self.path),
                    free_bytes=self.room.free_disk_bytes(),
                )
            name = next_name(os.path.basename(old.path))
            target = self.path / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            try:
                old.handle.copy(str(target), compact=True)
                new = Environment.open(target, writable=True, map_bytes=self.room.map_bytes)
                new.handle.sync(True)
                self._claim.switch(name)
            except (lmdb.Error, OSError, StoreError) as error:
                shutil.rmtree(target, ignore_errors=True)
                raise DiskFull(f"{self.path} could not be compacted: {error}", path=str(self.path)) from error
            before = old.file_bytes
            self._environment = new
            self._follow_at = 0.0
            if old not in self._environments:
                old.close()
            self._current()
            shutil.rmtree(old.path, ignore_errors=True)
            self.counters.compactions += 1
            return before - new.file_bytes

    def quarantine(self, origin: str) -> int:
        """Refuse what this origin claims to have built, and remove what is there of it; returns how much that was."""
        with self.writing:
            self._quarantine.add(origin)
            paths.write_json(self.path / paths.QUARANTINE, {"origins": sorted(self._quarantine)})
            bad = []
            for stored, value, _ in _walk(self._writable(), b"", b"", False):
                with contextlib.suppress(HeaderError, ValueError):
                    if decode_header(value, encoded_key(stored)).origin == origin:
                        bad.append(stored)
            return self._removed_for_good(bad)

    def pardon(self, origin: str) -> None:
        """Take an origin off the quarantine list."""
        with self.writing:
            self._quarantine.discard(origin)
            paths.write_json(self.path / paths.QUARANTINE, {"origins": sorted(self._quarantine)})

    @property
    def budget_bytes(self) -> int:
        """Of live pages that may be kept."""
        return self.room.budget_bytes

    @property
    def quarantined(self) -> frozenset[str]:
        """Origins that nothing is taken from."""
        return frozenset(self._quarantine)

    # Telling

    def watch(self, since: int, most: int = 1000) -> News:
        """Keys committed after sequence number `since`, the oldest first."""
        return self.feed.read(since, most)

    def stats(self) -> StoreStats:
        """Counters and gauges, as of now."""
        with self._holding() as (environment,):
            info = environment.handle.info()
            slots = environment.reader_transactions()
            with environment.handle.begin() as txn:
                values = txn.stat(environment.values)["entries"]
                live = environment.live_bytes(txn)
            given = asdict(self.counters) | {
                "values": values,
                "live_bytes": live,
                "file_bytes": environment.file_bytes,
                "budget_bytes": self.room.budget_bytes,
                "free_disk_bytes": self.room.free_disk_bytes(),
                "marked_bytes": sum(self.ledger.groups[group].size for group in list(self.ledger.marked)),
                "readers": len(slots),
                "reader_lag": max((info["last_txnid"] - txnid for txnid in slots if txnid is not None), default=0),
                "quarantined": len(self._quarantine),
                "sequence": self.feed.sequence,
                "hits": self.reads.hits,
                "misses": self.reads.misses,
            }
        return StoreStats(**given)


def _is_good(value: memoryview, raw: bytes) -> bool:
    try:
        return is_sound(value, decode_header(value, raw))
    except HeaderError:
        return False
