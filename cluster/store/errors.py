"""What can go wrong with a store. Every class says which directory, and what to do about it."""

from __future__ import annotations

from typing import ClassVar

from gramary.compiler.errors import GramaryError


class StoreError(GramaryError):
    """Base of the store's errors. `path`: the store's directory, or the file at fault."""

    _attributes: ClassVar[tuple[str, ...]] = ("path",)
    path: str = ""


class StoreUnavailable(StoreError):
    """There is no store at `path` that this process can read: none was made, or this container may not see it."""


class StoreLocked(StoreError):
    """Another writer has the store open. A node has one writer: its agent."""

    _attributes: ClassVar[tuple[str, ...]] = ("path", "pid")
    pid: int | None = None


class StoreClosed(StoreError):
    """The store, or the blob's epoch, was closed or belongs to the parent of a forked process."""


class StoreFull(StoreError):
    """The map has no room for another page. What is stored stays readable; evict, or open with a larger map."""


class DiskFull(StoreError):
    """The disk has no room. What is stored stays readable, and the writer keeps room to evict."""

    _attributes: ClassVar[tuple[str, ...]] = ("path", "free_bytes")
    free_bytes: int | None = None


class StoreDamaged(StoreError):
    """The store's file is not sound: truncated, not LMDB, or another layout version."""


class InvalidExport(StoreError):
    """A file that is to be imported is not what `export` writes. Nothing after `offset` was taken."""

    _attributes: ClassVar[tuple[str, ...]] = ("path", "offset")
    offset: int = 0
