"""A node from its settings: every part, connected, started, kept, and taken down again in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from gramary.cluster import collecting, instrument
from gramary.cluster.address import parse_address
from gramary.cluster.agent.node import AgentNode
from gramary.cluster.agent.storage import AgentStore
from gramary.cluster.credentials import Credentials
from gramary.cluster.executor import Executor, InProcess, ProcessPool, WorkLimits
from gramary.cluster.kernel import FORMAT_VERSION, Manifest, Source, Vocabulary, verify_units
from gramary.cluster.log import get_logger
from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.observed import ObservedExecutor, ObservedPeer
from gramary.cluster.peer import Peer, SourceItem
from gramary.cluster.placement import Coordinator, DnsSource, FileSource, Member, Membership, StaticSource
from gramary.cluster.placement import Settings as PlacementSettings
from gramary.cluster.placement.membership import Source as MemberSource
from gramary.cluster.records import Record
from gramary.cluster.settings import Settings
from gramary.cluster.stats import values_of
from gramary.cluster.store import LiveStore, seal
from gramary.cluster.store.rebuild import Rebuilder
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.configured import client_security, cluster_mac, server_security, wire_limits
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.server import WireServer
from gramary.cluster.wire.verifier import Checks, Verifier
from gramary.compiler import Tokenizer

UPKEEP_S = 5.0
USUAL = """{"type": "object", "properties": {
    "text": {"type": "string"}, "count": {"type": "integer"}, "number": {"type": "number"}, "flag": {"type": "boolean"},
    "choice": {"enum": ["a", "b"]}, "list": {"type": "array", "items": {"type": "string"}}, "any": {},
    "map": {"type": "object", "additionalProperties": {"type": "string"}}, "maybe": {"type": ["string", "null"]}
}, "required": ["text"]}"""
"""A schema with a bit of everything."""
_log = get_logger("gramary.agent")


class SealingPeer(ObservedPeer):
    """A peer that is sent nothing without the cluster's MAC."""

    mac: Mac | None = None

    async def put(self, records: Sequence[Record]) -> None:
        mac = self.mac
        await super().put(records if mac is None else [r if r.mac else mac.seal(r) for r in records])


class MemberSources:
    """Several lists of members as one. One that cannot be read makes the whole list unreadable: the last one counts."""

    def __init__(self, sources: Sequence[MemberSource]) -> None:
        self._sources = sources

    async def members(self) -> Sequence[Member]:
        return [member for source in self._sources for member in await source.members()]


def work_limits(settings: Settings) -> WorkLimits:
    """The bounds of one compilation, as executors take them."""
    limits = settings.limits
    return WorkLimits(
        source_bytes=int(limits.source_bytes),
        depth=limits.depth,
        fsm_states=limits.fsm_states,
        items_per_set=limits.items_per_set,
        memory=int(limits.memory_bytes),
        seconds=limits.seconds,
        hard_seconds=limits.hard_seconds,
        hard_bytes=int(limits.hard_bytes),
    )


def make_executor(settings: Settings) -> Executor:
    """The executor that the settings name; of Ray's, the actors are started when there is work."""
    kind, workers = settings.executor.resolved_kind, settings.executor.workers
    if kind == "ray":
        from gramary.cluster.executor.actors import RayExecutor, connect

        connect(settings.executor.ray_address or "auto")
        # Nodes that name the same actors share them: the pool belongs to the cluster, not to a node.
        name = f"{settings.executor.ray_namespace}-compile"
        return RayExecutor(workers, limits=work_limits(settings), name=name, detached=True)
    return (ProcessPool if kind == "process" else InProcess)(workers, limits=work_limits(settings))


def member_source(settings: Settings) -> MemberSource:
    """The lists of members that the settings name, this node among them."""
    peers = settings.peers
    sources: list[MemberSource] = [StaticSource([Member(address, address) for address in peers.nodes])]
    if peers.dns is not None:
        dns = parse_address(peers.dns)
        sources.append(DnsSource(dns.host, dns.port))
    if peers.file is not None:
        sources.append(FileSource(peers.file))
    sources.append(StaticSource([Member(settings.advertised(), settings.advertised())]))
    return MemberSources(sources)


