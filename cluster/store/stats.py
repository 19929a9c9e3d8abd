"""What the writer counts, and what became of a put."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from gramary.cluster.records import Key


@dataclass
class StoreStats:
    """Counters since the store was opened, and what is there now."""

    stored: int = 0
    """Values written."""
    stored_bytes: int = 0
    """Their payloads."""
    known: int = 0
    """Puts of what was there already."""
    conflicts: int = 0
    """Alarms: puts of another payload under a key that is there; refused."""
    refused: int = 0
    """Puts of quarantined origins."""
    healed: int = 0
    """Damaged values replaced by a put."""
    damaged: int = 0
    """Damaged values removed."""
    evicted: int = 0
    evicted_bytes: int = 0
    full: int = 0
    """Puts refused for want of room in map or budget."""
    disk_full: int = 0
    """Puts refused for want of room on the disk."""
    syncs: int = 0
    compactions: int = 0
    seals: int = 0
    wiped: int = 0
    """Stores thrown away at start because their file was not sound."""
    stale_readers: int = 0
    """Reader slots of dead processes that were cleared."""
    values: int = 0
    live_bytes: int = 0
    file_bytes: int = 0
    budget_bytes: int = 0
    free_disk_bytes: int = 0
    marked_bytes: int = 0
    """About to be evicted, in their grace period."""
    readers: int = 0
    reader_lag: int = 0
    """Commits since the oldest transaction of a reader began."""
    quarantined: int = 0
    sequence: int = 0
    hits: int = 0
    misses: int = 0

    def as_dict(self) -> dict[str, int]:
        """For JSON and metrics."""
        return asdict(self)


@dataclass(frozen=True)
class PutResult:
    """What became of the records of one `put`."""

    stored: int = 0
    known: int = 0
    refused: list[tuple[Key, Literal["conflict", "quarantined"]]] = field(default_factory=list)
