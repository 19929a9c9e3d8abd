"""Checks what others send before it is believed, and remembers who lied.

A payload's hash was checked when it was put together (`codec`). Here: its size and version are allowed; a unit's digest
is derived again from its content; an entry or a manifest has the cluster's MAC; of those that have, some are built
again and compared. An origin whose record is proven false is quarantined (nothing of it is taken for a while), and so
is one that keeps sending units with wrong digests.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.mac import VOUCHED, Mac

Code = grpc.StatusCode

VerifyUnits = Callable[[Sequence[tuple[bytes, bytes]]], list[tuple[bytes, str]]]
"""`gramary.cluster.kernel.verify_units`: of (digest, bytes), those that are not what they claim, and why."""
Rebuild = Callable[[Record], bool | None]
"""Builds a record's value again and compares; `None` if that cannot be done here."""
MOST_ORIGINS = 4096


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that was not taken, and why."""

    key: Key
    code: grpc.StatusCode
    reason: str


@dataclass(frozen=True)
class Checks:
    """How a `Verifier` checks. What is `None` is not checked; a node that talks to others sets all of it.

    `sample`: share of the entries and manifests with a good MAC that are built again. `versions`: format versions that
    are taken; none means any. `manifest_units`: the digests of the units that a manifest names; raises `ValueError` for
    what is no manifest. `fingerprint`: of a prepared tokenizer; raises `GramaryError` or `ValueError`.
    """

    mac: Mac | None = None
    verify_units: VerifyUnits | None = None
    manifest_units: Callable[[bytes], Sequence[bytes]] | None = None
    fingerprint: Callable[[bytes], bytes] | None = None
    rebuild: Rebuild | None = None
    sample: float = 0.01
    versions: frozenset[int] = frozenset()
    quarantine_s: float = 3600.0
    strikes: int = 3
    """Units with wrong digests that are held against an origin before it is quarantined."""


class Verifier:
    """Checks records by origin. Thread-safe. `clock`, `chance`: for tests and simulation."""

    def __init__(
        self,
        checks: Checks | None = None,
        limits: WireLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._checks = checks or Checks()
        self._limits = limits or WireLimits()
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._quarantined: dict[str, float] = {}
        self._strikes: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        """`accepted`, `sampled`, `quarantines`, and refusals by reason: `size`, `version`, `digest`, `unsigned`, `mac`,
        `manifest`, `tokenizer`, `false`, `quarantined`."""

    @property
    def mac_required(self) -> bool:
        """Whether entries and manifests need a MAC."""
        return self._checks.mac is not None

    def check(self, records: Sequence[Record], *, origin: str) -> tuple[list[Record], list[Refusal]]:
        """The records that may be believed, in order, and the others with the reason. Takes its time: use a thread."""
        refusals: list[Refusal] = []

        def refuse(key: Key, code: grpc.StatusCode, count: str, reason: str) -> None:
            refusals.append(Refusal(key, code, reason))
            self._count(count)

        if self.quarantined(origin):
            for record in records:
                refuse(record.key, Code.PERMISSION_DENIED, "quarantined", f"{origin} was caught with false records")
            return [], refusals
        false_units = self._false_units(records)
        good: list[Record] = []
        for record in records:
            key = record.key
            if len(record.payload) > (most := self._limits.payload_bytes(key.kind)):
                refuse(key, Code.INVALID_ARGUMENT, "size", f"{len(record.payload)} bytes, at most {most} are taken")
            elif self._checks.versions and key.version not in self._checks.versions:
                refuse(key, Code.FAILED_PRECONDITION, "version", f"format version {key.version} is not taken here")
            elif key.kind is Kind.UNIT and key.digest in false_units:
                refuse(key, Code.INVALID_ARGUMENT, "digest", false_units[key.digest])
                self._strike(origin)
            elif self._checks.mac is not None and key.kind in VOUCHED and not record.mac:
                # Nobody says that it is the cluster's: a worker without the key that offers what it built.
                refuse(key, Code.UNAUTHENTICATED, "unsigned", "it has no MAC, so nobody vouches for it")
            elif self._checks.mac is not None and not self._checks.mac.check(record):
                refuse(key, Code.UNAUTHENTICATED, "mac", "no MAC of this cluster")
            elif (reason := self._malformed(record)) is not None:
                refuse(key, Code.INVALID_ARGUMENT, key.kind.name.lower(), reason)
            elif self._is_false(record):
                refuse(key, Code.INVALID_ARGUMENT, "false", "building it again gives something else")
                self.quarantine(origin)
            else:
                good.append(record)
        self._count("accepted", len(good))
        return good, refusals

    def _false_units(self, records: Sequence[Record]) -> dict[bytes, str]:
        verify = self._checks.verify_units
        if verify is None:
            return {}
        units = [(record.key.digest, record.payload) for record in records if record.key.kind is Kind.UNIT]
        return dict(verify(units)) if units else {}

    def _malformed(self, record: Record) -> str | None:
        if record.key.kind is Kind.MANIFEST and self._checks.manifest_units is not None:
            try:
                self._checks.manifest_units(record.payload)
            except ValueError as error:
                return f"it is no manifest: {error}"
        if record.key.kind is Kind.TOKENIZER and self._checks.fingerprint is not None:
            try:
                if self._checks.fingerprint(record.payload) != record.key.digest:
                    return "its content has another fingerprint"
            except Exception as error:
                return f"it is no prepared tokenizer: {error}"
        return None

    def _is_false(self, record: Record) -> bool:
        if record.key.kind not in VOUCHED or self._checks.rebuild is None or self._chance() >= self._checks.sample:
            return False
        self._count("sampled")
        return self._checks.rebuild(record) is False

    def _strike(self, origin: str) -> None:
        with self._lock:
            if len(self._strikes) >= MOST_ORIGINS and origin not in self._strikes:
                self._strikes.clear()
            self._strikes[origin] += 1
            over = self._strikes[origin] >= self._checks.strikes
        if over:
            self.quarantine(origin)

    def quarantine(self, origin: str) -> None:
        """Take nothing of this origin for a while. For callers who found a lie themselves, too."""
        with self._lock:
            if len(self._quarantined) >= MOST_ORIGINS:
                self._quarantined.pop(min(self._quarantined, key=self._quarantined.__getitem__))
            self._quarantined[origin] = self._clock() + self._checks.quarantine_s
            self.counters["quarantines"] += 1

    def quarantined(self, origin: str) -> bool:
        """Whether nothing of this origin is taken now."""
        with self._lock:
            until = self._quarantined.get(origin)
            if until is not None and until <= self._clock():
                del self._quarantined[origin]
                return False
            return until is not None

    def quarantined_origins(self) -> frozenset[str]:
        """Origins of which nothing is taken now."""
        with self._lock:
            now = self._clock()
            return frozenset(origin for origin, until in self._quarantined.items() if until > now)

    def release(self, origin: str) -> None:
        """Take records of this origin again."""
        with self._lock:
            self._quarantined.pop(origin, None)
            self._strikes.pop(origin, None)

    def _count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self.counters[name] += by
