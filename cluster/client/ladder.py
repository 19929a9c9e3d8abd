"""Where compiled sources come from, cheapest first: memory, the node's store, the cluster, or nobody (compile here).

A request never fails because of the cluster: whatever goes wrong there is counted, costs at most `wait_s`, and ends in
compiling here. Only a source's own typed error, told by the cluster, is passed on, so that a bomb is not set off twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from gramary.cluster.client.background import Background
from gramary.cluster.client.node_store import NodeStore
from gramary.cluster.kernel import Manifest, Source, Vocabulary
from gramary.cluster.log import get_logger
from gramary.cluster.peer import Outcome, PeerError, SourceItem
from gramary.cluster.placement.membership import Breaker
from gramary.cluster.records import Key, Kind
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, CorruptAnswer, from_dict
from gramary.compiler.errors import CompileError, GramaryError
from gramary.runtime._core import Compiler as Core

TIERS = ("process", "lmdb", "cluster", "local")
MOST_ASKED = 1 << 14
MOST_ERRORS = 1024
ERROR_TTL_S = 60.0
_log = get_logger("gramary.client")

Count = Callable[[str, str, int], object]
"""Told of events: name, label, how many (`WorkerCounts.count`)."""


def ignored(name: str, label: str, number: int) -> None:
    """A `Count` for those who do not count."""


@dataclass(slots=True)
class ClientStats:
    """Counters since the client was made: sources by the tier that had them, and what went wrong."""

    process: int = 0
    lmdb: int = 0
    cluster: int = 0
    local: int = 0
    """Compiled here: with an address configured, because the cluster could not serve them in time (`fallbacks`)."""
    fallbacks: dict[str, int] = field(default_factory=dict)
    """By reason: unreachable, deadline, corrupt, version, error."""
    entries_offered: int = 0
    """Mask entries taken over instead of built."""
    entries_published: int = 0
    hedges: int = 0
    watched: int = 0
    """Sources taken over because somebody else had them compiled."""

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return asdict(self)


class Errors:
    """Typed errors that the cluster told of sources, for a while."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[float, GramaryError]] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, key: bytes, error: GramaryError) -> None:
        """Keep it."""
        with self._lock:
            self._known[key] = (time.monotonic() + ERROR_TTL_S, error)
            while len(self._known) > MOST_ERRORS:
                self._known.popitem(last=False)

    def get(self, key: bytes) -> GramaryError | None:
        """The error of a source, if it has one."""
        with self._lock:
            found = self._known.get(key)
            if found is not None and found[0] < time.monotonic():
                del self._known[key]
                return None
        return None if found is None else found[1]


@dataclass(slots=True)
class Node:
    """A node that can be asked."""

    peer: GrpcPeer
    breaker: Breaker = field(default_factory=Breaker)
    registered: bool = False
    """It knows the tokenizer."""


