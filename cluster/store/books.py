"""The writer's books: the ledger, and what the store's file keeps of it.

`ledger` decides what to evict and touches neither disk nor clock. This is what ties it to both. The figures of every
group are stored beside the values and change in the same transactions, so that a writer that starts knows what is there
without reading it; last uses are written now and then, all at once, since a read must not cost a write; pins are not
stored at all but read out of the manifests before the first eviction, so that opening a large store stays quick.

Whoever calls holds the writer's lock.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import lmdb

from gramary.cluster.records import Kind
from gramary.cluster.store.environment import Environment
from gramary.cluster.store.errors import DiskFull, StoreFull
from gramary.cluster.store.layout import group_of, stored_key
from gramary.cluster.store.ledger import Group, Ledger
from gramary.cluster.store.reader import Reads

log = logging.getLogger(__name__)

Children = Callable[[bytes], Sequence[bytes]]
"""From a manifest's payload to the digests of the units that it needs."""

_GROUP = struct.Struct("<IQQI")  # last use, bytes, cost, values
_COARSE_S = 60
"""Last uses are persisted when they are off by this much."""


class Books:
    """Reads the figures in `environment` into `ledger`, which is empty. `children`: which units a manifest pins."""

    def __init__(self, ledger: Ledger, environment: Environment, children: Children | None) -> None:
        self.ledger = ledger
        self._children = children
        self._pins_read = children is None
        self._used: set[bytes] = set()
        self._persisted_at = time.monotonic()
        with environment.handle.begin(db=environment.groups) as txn:
            for group, data in txn.cursor():
                if len(data) == _GROUP.size and len(group) in (37, 69):
                    last_use, size, cost_ns, count = _GROUP.unpack(data)
                    ledger.load(bytes(group), Group(last_use, size, cost_ns, count))
        self._clock_base = max([int(time.time()), *(group.last_use for group in ledger.groups.values())])
        self._clock_start = time.monotonic()

    def clock(self) -> int:
        """Seconds that never run backwards, whatever becomes of the machine's clock."""
        return self._clock_base + int(time.monotonic() - self._clock_start)

    # Uses

    def use(self, group: bytes, now: int) -> None:
        """A group was used."""
        if self.ledger.touch(group, now):
            self._used.add(group)

    def uses_are_due(self) -> bool:
        """Whether what the file says of last uses is so old that it should be written again."""
        return time.monotonic() - self._persisted_at >= _COARSE_S

    def persist_uses(self, environment: Environment) -> bool:
        """Write the last uses that changed, if there is room; whether there were any."""
        used, self._used = self._used, set()
        self._persisted_at = time.monotonic()
        known = [(group, self.ledger.groups[group]) for group in sorted(used) if group in self.ledger.groups]
        if known:
            with contextlib.suppress(DiskFull, StoreFull), environment.writing() as txn:
                for group, figures in known:
                    txn.put(group, _packed(figures), db=environment.groups)
        return bool(known)

    # Pins

    def pin(self, manifest: bytes, payload: bytes) -> None:
        """A manifest (its group) was stored. Before the first eviction it need not be known what it pins."""
        if self._pins_read:
            self._pin(manifest, payload)

    def read_pins(self, store: Reads) -> None:
        """Pin what the stored manifests need, if that was not done yet."""
        if not self._pins_read:
            self._pins_read = True
            for key in list(store.keys(Kind.MANIFEST)):
                blob = store.get(key)
                if blob is not None:
                    self._pin(group_of(stored_key(key.encode())), bytes(blob))

    def _pin(self, manifest: bytes, payload: bytes) -> None:
        if self._children is None:
            return
        try:
            units = [bytes(unit) for unit in self._children(payload)]
        except Exception as error:
            log.warning("a manifest cannot be read, and pins nothing: %s", error)
            units = []
        self.ledger.pin(manifest, [unit for unit in units if len(unit) == 32])


class Changes:
    """The figures of groups as one transaction leaves them; the ledger follows when it is committed.

    `removing`: last uses stay as they are, and a group of which nothing is left goes. Otherwise it is used, `now`.
    """

    def __init__(self, ledger: Ledger, now: int, *, removing: bool = False) -> None:
        self._ledger = ledger
        self._now = now
        self._removing = removing
        self._figures: dict[bytes, Group] = {}

    def note(self, group: bytes, size: int, cost_ns: int, count: int) -> None:
        """A value of a group takes so much more, or less."""
        figures = self._figures.get(group)
        if figures is None:
            old = self._ledger.groups.get(group)
            if old is None:
                figures = Group(self._now)
            else:
                last_use = old.last_use if self._removing else self._now
                figures = Group(last_use, old.size, old.cost_ns, old.count)
            self._figures[group] = figures
        figures.size += size
        figures.cost_ns += cost_ns
        figures.count += count

    def write(self, txn: lmdb.Transaction[memoryview], groups: Any) -> None:
        """Put them into a transaction; `groups`: LMDB's database of them."""
        for group, figures in self._figures.items():
            if self._removing and figures.count <= 0:
                txn.delete(group, db=groups)
            else:
                txn.put(group, _packed(figures), db=groups)


def _packed(figures: Group) -> bytes:
    return _GROUP.pack(
        figures.last_use & 0xFFFFFFFF,
        max(figures.size, 0),
        min(max(figures.cost_ns, 0), (1 << 64) - 1),
        max(figures.count, 0),
    )
