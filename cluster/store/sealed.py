"""Sealed generations: what other containers read.

A process that cannot lock the live environment (its mount is read-only, or its process id means another process to the
writer's kernel namespace) must not read it: LMDB would let it, and overwrite what it reads. It reads files that are
never written again instead: `sealed/CURRENT` names them, newest first, and is replaced as a whole.

A *full* generation is a compact copy of everything. A *delta* holds what was committed since the last seal, so that
sealing every few seconds costs what was written, not what is stored. A full one follows after `MOST_DELTAS` deltas, or
when they are half as large as the full one, or when something had to go (damage, quarantine) that older files still
hold. Old files are unlinked; whoever has them mapped keeps them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lmdb

from gramary.cluster.store import paths
from gramary.cluster.store.environment import Environment, cannot_write, translated
from gramary.cluster.store.errors import DiskFull, StoreDamaged, StoreUnavailable
from gramary.cluster.store.layout import GROUPS, LAYOUT_VERSION, VALUES
from gramary.cluster.store.live import LiveStore
from gramary.cluster.store.reader import Reads

MOST_DELTAS = 8
_OPEN_TRIES = 5
_VALUES_AT_ONCE = 512


class SealedStore(Reads):
    """A reader of the sealed generations at `path`; it follows new ones. Needs no write access and no locks."""

    mode = "sealed"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._files: list[str] = []
        self._current()

    def _open(self) -> tuple[Environment, ...]:
        for attempt in range(_OPEN_TRIES):
            files = _sealed_files(self.path)
            if not files:
                raise StoreUnavailable(
                    f"{self.path} has no sealed generation: the node's agent seals when it is told to",
                    path=str(self.path),
                )
            if files == self._files and self._environments:
                return self._environments
            opened: list[Environment] = []
            try:
                for name in files:
                    opened.append(self._one(name))
            except (StoreUnavailable, OSError):  # unlinked since CURRENT was read
                for one in opened:
                    if one not in self._environments:
                        one.close()
                if attempt == _OPEN_TRIES - 1:
                    raise
                continue
            self._files = files
            return tuple(opened)
        raise AssertionError("the last try raises")

    def _one(self, name: str) -> Environment:
        path = str((self.path / paths.SEALED / name).resolve())
        for one in self._environments:
            if one.path == path:
                return one
        return Environment.open(Path(path), sealed=True)

    def _forked(self) -> None:
        super()._forked()
        self._files = []

    @property
    def generation(self) -> list[str]:
        """Names of the files that are read, newest first."""
        self._current()
        return list(self._files)


def _sealed_files(path: Path) -> list[str]:
    current = paths.read_current(path / paths.SEALED / paths.CURRENT)
    if current is None:
        return []
    files = current.get("files")
    if not isinstance(files, list) or not all(
        isinstance(name, str) and name.endswith(".mdb") and "/" not in name for name in files
    ):
        raise StoreDamaged(f"{path / paths.SEALED / paths.CURRENT} names no files", path=str(path))
    return files


def seal(store: LiveStore, *, full: bool = False) -> bool:
    """Publish what the store holds to readers of sealed generations; `False` if they have it already.

    `full`: copy everything even where a delta would do. Raises `DiskFull`; the older generation stays then.
    """
    with store.sealing:
        return _seal(store, full)


def _seal(store: LiveStore, full: bool) -> bool:
    directory = store.path / paths.SEALED
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error
    with store.writing:
        environment = store.current_environment()
        older = [name for name in _sealed_files(store.path) if (directory / name).exists()]
        fresh, store.unsealed = store.unsealed, set()
        epoch = environment.new_epoch()  # keeps the environment open, should the store be compacted meanwhile
    txn = epoch.txn
    try:
        if fresh is None or not older or full or _should_rebase(directory, older):
            fresh = None
        elif not fresh:
            return False
        name = f"{_next_number(directory):08}.mdb"
        aside = directory / f".{name}"
        try:
            if fresh is None:
                _check_room(store, environment.live_bytes(txn))
                _copy_all(environment, aside, txn)
            else:
                _copy_some(environment, aside, txn, sorted(fresh))
            aside.rename(directory / name)
            files = [name] if fresh is None else [name, *older]
            paths.write_json(directory / paths.CURRENT, {"layout": LAYOUT_VERSION, "files": files})
        except BaseException as error:
            store.unsealed = None
            aside.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise cannot_write(directory, error) from error
            raise
    finally:
        del txn, epoch
    for path in directory.glob("*.mdb*"):
        if path.name not in files:
            path.unlink(missing_ok=True)
    store.counters.seals += 1
    return True


def _should_rebase(directory: Path, files: list[str]) -> bool:
    sizes = [(directory / name).stat().st_size for name in files]
    return len(files) > MOST_DELTAS or sum(sizes[:-1]) > sizes[-1] / 2


def _next_number(directory: Path) -> int:
    numbers = [int(path.stem) for path in directory.glob("*.mdb") if path.stem.isdigit()]
    return max(numbers, default=0) + 1


def _check_room(store: LiveStore, size: int) -> None:
    free = store.room.free_disk_bytes()
    if free - size < store.room.min_free_bytes:
        raise DiskFull(
            f"the disk of {store.path} has no room for a sealed copy of {size:,} bytes",
            path=str(store.path),
            free_bytes=free,
        )


def _copy_all(environment: Environment, target: Path, txn: lmdb.Transaction[Any]) -> None:
    handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with translated(str(target)):
            environment.handle.copyfd(handle, compact=True, txn=txn)
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_some(environment: Environment, target: Path, txn: lmdb.Transaction[Any], keys: list[bytes]) -> None:
    target.unlink(missing_ok=True)
    with (
        translated(str(target)),
        lmdb.open(
            str(target),
            map_size=1 << 40,
            subdir=False,
            lock=False,
            metasync=False,
            sync=False,
            writemap=False,
            max_dbs=8,
            mode=0o644,
        ) as copy,
    ):
        values, _ = copy.open_db(VALUES), copy.open_db(GROUPS)
        for start in range(0, len(keys), _VALUES_AT_ONCE):
            with copy.begin(db=values, write=True) as out:
                for key in keys[start : start + _VALUES_AT_ONCE]:
                    value = txn.get(key)
                    if value is not None:
                        out.put(key, value, append=True)
        copy.sync(True)
