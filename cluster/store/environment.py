"""Opening LMDB such that it cannot hurt: one handle a file and process, checked before it is mapped, fork-safe.

The traps that this module is for (each was tried): opening one environment twice in a process breaks its locks; a
mapping of a truncated file is a SIGBUS; a forked child that uses or closes its parent's handle breaks the parent's
protection; closing an environment unmaps what is still being read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar
from weakref import WeakSet, ref

import lmdb

from gramary.cluster.store.blob import Epoch, leak
from gramary.cluster.store.errors import (
    DiskFull,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnavailable,
)
from gramary.cluster.store.layout import GROUPS, VALUES

MAP_BYTES = 1 << 40
"""Address space that a store's mapping takes; the file is as large as what is in it."""
EPOCH_SECONDS = 0.5
MOST_READERS = 1024

_META = struct.Struct("<IIQQ")  # magic, version, address, map size; at byte 16 of pages 0 and 1
_LMDB_MAGIC = 0xBEEFC0DE
# EIO is what LMDB makes of a short write.
_OUT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.NotFoundError,
    lmdb.IncompatibleError,
    lmdb.PanicError,
)


@dataclass(frozen=True)
class Meta:
    """What the first pages of an LMDB file say."""

    page_bytes: int
    map_bytes: int
    last_page: int
    file_bytes: int

    @property
    def truncated(self) -> bool:
        """The file ends before its last page: touching what is missing would be a SIGBUS."""
        return self.file_bytes < (self.last_page + 1) * self.page_bytes


def read_meta(path: Path) -> Meta:
    """The newer meta page of an LMDB 0.9 file, read without LMDB. Raises `StoreUnavailable` or `StoreDamaged`."""
    try:
        with path.open("rb") as file:
            head = file.read(160)
            (page_bytes,) = struct.unpack_from("<I", head.ljust(160, b"\0"), 40)
            size = os.fstat(file.fileno()).st_size
            second = b""
            if 512 <= page_bytes <= 1 << 16:
                file.seek(page_bytes)
                second = file.read(160)
    except FileNotFoundError as error:
        raise StoreUnavailable(f"{path} is not there", path=str(path)) from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
    newest = (-1, 0, 0)
    for page in (head, second):
        if len(page) == 160:
            magic, version, _, map_bytes = _META.unpack_from(page, 16)
            last, txnid = struct.unpack_from("<QQ", page, 136)
            if magic == _LMDB_MAGIC and version == 1:
                newest = max(newest, (txnid, last, map_bytes))
    if newest[0] < 0:
        raise StoreDamaged(f"{path} is no LMDB file: remove it, what it held can be built again", path=str(path))
    return Meta(page_bytes, newest[2], newest[1], size)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn LMDB's errors into this package's."""
    try:
        yield
    except lmdb.Error as error:
        raise store_error(error, path) from error


def store_error(error: lmdb.Error, path: str) -> StoreError:
    """This package's error for one of LMDB's."""
    if isinstance(error, lmdb.MapFullError):
        return StoreFull(f"the map of {path} is full: lower the budget, or open the store with a larger map", path=path)
    if isinstance(error, lmdb.ReadersFullError):
        return StoreUnavailable(f"{path} has as many readers as it can ({MOST_READERS})", path=path)
    if isinstance(error, lmdb.LockError):
        return StoreUnavailable(
            f"{path} cannot be locked: processes of several PID namespaces use it; read its sealed generations",
            path=path,
        )
    if error.code == errno.ENOENT:
        return StoreUnavailable(f"{path} is not there any more", path=path)
    if isinstance(error, lmdb.MemoryError):
        return StoreError(
            f"there is no address space to map {path}: raise ulimit -v, or open it with a smaller map", path=path
        )
    if isinstance(error, _DAMAGE):
        return StoreDamaged(f"{path} is damaged ({error}): gramary store verify", path=path)
    if isinstance(error, lmdb.DiskError) or error.code in _OUT_OF_ROOM:
        return DiskFull(f"the disk of {path} is full: {error}", path=path)
    return StoreError(f"{path}: {error}", path=path)


def cannot_write(path: Path, error: OSError) -> StoreError:
    """This package's error for a failed file operation of the writer."""
    if error.errno in _OUT_OF_ROOM:
        return DiskFull(f"the disk of {path} is full: {error.strerror}", path=str(path))
    return StoreUnavailable(f"{path} cannot be written: {error.strerror}", path=str(path))


class _Current(threading.local):
    """The epoch of each thread that takes new blobs. Weak: it ends with the last blob, not with the next call."""

    epoch: Callable[[], Epoch | None] = staticmethod(lambda: None)


