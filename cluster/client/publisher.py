"""What was built in this process goes to the node's agent, so that the next process has it: in the background, bounded,
and given up for good where the agent does not take it from us.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from gramary.cluster.client.ladder import Count, Ladder
from gramary.cluster.kernel import Source
from gramary.cluster.log import get_logger
from gramary.cluster.peer import PeerError
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.wire.errors import CallFailed, Rejected
from gramary.cluster.wire.mac import Mac

EVERY_S = 1.0
MOST_ENTRIES = 8192
"""Names of entries kept between two rounds; older ones are forgotten, and built again by whoever needs them."""
MOST_SOURCES = 4096
LEAST_COST_NS = 50_000
"""Entries that are built faster than this are not worth a record: whoever needs one builds it at once."""
RETRY_S = 30.0
_log = get_logger("gramary.client")


class Publisher:
    """Sends sources that were compiled here, and mask entries built just in time, to the first node."""

    def __init__(self, ladder: Ladder, mac: Mac | None, count: Count) -> None:
        self._ladder, self._mac, self._count = ladder, mac, count
        self._sources: OrderedDict[bytes, Source] = OrderedDict()
        self._lock = threading.Lock()
        self._task: concurrent.futures.Future[Any] | None = None
        self._pause_until = 0.0
        self._refused = False

    def start(self) -> None:
        """Begin. (A process that forks begins in the child when it first compiles.)"""
        self._ladder.core.record_entries(MOST_ENTRIES)
        if self._task is None or self._task.done():
            self._task = self._ladder.background.start(self._run())

    def compiled(self, sources: Sequence[Source]) -> None:
        """These are compiled here, now or in a moment."""
        if self._refused:
            return
        with self._lock:
            for source in sources:
                self._sources[source.key] = source
            while len(self._sources) > MOST_SOURCES:
                self._sources.popitem(last=False)

    async def _run(self) -> None:
        while not self._refused:
            await asyncio.sleep(EVERY_S)
            if time.monotonic() >= self._pause_until:
                await self._round()

    async def _round(self) -> None:
        records, sources = await asyncio.to_thread(self._gather)
        if not records:
            return
        if self._mac is not None:
            records = [self._mac.seal(record) for record in records]
        entries = sum(record.key.kind is Kind.ENTRY for record in records)
        try:
            await self._ladder.nodes[0].peer.put(records)
        except Rejected as error:
            _log.debug("publishing_partly_refused", reason=error.message)
            self._count("entries_published", "refused", entries)
            return
        except PeerError as error:
            if isinstance(error, CallFailed) and error.code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
                _log.info("publishing_not_permitted", reason=error.message)
                self._refused = True
                self._ladder.core.record_entries(0)
                return
            self._pause_until = time.monotonic() + RETRY_S
            self.compiled(sources)
            self._count("entries_published", "dropped", entries)
            return
        self._ladder.stats.entries_published += entries
        self._count("entries_published", "ok", entries)

    def _gather(self) -> tuple[list[Record], list[Source]]:
        with self._lock:
            sources = list(self._sources.values())
            self._sources.clear()
        core = self._ladder.core
        records: list[Record] = []
        waiting: list[Source] = []
        for source in sources:
            exported = core.export(source)
            if exported is None:
                continue  # it did not compile, or is gone from memory
            manifest, units = exported
            records += [Record(Key(Kind.UNIT, digest), data) for digest, data in units]
            records.append(Record(Key(Kind.MANIFEST, source.key), manifest))
            waiting.append(source)
        fingerprint = self._ladder.vocabulary.fingerprint
        for unit, slot, data, cost in core.take_entries():
            if cost >= LEAST_COST_NS:
                records.append(Record(Key(Kind.ENTRY, unit, fingerprint, slot), data, cost))
        return records, waiting

    def flush(self, timeout_s: float) -> None:
        """Publish what there is, now; gives up after `timeout_s`."""
        if not self._refused:
            try:
                self._ladder.background.start(self._round()).result(timeout_s)
            except (concurrent.futures.TimeoutError, OSError):
                _log.debug("flush_timed_out", seconds=timeout_s)

    def close(self) -> None:
        """Publish what there is, and stop."""
        if self._task is not None:
            self._task.cancel()
            self.flush(2.0)
        self._ladder.core.record_entries(0)
