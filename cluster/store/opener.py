"""Opening a store for reading, the way that is safe where this process runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from gramary.cluster.store import paths
from gramary.cluster.store.environment import Environment
from gramary.cluster.store.errors import StoreUnavailable
from gramary.cluster.store.reader import Reads
from gramary.cluster.store.sealed import SealedStore

_OPEN_TRIES = 5


class StoreReader(Reads):
    """A reader of the live environment, beside the writer: in its PID namespace, and able to write the lock file.

    `open_reader` checks that. Opening is lazy: what is made before a fork is opened after it.
    """

    mode = "live"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._seen: tuple[int, int] | None = None

    def _open(self) -> tuple[Environment, ...]:
        for attempt in range(_OPEN_TRIES):
            try:
                found = os.stat(self.path / paths.CURRENT)
                seen = (found.st_ino, found.st_mtime_ns)
            except OSError:
                seen = None
            if seen is not None and seen == self._seen and self._environments:
                return self._environments
            live = self.path / paths.live_name(self.path)
            try:
                environment = Environment.open(live)
            except StoreUnavailable:  # the writer switched to another directory since CURRENT was read
                if attempt == _OPEN_TRIES - 1 or not live.parent.exists():
                    raise
                continue
            self._seen = seen
            if environment in self._environments:
                environment.close()  # held already
                return self._environments
            return (environment,)
        raise AssertionError("the last try raises")

    def _forked(self) -> None:
        super()._forked()
        self._seen = None


def why_not_live(path: Path) -> str:
    """Why this process must not read the live environment; empty if it may. Raises `StoreUnavailable`."""
    name = paths.live_name(path)
    writer = paths.read_json(path / paths.WRITER) or {}
    here = paths.pid_namespace()
    if not here or writer.get("pid_namespace") != here:
        return "the writer runs in another PID namespace"
    if writer.get("boot") != paths.boot_id() and not (path / paths.CLEAN).exists():
        return "the machine crashed since the store was written, and no writer has checked it yet"
    lock = path / name / "lock.mdb"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "the file system is mounted read-only"
    if not os.access(lock if lock.exists() else lock.parent, os.W_OK):
        return f"{lock} is not writable for this user"
    return ""


def open_reader(
    path: str | os.PathLike[str], *, mode: Literal["auto", "live", "sealed"] = "auto"
) -> StoreReader | SealedStore:
    """Open a store for reading; the result's `mode` says how: `"live"` or `"sealed"`.

    Live where that is safe: same PID namespace as the writer, lock file writable. Otherwise the sealed generations.
    Raises `StoreUnavailable`, which says why live would not do where there is nothing sealed either.
    """
    place = Path(path)
    if mode == "sealed":
        return SealedStore(place)
    if mode == "auto" and not (place / paths.CURRENT).exists() and (place / paths.SEALED / paths.CURRENT).exists():
        return SealedStore(place)  # somebody carried nothing but that here
    reason = why_not_live(place)
    if not reason:
        return StoreReader(place)
    if mode == "live":
        raise StoreUnavailable(f"{place} cannot be read live: {reason}", path=str(place))
    try:
        return SealedStore(place)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{place} cannot be read live ({reason}), and has no sealed generation: have the agent seal it",
            path=str(place),
        ) from error
