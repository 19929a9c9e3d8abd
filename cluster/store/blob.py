"""Zero-copy views into the store's mapping that cannot outlive what keeps them valid.

A value in an LMDB mapping stays where it is only as long as a read transaction protects its pages. An `Epoch` is such a
transaction; every `Blob` holds its epoch, and so does every array or memoryview made from it, however it is sliced. The
transaction ends when the last of them goes. An epoch takes new blobs for half a second only, so that a reader that is
busy for hours does not keep the writer from reusing pages.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, Protocol

import lmdb
import numpy as np
import numpy.typing as npt

from gramary.cluster.records import Key, Record
from gramary.cluster.store.errors import StoreClosed, StoreDamaged
from gramary.cluster.store.layout import Header, decode_header, decode_record


class Owner(Protocol):
    """What an epoch reads from, and tells when it has ended."""

    @property
    def path(self) -> str:
        """Where the environment is, for messages."""

    @property
    def inherited(self) -> bool:
        """It belongs to the parent of this process."""

    def ended(self) -> None:
        """Nothing of one epoch is held any more."""


_orphans: list[object] = []


def leak(thing: object) -> None:
    """Keep an object of the parent process from ever being finalized in this one, at the interpreter's end included:
    LMDB would clear the parent's reader slot.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    _orphans.append(thing)


class Epoch:
    """One read transaction, alive as long as anything that was read in it."""

    __slots__ = ("__weakref__", "ends", "owner", "txn")

    def __init__(self, owner: Owner, txn: lmdb.Transaction[memoryview], ends: float) -> None:
        self.owner = owner
        self.txn = txn
        self.ends = ends
        """When (on the monotonic clock) it stops to take new blobs."""

    @property
    def path(self) -> str:
        """Where the environment is, for messages."""
        return self.owner.path

    def __del__(self) -> None:
        if self.owner.inherited:
            leak(self.txn)
        else:
            self.txn.abort()
            self.owner.ended()


class _Held(np.ndarray):
    """A read-only array over mapped bytes that holds the epoch. Views of it have it as their base, so they hold it too.

    NumPy collapses chains of views only while the types are the same, and this type's base is never an array.
    """

    __slots__ = ("epoch",)
    epoch: Epoch


_new_array = np.ndarray.__new__
_BYTES = np.dtype(np.uint8)
_where: Callable[[memoryview], tuple[int, int]] = struct.Struct("<8xH14xQ").unpack_from
"""From a stored value to offset and length of its payload: the hot part of decoding its header."""


class Blob:
    """One stored value, in place. `view` and `array` are zero-copy and stay valid for as long as they are held.

    Keep one only as long as it is used: while it lives, pages that the writer frees are not used again. What must live
    long is copied out with `bytes(blob)`. A blob does not survive a fork: the child gets `StoreClosed`.
    """

    __slots__ = ("_epoch", "_header", "_raw", "key")

    def __init__(self, epoch: Epoch, key: Key, raw: memoryview, header: Header | None = None) -> None:
        self._epoch = epoch
        self._raw = raw
        self._header = header
        self.key = key

    @property
    def header(self) -> Header:
        """Kind, length, cost, MAC, origin and checksum."""
        if self._header is None:
            self._header = decode_header(self._mapped(), self.key.encode())
        return self._header

    def _mapped(self) -> memoryview:
        if self._epoch.owner.inherited:
            raise StoreClosed(
                f"a blob of {self._epoch.path} was read before this process was forked: read it again here",
                path=self._epoch.path,
            )
        return self._raw

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The payload as a read-only array of bytes, 16-byte aligned."""
        raw = self._mapped()
        offset, length = _where(raw)
        try:
            held = _new_array(_Held, length, _BYTES, raw, offset)
        except (TypeError, ValueError) as error:  # its header changed since it was checked
            raise StoreDamaged(
                f"a value in {self._epoch.path} is damaged: gramary store verify", path=self._epoch.path
            ) from error
        held.epoch = self._epoch
        array: npt.NDArray[np.uint8] = held
        return array

    @property
    def view(self) -> memoryview:
        """The payload as a read-only memoryview."""
        array: Any = self.array  # a buffer, though type checkers know so only from Python 3.12 on
        return memoryview(array)

    def __len__(self) -> int:
        return _where(self._mapped())[1]

    def __bytes__(self) -> bytes:
        raw = self._mapped()
        offset, length = _where(raw)
        return bytes(raw[offset : offset + length])

    @property
    def cost_ns(self) -> int:
        """What it took to build; 0: unknown."""
        return self.header.cost_ns

    @property
    def mac(self) -> bytes:
        """The cluster's keyed hash of key and payload; empty: not vouched for."""
        return self.header.mac

    @property
    def origin(self) -> str:
        """The node that says it built it."""
        return self.header.origin

    def record(self) -> Record:
        """A copy that can be kept and sent."""
        return decode_record(self.key, self._mapped(), self.header)

    def __repr__(self) -> str:
        return f"Blob({self.key.kind.name} {self.key.digest.hex()[:12]}, {len(self):,} bytes)"