class Ladder:
    """Brings sources into a compiler's memory. Thread-safe."""

    def __init__(
        self,
        core: Core,
        vocabulary: Vocabulary,
        store: NodeStore,
        nodes: Sequence[GrpcPeer],
        background: Background,
        *,
        wait_s: float,
        hedge_s: float,
        count: Count = ignored,
    ) -> None:
        """`nodes`: the node's agent first, then others that may be asked when it does not answer."""
        self.core, self.vocabulary, self.store, self.background = core, vocabulary, store, background
        self.nodes = [Node(peer) for peer in nodes]
        self.wait_s, self.hedge_s = wait_s, hedge_s
        self.stats = ClientStats()
        self.errors = Errors()
        self.asked: OrderedDict[bytes, None] = OrderedDict()
        """Keys of the sources that the cluster was asked for last: what is told of them is no news here."""
        self.asking = 0
        """Requests that are waiting for the cluster."""
        self._count = count
        self._fingerprint = vocabulary.fingerprint

    def prepare(self, sources: Sequence[Source]) -> tuple[list[Source], str]:
        """The first two rungs: memory and the node's store. Returns what neither has, and the dearer one used."""
        left = self.core.missing_sources(sources)
        self._hit("process", len(sources) - len(left))
        if not left:
            return [], "process"
        asked = len(left)
        left, units = self.store.install(self.core, left)
        self._hit("lmdb", asked - len(left))
        if units:
            self.offer_later(units)
        return left, "lmdb"

    async def ask(self, sources: Sequence[Source], *, within_s: float | None = None) -> list[Source]:
        """The third rung: the cluster, for at most `wait_s` (or `within_s`, if that is less). Returns what is to be
        compiled here; remembers the typed errors of the others (`errors`).
        """
        if not self.nodes or not sources:
            return list(sources)
        wait_s = self.wait_s if within_s is None else max(0.0, min(self.wait_s, within_s))
        reason = "error"
        self.asking += 1
        self.asked.update((source.key, None) for source in sources)
        while len(self.asked) > MOST_ASKED:
            self.asked.popitem(last=False)
        try:
            peer, outcomes = await asyncio.wait_for(self._hedged(sources, wait_s), wait_s)
            left = await self._install(peer, sources, outcomes, wait_s)
        except asyncio.TimeoutError:
            reason, left = "deadline", list(sources)
        except CorruptAnswer:
            reason, left = "corrupt", list(sources)
        except PeerError as error:
            reason = (
                "deadline" if isinstance(error, CallFailed) and error.code == "DEADLINE_EXCEEDED" else "unreachable"
            )
            left = list(sources)
        except (GramaryError, ValueError) as error:
            _log.warning("cluster_answer_unusable", error=str(error))
            reason, left = "corrupt", list(sources)
        finally:
            self.asking -= 1
        self._hit("cluster", len(sources) - len(left))
        for source in left:
            if self.errors.get(source.key) is None:  # else the cluster has said why it cannot be compiled
                self._fallback(reason)
        return left

    def found(self, number: int) -> None:
        """So many sources were in memory."""
        self._hit("process", number)

    def compiled_here(self, sources: Sequence[Source]) -> None:
        """The last rung was needed for these."""
        self._hit("local", len(sources))

    # Asking.

    async def _hedged(self, sources: Sequence[Source], wait_s: float) -> tuple[GrpcPeer, list[Outcome]]:
        """Ask the first node; another one too when it is slow, or fails. The first good answer counts,
        and comes with who gave it.
        """
        now = asyncio.get_running_loop().time
        ready = [node for node in self.nodes if node.breaker.begin(now())]
        if not ready:
            raise PeerError(self.nodes[0].peer.name, "did not answer lately and is left alone for a while")
        failure: GramaryError | None = None
        open_calls: dict[asyncio.Task[list[Outcome]], Node] = {}
        try:
            while ready or open_calls:
                if ready:
                    node = ready.pop(0)
                    open_calls[asyncio.create_task(self._compile(node, sources, wait_s))] = node
                done, _ = await asyncio.wait(
                    open_calls, timeout=self.hedge_s if ready else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    node = open_calls.pop(task)
                    try:
                        outcomes = task.result()
                    except GramaryError as error:
                        failure = error
                        node.breaker.failed(now())
                        continue
                    node.breaker.succeeded()
                    return node.peer, outcomes
                if not done and ready:
                    self.stats.hedges += 1
        finally:
            for task in open_calls:
                task.cancel()
        raise failure or PeerError(self.nodes[0].peer.name, "gave no answer")

    async def introduce(self, node: Node) -> None:
        """Have a node know the tokenizer; the first time that takes it tenths of a second."""
        if not node.registered:
            await node.peer.register_tokenizer(self._fingerprint, self.vocabulary.to_bytes())
            node.registered = True

    async def _compile(self, node: Node, sources: Sequence[Source], wait_s: float) -> list[Outcome]:
        await self.introduce(node)
        items = [SourceItem(source.key, source.kind, source.options, source.text) for source in sources]
        try:
            return await node.peer.compile_sources(items, tokenizers=[self._fingerprint], deadline_s=wait_s)
        except CallFailed as error:
            if type(error.error).__name__ in ("UnknownTokenizer", "TokenizerError"):
                node.registered = False  # its store was wiped, or it is another one: the next request registers again
            raise

    async def _install(
        self, peer: GrpcPeer, sources: Sequence[Source], outcomes: Sequence[Outcome], wait_s: float
    ) -> list[Source]:
        """Take over what was compiled; returns what was not."""
        known = {outcome.key: outcome for outcome in outcomes}
        manifests: list[tuple[Source, bytes]] = []
        left: list[Source] = []
        for source in sources:
            outcome = known.get(source.key)
            if outcome is not None and outcome.manifest is not None:
                manifests.append((source, outcome.manifest))
                continue
            if outcome is not None and outcome.error and not outcome.retryable:
                error = from_dict(outcome.error)
                if isinstance(error, CompileError):
                    self.errors.remember(source.key, error)
            left.append(source)
        if manifests:
            left += await self._take(peer, [source for source, _ in manifests], manifests, wait_s)
        return left

    async def _take(
        self, peer: GrpcPeer, sources: Sequence[Source], manifests: Sequence[tuple[Source, bytes]], wait_s: float
    ) -> list[Source]:
        # The agent has committed them: where its store is mapped, they are read there.
        left, units = await asyncio.to_thread(self.store.install, self.core, sources)
        if units:
            self.offer_later(units)
        if not left:
            return []
        keys = {source.key for source in left}
        wanted = [(source, manifest) for source, manifest in manifests if source.key in keys]
        missing = self.core.missing_units([manifest for _, manifest in wanted])
        records = await asyncio.wait_for(peer.read([Key(Kind.UNIT, digest) for digest in missing]), wait_s)
        given = [(digest, r.payload) for digest, r in zip(missing, records, strict=True) if r is not None]
        absent = set(missing) - {digest for digest, _ in given}
        whole = [one for one in wanted if not absent or absent.isdisjoint(Manifest.parse(one[1]).units)]
        if whole:
            await asyncio.to_thread(self.core.install, whole, given)
            self.background.start(self.stream(peer, [digest for digest, _ in given]))
        done = {source.key for source, _ in whole}
        return [source for source in left if source.key not in done]

    async def stream(self, peer: GrpcPeer, units: Sequence[bytes]) -> None:
        """Bring the mask entries of units from a node that has them."""
        batch: list[tuple[bytes, bytes, bytes]] = []
        try:
            async for record in peer.shards(self._fingerprint, units):
                batch.append((record.key.digest, record.key.slot, record.payload))
                if len(batch) >= 64:
                    self._offer(batch)
                    batch = []
        except PeerError as error:
            _log.debug("shards_not_received", error=error.message)
        self._offer(batch)

    def _offer(self, batch: list[tuple[bytes, bytes, bytes]]) -> None:
        if batch:
            self._brought("peer", self.core.offer_entries(batch))

    def offer_later(self, units: Sequence[bytes]) -> None:
        """Offer the node's mask entries of units, while the request goes on: it needs few of them at once."""

        def work() -> None:
            self.offer_now(units)

        async def apart() -> None:
            await asyncio.to_thread(work)

        self.background.start(apart())

    def offer_now(self, units: Sequence[bytes]) -> None:
        """Offer the node's mask entries of units."""
        self._brought("lmdb", self.store.offer(self.core, self._fingerprint, units))

    def _brought(self, tier: str, entries: int) -> None:
        self.stats.entries_offered += entries
        self._count("entries_loaded", tier, entries)

    def _hit(self, tier: str, number: int) -> None:
        if number:
            setattr(self.stats, tier, getattr(self.stats, tier) + number)
            self._count(f"lookups.{tier}", "hit", number)

    def _fallback(self, reason: str) -> None:
        self.stats.fallbacks[reason] = self.stats.fallbacks.get(reason, 0) + 1
        self._count("fallbacks", reason, 1)
