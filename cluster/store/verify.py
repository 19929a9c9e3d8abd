"""Whether a store is sound: its file's structure, every checksum, and, on request, what the values mean."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store.environment import translated
from gramary.cluster.store.errors import DiskFull, StoreError
from gramary.cluster.store.live import LiveStore
from gramary.cluster.store.reader import Reads
from gramary.cluster.store.structure import check_structure
from gramary.runtime._core import FORMAT_VERSION

VerifyUnits = Callable[[Sequence[tuple[bytes, bytes]]], list[tuple[bytes, str]]]
"""`gramary.cluster.kernel.verify_units`, or the like."""
Rebuild = Callable[[Record], "bool | None"]
"""Whether a mask entry is what building it again gives; `None`: it cannot be built here."""


@dataclass
class Report:
    """What was found."""

    values: int = 0
    payload_bytes: int = 0
    structure: list[str] = field(default_factory=list)
    """What is wrong with the file; empty: it can be mapped safely, or it was not looked at."""
    damaged: list[Key] = field(default_factory=list)
    """Values whose checksum is wrong."""
    units: int = 0
    """Units whose digests were derived again."""
    wrong_units: list[tuple[Key, str]] = field(default_factory=list)
    rebuilt: int = 0
    """Mask entries that were built again and compared."""
    not_rebuilt: int = 0
    """Mask entries that could not be."""
    wrong_entries: list[Key] = field(default_factory=list)
    liars: dict[str, int] = field(default_factory=dict)
    """Origins of what was wrong (not of what was damaged), and how much."""
    removed: int = 0

    @property
    def sound(self) -> bool:
        """Nothing was found wrong."""
        return not (self.structure or self.damaged or self.wrong_units or self.wrong_entries)

    def as_json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return {
            "sound": self.sound,
            "values": self.values,
            "payload_bytes": self.payload_bytes,
            "structure": self.structure,
            "damaged": [key.encode().hex() for key in self.damaged],
            "units": self.units,
            "wrong_units": [{"key": key.encode().hex(), "reason": reason} for key, reason in self.wrong_units],
            "rebuilt": self.rebuilt,
            "not_rebuilt": self.not_rebuilt,
            "wrong_entries": [key.encode().hex() for key in self.wrong_entries],
            "liars": self.liars,
            "removed": self.removed,
        }


def verify(
    store: Reads,
    *,
    structure: bool = True,
    units: VerifyUnits | None = None,
    rebuild: Rebuild | None = None,
    sample: float = 1.0,
    remove: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check a store; see `Report` for what is looked at.

    `units`, `rebuild`: what values mean, checked with these where given, for the format version of this installation.
    `sample`: the share of mask entries to rebuild. `remove`: from a `LiveStore`, take out what is wrong.
    """
    report = Report()
    if structure:
        with _files(store) as files:
            for file in files:
                report.structure.extend(f"{file.name}: {problem}" for problem in check_structure(file))
    entries: list[Key] = []
    all_units: list[tuple[bytes, bytes]] = []
    damaged_before = set(store.damaged())
    store.forget_checked()
    for number, key in enumerate(store.keys()):
        blob = store.get(key)
        report.values += 1
        if blob is None:
            report.damaged.append(key)
            continue
        report.payload_bytes += len(blob)
        if key.version == FORMAT_VERSION and key.kind is Kind.UNIT and units is not None:
            all_units.append((key.digest, bytes(blob)))
        if key.version == FORMAT_VERSION and key.kind is Kind.ENTRY:
            entries.append(key)
        if progress is not None and number % 256 == 0:
            progress(number)
    report.damaged = list(dict.fromkeys([*damaged_before, *report.damaged]))
    if units is not None:
        report.units = len(all_units)
        report.wrong_units = [(Key(Kind.UNIT, digest), reason) for digest, reason in units(all_units)]
    if rebuild is not None:
        chance = Random(0)
        for key in entries:
            if chance.random() < sample:
                _rebuild(store, key, rebuild, report)
    wrong = [*(key for key, _ in report.wrong_units), *report.wrong_entries]
    for key in wrong:
        header = store.header(key)
        if header is not None and header.origin:
            report.liars[header.origin] = report.liars.get(header.origin, 0) + 1
    if remove and isinstance(store, LiveStore):
        report.removed = store.recheck(report.damaged) + store.remove(wrong)
    return report


def _rebuild(store: Reads, key: Key, rebuild: Rebuild, report: Report) -> None:
    blob = store.get(key)
    if blob is None:
        return
    verdict = rebuild(blob.record())
    if verdict is None:
        report.not_rebuilt += 1
        return
    report.rebuilt += 1
    if not verdict:
        report.wrong_entries.append(key)


@contextmanager
def _files(store: Reads) -> Iterator[Iterable[Path]]:
    """The store's files, such that nobody writes them: the writer stands still, or they are copied."""
    environments = store.environments()
    if store.mode == "sealed":
        yield [Path(one.path) for one in environments]
    elif isinstance(store, LiveStore):
        with store.writing:
            yield [Path(one.path) / "data.mdb" for one in environments]
    else:
        size = sum(one.file_bytes for one in environments)
        place = Path(tempfile.mkdtemp(prefix="gramary-verify-"))
        try:
            free = shutil.disk_usage(place).free
            if free < size + (64 << 20):
                raise DiskFull(
                    f"{place} has no room for a copy of the store ({size:,} bytes), and its writer is at work: stop it,"
                    " or set TMPDIR to a larger disk",
                    path=str(place),
                    free_bytes=free,
                )
            for one in environments:
                with one.held(), translated(one.path):
                    one.handle.copy(str(place))
            yield [place / "data.mdb"]
        except OSError as error:
            raise StoreError(f"{place} cannot be written: {error.strerror}", path=str(place)) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)
