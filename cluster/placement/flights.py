"""The owner's side of compiling: each source is lowered once at a time, whoever asks and however often.

A *flight* is one source on its way from text to a stored manifest. Requests for the same source join it; when the last
of them goes away, so does the flight.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gramary.cluster.executor.base import Answered, Executor, Failed, Lowered
from gramary.cluster.executor.errors import DeadlineExceeded, encode_error
from gramary.cluster.peer import Outcome, SourceItem
from gramary.cluster.placement.commit import Committer
from gramary.cluster.placement.fetch import Fetcher
from gramary.cluster.placement.settings import LocalStore, PlacementStats, Settings, left_of
from gramary.cluster.records import Key, Kind
from gramary.compiler.errors import GramaryError

MOST_ERRORS = 4096
MOST_JOINS = 8
"""How often a request joins another flight of its source after one was cut short by somebody else's deadline."""

ManifestUnits = Callable[[bytes], list[bytes]]
"""The digests that a manifest names; raises `ValueError` if it is none."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits for flights, its own and joined ones."""

    landed: asyncio.Future[None]
    left: int = 0


@dataclass(slots=True, eq=False)
class _Flight:
    group: _Group
    outcome: Outcome | None = None
    waiters: set[_Waiter] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Group:
    """Sources that are lowered and committed together."""

    flights: dict[bytes, _Flight] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Errors:
    """Sources that cannot be compiled, for a while."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._known: OrderedDict[bytes, tuple[float, Outcome]] = OrderedDict()

    def remember(self, outcome: Outcome) -> None:
        """Keep it, if it is an error that says something about the source."""
        if outcome.manifest is None and not outcome.retryable:
            self._known[outcome.key] = (asyncio.get_running_loop().time() + self._ttl_s, outcome)
            self._known.move_to_end(outcome.key)
            if len(self._known) > MOST_ERRORS:
                self._known.popitem(last=False)

    def get(self, key: bytes) -> Outcome | None:
        found = self._known.get(key)
        if found is None:
            return None
        if found[0] <= asyncio.get_running_loop().time():
            del self._known[key]
            return None
        return found[1]


class Flights:
    """Compiles sources on this node. One per node."""

    def __init__(
        self,
        store: LocalStore,
        executor: Executor,
        fetcher: Fetcher,
        committer: Committer,
        manifest_units: ManifestUnits,
        settings: Settings,
        stats: PlacementStats,
    ) -> None:
        self._store, self._executor = store, executor
        self._fetcher, self._committer, self._units_of = fetcher, committer, manifest_units
        self._settings, self._stats = settings, stats
        self._flights: dict[bytes, _Flight] = {}
        self._slots: asyncio.Semaphore = asyncio.Semaphore(settings.most_groups)
        self.errors = Errors(settings.error_ttl_s)

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    def units_of(self, manifest: bytes | None) -> list[bytes] | None:
        """The units of a manifest; `None` if there is none or it is damaged."""
        try:
            return None if manifest is None else self._units_of(manifest)
        except ValueError:
            return None

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, list[bytes]]]:
        """Of these sources, those whose manifest is here: manifest and units."""
        found = {}
        for key, record in zip(keys, self._store.get([Key(Kind.MANIFEST, key) for key in keys]), strict=True):
            units = self.units_of(record.payload if record is not None else None)
            if record is not None and units is not None:
                found[key] = (record.payload, units)
        return found

    async def compile_owned(self, sources: Sequence[SourceItem], deadline_s: float) -> list[Outcome]:
        """Compile sources that this node owns (or stands in for); one outcome each, in order."""
        end = asyncio.get_running_loop().time() + deadline_s
        wanted = {source.key: source for source in sources}
        outcomes: dict[bytes, Outcome] = {}
        for key in wanted:
            error = self.errors.get(key)
            if error is not None:
                self._stats.errors_remembered += 1
                outcomes[key] = error
        await self._from_stores([key for key in wanted if key not in outcomes], outcomes, end)
        for _ in range(MOST_JOINS):
            # Others' flights may have landed while we asked around; from here to the start of ours nothing is awaited.
            outcomes |= self.complete([key for key in wanted if key not in outcomes])
            left = [source for key, source in wanted.items() if key not in outcomes]
            if not left:
                break
            for outcome in await self._fly(left, end):
                cut_short = outcome.retryable and outcome.error.get("type") == DeadlineExceeded.__name__
                if cut_short and end > asyncio.get_running_loop().time():
                    continue  # by the deadline of whoever began the flight, not ours
                outcomes[outcome.key] = outcome
        return [outcomes.get(source.key) or late(source.key) for source in sources]

    def complete(self, keys: Sequence[bytes]) -> dict[bytes, Outcome]:
        """Of these sources, those whose manifest and units are all here."""
        found = self.stored(keys)
        needed = dict.fromkeys(Key(Kind.UNIT, unit) for _, units in found.values() for unit in units)
        gone = {key.digest for key in self._store.missing(list(needed))}
        return {key: Outcome(key, manifest) for key, (manifest, units) in found.items() if gone.isdisjoint(units)}

    async def _from_stores(self, keys: Sequence[bytes], outcomes: dict[bytes, Outcome], end: float) -> None:
        """Answer from this node's store, or with the manifest of the other nodes that should have it."""
        idle = [key for key in keys if key not in self._flights]
        found = self.stored(idle)
        others = [Key(Kind.MANIFEST, key) for key in idle if key not in found]
        if others and await self._fetcher.records(others, end=end, remember_absent=True):
            found |= self.stored([key.digest for key in others])
        needed = dict.fromkeys(Key(Kind.UNIT, unit) for _, units in found.values() for unit in units)
        missing = self._store.missing(list(needed))
        gone: set[Key] = set()
        if missing:
            gone = set(missing) - (await self._fetcher.records(missing, end=end)).keys()
        for key, (manifest, units) in found.items():
            if not gone or not any(Key(Kind.UNIT, unit) in gone for unit in units):
                self._stats.hits_owner += 1
                outcomes[key] = Outcome(key, manifest)

    async def _fly(self, sources: Sequence[SourceItem], end: float) -> list[Outcome]:
        """Join or start a flight for each source, and wait for them until `end`."""
        joined = {source.key: flight for source in sources if (flight := self._flights.get(source.key)) is not None}
        self._stats.flights_joined += len(joined)
        new = [source for source in sources if source.key not in joined]
        loop = asyncio.get_running_loop()
        for start in range(0, len(new), self._settings.group):
            part = new[start : start + self._settings.group]
            group = _Group()
            group.flights = {source.key: _Flight(group) for source in part}
            self._flights |= group.flights
            joined |= group.flights
            group.task = asyncio.create_task(self._run(part, group, end))
        waiter = _Waiter(loop.create_future(), len(joined))
        for flight in joined.values():
            flight.waiters.add(waiter)
        try:
            await asyncio.wait((waiter.landed,), timeout=max(0.0, end - loop.time()))
            return [flight.outcome or late(key) for key, flight in joined.items()]
        finally:
            for flight in joined.values():
                flight.waiters.discard(waiter)
            for group in {flight.group for flight in joined.values()}:
                if group.task is not None and not any(f.waiters for f in group.flights.values()):
                    group.task.cancel()  # does nothing if it is done

    async def _run(self, sources: Sequence[SourceItem], group: _Group, end: float) -> None:
        """Lower and commit a group; whatever happens, every flight lands."""
        work: set[asyncio.Task[Any]] = set()
        try:
            async with self._slots:
                lowered: dict[bytes, Lowered] = {}

                def answered(index: int, result: Lowered | Failed) -> None:
                    key = sources[index].key
                    if isinstance(result, Failed):
                        self._land(key, group, Outcome(key, None, result.error, result.retryable))
                    else:
                        lowered[key] = result

                lowering = asyncio.create_task(self._lower(sources, end, answered))
                work.add(lowering)
                while lowered or not lowering.done():
                    # Slow sources must not hold up the others, and those that are done at once share their messages.
                    await asyncio.wait((lowering,), timeout=self._settings.linger_s)
                    if lowered:
                        work.add(asyncio.create_task(self._commit(dict(lowered), group, end)))
                        lowered.clear()
                await asyncio.gather(*work)
        except GramaryError as error:  # a full disk, say
            for key in group.flights:
                self._land(key, group, Outcome(key, None, encode_error(error), retryable=True))
        finally:
            for task in work:
                task.cancel()
            for key, flight in group.flights.items():
                if flight.outcome is None:
                    self._land(key, group, late(key))
                if self._flights.get(key) is flight:
                    del self._flights[key]

    async def _lower(
        self, sources: Sequence[SourceItem], end: float, answered: Answered | None = None
    ) -> list[Lowered | Failed]:
        results = await self._executor.lower(
            sources, limits=self._settings.limits, deadline_s=left_of(end), done=answered
        )
        self._stats.sources_lowered += sum(isinstance(result, Lowered) for result in results)
        return results

    async def _commit(self, lowered: Mapping[bytes, Lowered], group: _Group, end: float) -> None:
        await self._committer.commit(lowered, end)
        for key, result in lowered.items():
            self._land(key, group, Outcome(key, result.manifest))

    def _land(self, key: bytes, group: _Group, outcome: Outcome) -> None:
        flight = group.flights[key]
        if flight.outcome is not None:
            return
        flight.outcome = outcome
        self.errors.remember(outcome)
        for waiter in flight.waiters:
            waiter.left -= 1
            if not waiter.left and not waiter.landed.done():
                waiter.landed.set_result(None)

    async def compile_alone(self, sources: Sequence[SourceItem], end: float) -> list[Outcome]:
        """Compile without asking anybody, for when nobody answers; what comes of it is published later."""
        self._stats.fallbacks += len(sources)
        outcomes: list[Outcome] = []
        lowered: dict[bytes, Lowered] = {}
        for source, result in zip(sources, await self._lower(sources, end), strict=True):
            if isinstance(result, Failed):
                outcomes.append(Outcome(source.key, None, result.error, result.retryable))
                self.errors.remember(outcomes[-1])
            else:
                lowered[source.key] = result
        try:
            await self._committer.commit_alone(lowered)
        except GramaryError as error:
            return outcomes + [Outcome(key, None, encode_error(error), retryable=True) for key in lowered]
        return outcomes + [Outcome(key, result.manifest) for key, result in lowered.items()]


def late(key: bytes) -> Outcome:
    """The outcome of a source whose time is over."""
    return Outcome(key, None, encode_error(DeadlineExceeded("the deadline passed before it was compiled")), True)