class Agent:
    """One node. `async with Agent(settings)` starts it and takes it down."""

    def __init__(
        self, settings: Settings, *, executor: Executor | None = None, members: MemberSource | None = None
    ) -> None:
        """`executor`, `members`: to use instead of the settings' (an executor stays the caller's).

        Raises `ConfigError`, `StoreError`.
        """
        self.settings = settings
        self.credentials = Credentials(settings)
        self.metrics = NodeMetrics()
        self.mac = cluster_mac(self.credentials)
        live = LiveStore(
            settings.store.path,
            int(settings.store.budget_bytes),
            children=lambda payload: Manifest.parse(payload).units,
            min_free_bytes=int(settings.store.min_free_bytes),
            sync_every_s=settings.store.sync_interval_s,
            high_ratio=settings.store.high_ratio,
            low_ratio=settings.store.low_ratio,
        )
        self.store = AgentStore(live, self.mac)
        self._own_executor = executor is None
        self.executor = executor or make_executor(settings)
        self.limits = wire_limits(settings)
        self.verifier = Verifier(
            Checks(
                mac=self.mac,
                verify_units=verify_units,
                manifest_units=lambda payload: Manifest.parse(payload).units,
                fingerprint=lambda payload: Vocabulary.from_bytes(payload).fingerprint,
                rebuild=Rebuilder(live, tails=False),
                sample=settings.trust.reverify_ratio,
                versions=frozenset({FORMAT_VERSION}),  # of others nothing could be checked here
            ),
            self.limits,
        )
        self.membership = Membership(
            settings.advertised(), members or member_source(settings), self._connect, disconnect=_disconnect
        )
        replicas = settings.peers.replicas
        live.ledger.owned = lambda digest: self.membership.me in self.membership.owners(digest, replicas)
        self.coordinator = Coordinator(
            self.membership,
            self.store,
            ObservedExecutor(self.executor, self.metrics),
            lambda payload: Manifest.parse(payload).units,
            settings=PlacementSettings(
                replicas=settings.peers.replicas,
                lease_s=settings.deadlines.lease_s,
                call_s=settings.deadlines.peer_s,
                limits=work_limits(settings),
            ),
            verify=self._believe,
        )
        self.node = AgentNode(settings.node.name, self.coordinator, self.store, self.metrics, self._values)
        self.servers: list[WireServer] = []
        self.ready = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._endpoint: Any = None
        self._instrument(live)

    def _instrument(self, live: LiveStore) -> None:
        instrument.follow_store(self.metrics, live)
        instrument.follow_placement(self.metrics, self.coordinator.stats)
        instrument.follow_executor(self.metrics, self.executor)
        instrument.follow_verifier(self.metrics, self.verifier, live)
        instrument.follow_credentials(self.metrics, self.credentials)
        instrument.follow_claims(self.metrics, self.coordinator.peer.claims)
        instrument.follow_servers(self.metrics, self.servers)

    def _values(self) -> dict[str, float]:
        return values_of([self.metrics])

    def _connect(self, member: Member) -> Peer:
        peer = SealingPeer(
            member.address,
            name=member.name,
            security=client_security(self.settings, self.credentials),
            limits=self.limits,
            timeout_s=max(self.settings.deadlines.connect_s + 8.0, self.settings.deadlines.peer_s),
            attempts=2,
        )
        peer.mac, peer.metrics = self.mac, self.metrics
        return peer

    async def _believe(self, node: str, records: list[Record]) -> list[Record]:
        good, refused = await asyncio.to_thread(self.verifier.check, records, origin=node)
        if refused:
            _log.warning("records_refused", peer=node, number=len(refused), reason=refused[0].reason)
        return [replace(record, origin=node) for record in good]

    # Life.

    async def start(self) -> None:
        """Listen, and begin what goes on in the background. Raises typed errors; nothing is left running then."""
        try:
            await self._start()
        except BaseException:
            await self.close(drain_s=0.0)
            raise

    async def _start(self) -> None:
        settings = self.settings
        for address in settings.node.listen:
            server = WireServer(
                self.node,
                address,
                security=server_security(settings, self.credentials),
                limits=self.limits,
                verifier=self.verifier,
                observe=instrument.observer(self.metrics),
            )
            self.servers.append(server)
            await server.start()
        await self.membership.refresh()
        if len(self.membership.ring) > 1 and not self.credentials.tokens() and not settings.tls.enabled:
            _log.warning(
                "peers_without_credentials",
                reason="other nodes will refuse to lease and store: each compiles for itself",
                remedy="give every node the same token (auth.token_files), and a MAC key (trust.mac_key_files)",
            )
        for text in settings.node.tokenizers:
            tokenizer = await asyncio.to_thread(Tokenizer.from_file, text)
            await self.node.add_tokenizer(tokenizer.vocabulary)
        self._tasks = [
            asyncio.create_task(self.coordinator.run(refresh_s=settings.peers.refresh_s)),
            asyncio.create_task(self._every(UPKEEP_S, self._maintain, "upkeep_failed")),
        ]
        if settings.store.seal_interval_s > 0:
            self._tasks.append(
                asyncio.create_task(self._every(settings.store.seal_interval_s, self.seal, "sealing_failed"))
            )
        loop = asyncio.get_running_loop()
        circuits = self.membership.circuits
        instrument.follow_breakers(
            self.metrics, lambda: [one.value.replace("-", "_") for one in circuits(loop.time()).values()]
        )
        if settings.metrics.listen:
            from gramary.cluster.exposition import MetricsServer, make_registry

            registry = make_registry(self.metrics)
            self._endpoint = MetricsServer(registry, settings.metrics.listen, ready=lambda: self.ready)
        self._tasks.append(asyncio.create_task(self._start_workers()))
        if self._own_executor and settings.executor.resolved_kind == "ray":
            from gramary.cluster.agent.ray_nodes import hint_autoscaler

            self._tasks.append(asyncio.create_task(hint_autoscaler(self)))
        self.ready = True
        _log.info(
            "node_started",
            node=settings.node.name,
            listen=[server.address for server in self.servers],
            store=str(settings.store.path),
            executor=settings.executor.resolved_kind,
            members=len(self.membership.ring),
        )

    async def _start_workers(self) -> None:
        """Workers start with the first work: this is it, so that no request waits for their start, nor for the units
        that nearly all sources share.
        """
        usual = Source("json_schema", USUAL)
        item = SourceItem(usual.key, usual.kind, usual.options, usual.text)
        await asyncio.gather(*(self.executor.lower([item]) for _ in range(self.executor.workers)))

    async def _every(self, seconds: float, work: Callable[[], Any], event: str) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except Exception as error:  # the next round may fare better; a node does not stop for its upkeep
                _log.error(event, error=str(error), kind=type(error).__name__)

    async def _maintain(self) -> None:
        self.coordinator.peer.claims.expire()
        await self.store.maintain()

    async def seal(self) -> None:
        """Make a sealed generation for readers in other containers."""
        await self.store.run(seal, self.store.live)

    @property
    def address(self) -> str:
        """The first address that it listens on, with the real port."""
        return self.servers[0].address

    async def serve(self) -> None:
        """Until SIGTERM or SIGINT; then drain."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            await stop.wait()
            _log.info("draining", seconds=self.settings.deadlines.drain_s)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def close(self, drain_s: float | None = None) -> None:
        """Drain and end everything; what was acknowledged is in the store."""
        grace = self.settings.deadlines.drain_s if drain_s is None else drain_s
        self.ready = False
        await asyncio.gather(*(server.drain(grace) for server in self.servers), return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self.coordinator.close()
        if self._own_executor:
            await self.executor.close()
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.close)
        await asyncio.to_thread(self.store.close)

    async def __aenter__(self) -> Agent:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _disconnect(peer: Peer) -> None:
    if isinstance(peer, GrpcPeer):
        await peer.close()


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Agent]:
    """An agent, for the length of a block."""
    agent = Agent(settings)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.close()


def run(settings: Settings, *, role: str, ready: Callable[[Agent], None]) -> None:
    """Be a node until told to stop. `ready` is called once it serves."""
    from gramary.cluster.log import configure

    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    configure(settings.log, node=settings.node.name, role=role)

    async def main() -> None:
        async with Agent(settings) as agent:
            collecting.settle()
            ready(agent)
            await agent.serve()

    asyncio.run(main())
