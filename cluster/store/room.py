"""How much room a store has: in its budget, in its map, and on its disk."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from gramary.cluster.store import paths
from gramary.cluster.store.errors import DiskFull, StoreError, StoreFull

_BALLAST_BYTES = 4 << 20
"""More than removing a batch of values writes."""
_SMALL_FILES_BYTES = 1 << 18


@dataclass
class Room:
    """The bounds of a store. `budget_bytes`: of live pages; `map_bytes`: of the file; `min_free_bytes`: of the disk."""

    path: Path
    budget_bytes: int
    map_bytes: int
    min_free_bytes: int

    def free_disk_bytes(self) -> int:
        """Of the file system that the store is on."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def lacking(self, needed: int, live: int, file: int) -> tuple[int, bool]:
        """By how much there is too little room for `needed` bytes, with `live` bytes in a file of `file`.

        And whether it is the disk that has too little.
        """
        growth = needed - max(file - live, 0)
        headroom = min(1 << 20, self.map_bytes // 4)  # so that evicting always has pages to write
        over = max(live + needed - self.budget_bytes, growth + file + headroom - self.map_bytes)
        disk_over = growth - (self.free_disk_bytes() - self.min_free_bytes) if growth > 0 else 0
        return max(over, disk_over), disk_over > max(over, 0)

    def error(self, needed: int, of_disk: bool) -> StoreError:
        """What to raise where there is no room."""
        if of_disk:
            free = self.free_disk_bytes()
            return DiskFull(
                f"the disk of {self.path} has {free:,} bytes free and {self.min_free_bytes:,} are kept: free some, or"
                " lower min_free_bytes",
                path=str(self.path),
                free_bytes=free,
            )
        return StoreFull(
            f"{self.path} has no room for {needed:,} bytes: the budget ({self.budget_bytes:,}) or the map"
            f" ({self.map_bytes:,}) is too small, or what is there is pinned",
            path=str(self.path),
        )

    def make_ballast(self) -> None:
        """Take a little disk, where there is enough, to give back when there is none."""
        ballast = self.path / paths.BALLAST
        with contextlib.suppress(OSError):
            there = ballast.stat().st_size if ballast.exists() else 0
            if there < _BALLAST_BYTES and self.free_disk_bytes() > self.min_free_bytes + 2 * _BALLAST_BYTES:
                with ballast.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, _BALLAST_BYTES)

    def ease(self) -> None:
        """On a full disk, give the ballast back: small files are to be written."""
        if self.free_disk_bytes() < _SMALL_FILES_BYTES:
            self.drop_ballast()

    def drop_ballast(self) -> bool:
        """Give it back; whether there was any."""
        ballast = self.path / paths.BALLAST
        there = ballast.exists() and ballast.stat().st_size > 0
        if there:
            os.truncate(ballast, 0)
        return there