class Environment:
    """One open LMDB file of this process, shared by whoever opens the same one.

    It is closed when nobody holds it open and the last epoch has ended.
    """

    _open: ClassVar[dict[tuple[str, int, int], Environment]] = {}
    _all: ClassVar[WeakSet[Environment]] = WeakSet()
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, path: str, writable: bool, handle: lmdb.Environment) -> None:
        self.path = path
        self.writable = writable
        self.handle = handle
        self.inherited = False
        self._identity = ("", 0, 0)
        self._users = 1
        self._busy = 0
        self._closed = False
        self._current = _Current()
        with translated(path):
            self.values: Any = handle.open_db(VALUES, create=writable)
            self.groups: Any = handle.open_db(GROUPS, create=writable)
        Environment._all.add(self)

    @classmethod
    def open(
        cls, path: Path, *, writable: bool = False, map_bytes: int = MAP_BYTES, sealed: bool = False
    ) -> Environment:
        """Open the environment in a directory, or (`sealed`) in an immutable file.

        Raises `StoreUnavailable`, `StoreDamaged`, or `StoreLocked` if this process reads it already and now wants to
        write.
        """
        name = str(path.resolve())
        data = path if sealed else path / "data.mdb"
        with cls._lock:
            there = cls._open.get(_identity(name, data))
            if there is not None:
                if there.inherited:
                    raise StoreUnavailable(
                        f"{name} was open, and something read from it was held, when this process was forked: let go of"
                        " blobs before forking, or start processes by spawning",
                        path=name,
                    )
                if writable and not there.writable:
                    raise StoreLocked(
                        f"this process reads {name} already: open the writer first, or close the reader", path=name
                    )
                there._users += 1
                there._closed = False
                return there
            if not writable or data.exists():
                meta = read_meta(data)
                if meta.truncated:
                    raise StoreDamaged(f"{data} is truncated: gramary store verify", path=name)
                if not writable:
                    map_bytes = meta.map_bytes
            with translated(name):
                handle = lmdb.open(
                    name,
                    map_size=map_bytes,
                    subdir=not sealed,
                    readonly=not writable,
                    lock=not sealed,
                    create=writable,
                    metasync=False,
                    sync=False,
                    meminit=True,
                    readahead=False,
                    writemap=False,
                    max_dbs=8,
                    max_readers=MOST_READERS,
                    max_spare_txns=0,
                )
            try:
                made = cls(name, writable, handle)
            except BaseException:
                handle.close()
                raise
            made._identity = _identity(name, data)
            cls._open[made._identity] = made
            return made

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it open meanwhile, even if its users turn to another. Raises `StoreClosed` if they all have already."""
        with Environment._lock:
            if self._closed or self.inherited:
                raise StoreClosed(f"{self.path} is closed", path=self.path)
            self._users += 1
        try:
            yield
        finally:
            self.close()

    def epoch(self) -> Epoch:
        """The epoch of this thread that takes new blobs; a new one if the last has ended or is too old."""
        epoch = self._current.epoch()
        if epoch is None or monotonic() >= epoch.ends:
            return self._renew()
        return epoch

    def newer(self, epoch: Epoch) -> Epoch | None:
        """One that sees what was committed since `epoch` began; `None` if nothing was."""
        if self.handle.info()["last_txnid"] == epoch.txn.id():
            return None
        return self._renew()

    def _renew(self) -> Epoch:
        epoch = self.new_epoch()
        self._current.epoch = ref(epoch)
        return epoch

    def newest(self) -> Epoch:
        """Like `epoch`, but one that sees all that is committed."""
        epoch = self.epoch()
        return self.newer(epoch) or epoch

    def new_epoch(self) -> Epoch:
        """An epoch of its own, with the newest committed state."""
        with Environment._lock:
            if self._closed or self.inherited:
                raise StoreClosed(f"{self.path} is closed", path=self.path)
            self._busy += 1  # before the transaction begins: a fork in between must find it counted
        try:
            txn = self.handle.begin(self.values, None, False, True)
        except BaseException as error:
            self.ended()
            if isinstance(error, lmdb.Error):
                raise store_error(error, self.path) from error
            raise
        return Epoch(self, txn, monotonic() + EPOCH_SECONDS)

    @contextmanager
    def writing(self) -> Iterator[lmdb.Transaction[memoryview]]:
        """A write transaction, committed at the end, undone by an exception."""
        with Environment._lock:
            if self._closed or self.inherited:
                raise StoreClosed(f"{self.path} is closed", path=self.path)
            self._busy += 1
        try:
            with translated(self.path), self.handle.begin(db=self.values, write=True, buffers=True) as txn:
                yield txn
        finally:
            self.ended()

    def ended(self) -> None:
        """One epoch or write has ended."""
        with Environment._lock:
            self._busy -= 1
            if self._closed:
                self._close_if_unused()

    def close(self) -> None:
        """One user less."""
        with Environment._lock:
            self._users -= 1
            if self._users <= 0:
                self._closed = True
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._closed and not self._busy and not self.inherited and self._users <= 0:
            if Environment._open.get(self._identity) is self:
                del Environment._open[self._identity]
            self.handle.close()

    def __del__(self) -> None:
        if self.inherited:
            leak(self.handle)

    @property
    def file_bytes(self) -> int:
        """Size of the data file; it never shrinks."""
        info = self.handle.info()
        return (info["last_pgno"] + 1) * self.handle.stat()["psize"]

    def live_bytes(self, txn: lmdb.Transaction[Any] | None = None) -> int:
        """Bytes of the pages that hold something."""
        with contextlib.ExitStack() as stack:
            if txn is None:
                txn = stack.enter_context(self.handle.begin())
            total = 0
            for stat in (txn.stat(self.values), txn.stat(self.groups)):
                total += stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
            return total

    def reader_transactions(self) -> list[int | None]:
        """The transaction of each slot in LMDB's table of readers, `None` for idle ones."""
        slots: list[int | None] = []
        for line in self.handle.readers().splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[0].isdigit():
                slots.append(int(parts[2]) if parts[2].isdigit() else None)
        return slots

    @classmethod
    def _forked(cls) -> None:
        """In a child: nothing here is its own. What is not in use can be let go of; the rest is never touched."""
        cls._lock = threading.RLock()
        for one in list(cls._all):
            one._current = _Current()
            one.inherited = True
            if one._busy:
                leak(one.handle)
            else:
                # No transaction: LMDB clears no slot but those of this process's own id, which has none yet.
                one.handle.close()
                if cls._open.get(one._identity) is one:
                    del cls._open[one._identity]


def _identity(name: str, data: Path) -> tuple[str, int, int]:
    """A file by path and inode: a store may be removed and made again at the same path."""
    try:
        found = data.stat()
    except OSError:
        return name, 0, 0
    return name, found.st_dev, found.st_ino


os.register_at_fork(after_in_child=Environment._forked)
