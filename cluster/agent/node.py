"""What the wire serves: this node."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from gramary.cluster.agent.storage import AgentStore
from gramary.cluster.kernel import FORMAT_VERSION, Source, Vocabulary
from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.peer import Claim, Outcome, PeerError, SourceItem
from gramary.cluster.placement import Coordinator
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.trace import span
from gramary.cluster.version import package_version
from gramary.cluster.wire.feed import Feed
from gramary.cluster.wire.node import (
    CompileEvent,
    CompileJob,
    Finished,
    NodeInfo,
    NodeStats,
    Progress,
    Stage,
    TokenizerFormat,
)
from gramary.compiler.errors import TokenizerError

PIECE = 256
"""Sources of one job that are worked on, and reported, together."""

SOURCE_KINDS = ("json_schema", "regex", "ir")


class AgentNode:
    """Implements `gramary.cluster.wire.node.Node` with a coordinator and a store."""

    def __init__(
        self,
        name: str,
        coordinator: Coordinator,
        store: AgentStore,
        metrics: NodeMetrics,
        values: Callable[[], dict[str, float]],
    ) -> None:
        self._coordinator, self._store, self._metrics, self._values = coordinator, store, metrics, values
        self._started = time.monotonic()
        self._tokenizers: dict[bytes, asyncio.Future[None]] = {}
        self._registering = asyncio.Lock()
        self.info = NodeInfo(name, package_version(), FORMAT_VERSION, source_kinds=SOURCE_KINDS)

    @property
    def feed(self) -> Feed:
        """News of what is committed here."""
        return self._store.feed

    # The store.

    def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        return self._store.missing(keys)

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return self._store.get(keys)

    def put(self, records: Sequence[Record], *, origin: str) -> None:
        self._store.commit([replace(record, origin=origin) for record in records])

    def shard_page(self, tokenizer: bytes, unit: bytes, *, version: int, after: bytes, most_bytes: int) -> list[Record]:
        page: list[Record] = []
        size = 0
        for blob in self._store.live.shard(tokenizer, unit, version, after=after):
            page.append(blob.record())
            size += len(page[-1].payload)
            if size >= most_bytes:
                break
        return page

    def lookup(self, sources: Sequence[bytes], *, version: int) -> list[Record | None]:
        with span("lookup", sources=len(sources)):
            return self._store.manifests(sources, version)

    # Compiling.

    async def compile(self, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
        end = time.monotonic() + job.deadline_s
        await asyncio.gather(*(self.need_tokenizer(one) for one in job.tokenizers))
        sources, errors = _named(job.sources)
        done = known = 0
        built = self._coordinator.stats.units_compiled
        yield Progress(Stage.LOOKUP, 0, len(job.sources))
        for index, outcome in errors.items():
            done += 1
            yield Finished(index, outcome)
        self._metrics.compile_inflight.inc()
        try:
            indices = list(sources)
            for start in range(0, len(indices), PIECE):
                piece = indices[start : start + PIECE]
                before = self._coordinator.stats.hits_local
                outcomes = await self._compile([sources[i] for i in piece], job, end - time.monotonic())
                known += self._coordinator.stats.hits_local - before
                for index, outcome in zip(piece, outcomes, strict=True):
                    done += 1
                    yield Finished(index, outcome)
                units = self._coordinator.stats.units_compiled - built
                stage = Stage.LOWERING if done < len(job.sources) else Stage.ENTRIES
                yield Progress(stage, done, len(job.sources), min(known, done), units)
            if job.tokenizers and not job.local_only:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._coordinator.entries.settled(), end - time.monotonic())
        finally:
            self._metrics.compile_inflight.inc(by=-1)

    async def _compile(self, sources: Sequence[SourceItem], job: CompileJob, deadline_s: float) -> list[Outcome]:
        deadline_s = max(deadline_s, 0.0)
        with span("plan", sources=len(sources), local=job.local_only):
            if job.local_only:
                return await self._coordinator.peer.compile(sources, deadline_s=deadline_s)
            return await self._coordinator.compile(sources, tokenizers=job.tokenizers, deadline_s=deadline_s)

    # Tokenizers.

    async def register_tokenizer(self, fingerprint: bytes, form: TokenizerFormat, data: bytes) -> None:
        readers: dict[TokenizerFormat, Callable[[bytes], Vocabulary]] = {
            TokenizerFormat.PREPARED: Vocabulary.from_bytes,
            TokenizerFormat.HUGGINGFACE: Vocabulary.from_huggingface,
            TokenizerFormat.TEKKEN: Vocabulary.from_tekken,
        }
        async with self._registering:  # when many clients begin at once, one of them registers it
            if self.has_tokenizer(fingerprint):
                await self.need_tokenizer(fingerprint)
                return
            vocabulary = await asyncio.to_thread(readers[form], data)
            if vocabulary.fingerprint != fingerprint:
                raise TokenizerError(
                    f"the content is the tokenizer {vocabulary.fingerprint.hex()}, not {fingerprint.hex()}: "
                    "register it under the fingerprint of Tokenizer(...).fingerprint"
                )
            await self.add_tokenizer(vocabulary)

    async def add_tokenizer(self, vocabulary: Vocabulary) -> None:
        """Make a tokenizer known to the executor, the store, and the nodes that keep it for the others."""
        record = Record(Key(Kind.TOKENIZER, vocabulary.fingerprint), vocabulary.to_bytes())
        if self._store.missing([record.key]):
            await self._store.put([record])
        await self.need_tokenizer(vocabulary.fingerprint)
        membership = self._coordinator.membership
        for node in membership.reachable(vocabulary.fingerprint, self._coordinator.settings.replicas):
            if node != membership.me:
                try:
                    if await membership.ask(node, lambda peer: peer.find_missing([record.key]), 5.0):
                        await membership.ask(node, lambda peer: peer.put([record]), 30.0, probe=False)
                except PeerError:
                    continue  # whoever needs it asks for it

    def has_tokenizer(self, fingerprint: bytes) -> bool:
        return not self._store.missing([Key(Kind.TOKENIZER, fingerprint)])

    async def need_tokenizer(self, fingerprint: bytes) -> None:
        """Have the executor know a tokenizer, from here or from another node. Raises `TokenizerError`."""
        ready = self._tokenizers.get(fingerprint)
        if ready is None or (ready.done() and (ready.cancelled() or ready.exception() is not None)):
            ready = self._tokenizers[fingerprint] = asyncio.ensure_future(self._load(fingerprint))
        await asyncio.shield(ready)

    async def _load(self, fingerprint: bytes) -> None:
        key = Key(Kind.TOKENIZER, fingerprint)
        found = await self._coordinator.fetch([key], deadline_s=30.0)
        if key not in found:
            # It may be with a node that does not keep it for others: ask everybody, once.
            for node in set(self._coordinator.membership.ring.nodes) - {self._coordinator.membership.me}:
                try:
                    [record] = await self._coordinator.membership.ask(node, lambda peer: peer.read([key]), 30.0)
                except PeerError:
                    continue
                if record is not None and record.key == key:
                    found = {key: record}
                    await self._store.put([record])
                    break
        if key not in found:
            raise TokenizerError(
                f"no node knows the tokenizer {fingerprint.hex()}: register it first (RegisterTokenizer), "
                "or name its file in node.tokenizers"
            )
        await self._coordinator.executor.register_tokenizer(fingerprint, found[key].payload)

    # Leases.

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        return await self._coordinator.peer.claim(digests, holder=holder, lease_s=lease_s)

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        await self._coordinator.peer.release(digests, holder=holder)

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        await self._coordinator.peer.complete(digests, holder=holder)

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        return await self._coordinator.peer.wait(digests, timeout_s=timeout_s)

    # Figures.

    def stats(self) -> NodeStats:
        from gramary.cluster.instrument import tokenizer_figures
        from gramary.cluster.wire.node import TokenizerFigures

        values = self._values()
        placement = self._coordinator.stats
        values |= {f"placement_{name}": float(getattr(placement, name)) for name in placement.__slots__}
        values["placement_unpublished"] = float(self._coordinator.delivery.unpublished)
        return NodeStats(
            self.info.name,
            time.monotonic() - self._started,
            values,
            [TokenizerFigures(t.fingerprint, t.entries, t.size_bytes) for t in tokenizer_figures(self._store.live)],
            self._store.slowest(),
        )


def _named(sources: Sequence[SourceItem]) -> tuple[dict[int, SourceItem], dict[int, Outcome]]:
    """Sources, by index, under the keys that their content has (a caller's own idea of a key is not asked for), and the
    outcomes of those that are no sources.
    """
    good: dict[int, SourceItem] = {}
    errors: dict[int, Outcome] = {}
    for index, source in enumerate(sources):
        try:
            key = Source.from_parts(source.kind, source.options, source.text).key
            good[index] = SourceItem(key, source.kind, source.options, source.text)
        except ValueError as error:
            errors[index] = Outcome(source.key, error={"type": "InvalidSchema", "message": str(error), "pointer": ""})
    return good, errors
