"""Faults of whole nodes and clients: whatever breaks, answers are right, and come within their deadline."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.agent.running import Agent
from gramary.cluster.client import Client
from gramary.cluster.kernel import FORMAT_VERSION, Lowering, Source
from gramary.cluster.peer import Outcome, PeerError, SourceItem
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.node import CompileEvent, CompileJob, Finished
from gramary.cluster.wire.server import WireServer
from tests.cluster.cluster_tools import (
    TOKENIZER,
    Nodes,
    accepts,
    agents,
    client_beside,
    client_of,
    cluster,
    example,
    kill,
    schema,
    stats_of,
)
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.memory_node import MemoryNode
from tests.conftest import ROOT

FINGERPRINT = TOKENIZER.vocabulary.fingerprint


def source_of(name: str, number: int = 0) -> Source:
    """The source that clients compile for `schema`."""
    return Source("json_schema", schema(name, number))  # type: ignore[arg-type]


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait for something that has to happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


# Processes that are killed


class Load(threading.Thread):
    """Compiles one schema after the other until it is told to stop; notes what was wrong, and who had compiled it."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__()
        self.client, self.name_ = client, name
        self.tiers: list[str] = []
        self.problems: list[str] = []
        self.slowest_s = 0.0
        self._stop_ = threading.Event()

    def run(self) -> None:
        while not self._stop_.is_set():
            number = len(self.tiers)
            start = time.monotonic()
            try:
                self.tiers.append(self.client.ensure([self.client.source_of_schema(schema(self.name_, number))]))
                if not accepts(
                    self.client.compile_json_schema(schema(self.name_, number)), example(self.name_, number)
                ):
                    self.problems.append(f"{number}: a wrong grammar")
            except Exception as error:
                self.problems.append(f"{number}: {error!r}")
                self.tiers.append("failed")
            self.slowest_s = max(self.slowest_s, time.monotonic() - start)
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop_.set()
        self.join(60)


def test_an_agent_is_killed_under_load(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as local:
        with client_beside(local, 0, wait_s=10.0, others=True) as client:
            load = Load(client, "killed")
            load.start()
            until(lambda: len(load.tiers) > 10)
            kill(local.nodes()[0]["pid"])  # the client's own node
            seen = len(load.tiers)
            until(lambda: len(load.tiers) > seen + 10, 60)
            kill(local.nodes()[1]["pid"])  # one of the two that are left
            seen = len(load.tiers)
            until(lambda: len(load.tiers) > seen + 5, 60)
            local.start("node-0")
            local.start("node-1")
            seen = len(load.tiers)
            until(lambda: len(load.tiers) > seen + 5, 60)
            load.stop()
            assert not load.problems
            assert load.slowest_s < 30
            acknowledged = [n for n, tier in enumerate(load.tiers) if tier == "cluster"]
            assert len(acknowledged) > 10
        # Nothing that was acknowledged is lost: every such source is found, and not compiled again.
        until(lambda: not any(node.values.get("placement_unpublished") for node in stats_of(local, range(3))))
        before = sum(node.values.get("placement_sources_lowered", 0) for node in stats_of(local, range(3)))
        with client_beside(local, 0) as client:
            client.ladder.store.close()
            sources = [client.source_of_schema(schema("killed", number)) for number in acknowledged]
            assert client.ensure(sources) == "cluster"
            assert client.stats.fallbacks == {}
        after = sum(node.values.get("placement_sources_lowered", 0) for node in stats_of(local, range(3)))
        assert after == before


def test_a_writer_is_killed_with_readers_mapped(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as local:
        with client_beside(local, 0) as writer:
            for number in range(6):
                writer.compile_json_schema(schema("mapped", number))
        with client_beside(local, 0, wait_s=2.0) as reader:
            sources = [reader.source_of_schema(schema("mapped", number)) for number in range(6)]
            assert reader.ensure(sources[:1]) == "lmdb"
            kill(local.nodes()[0]["pid"])
            assert reader.ensure(sources[1:4]) == "lmdb"
            assert accepts(reader.compile_json_schema(schema("mapped", 2)), example("mapped", 2))
            local.start("node-0")
            assert reader.ensure(sources[4:]) in ("lmdb", "cluster")
            assert reader.stats.local == 0
        with client_beside(local, 0) as later:
            assert later.ensure(sources) in ("lmdb", "cluster")
            assert later.stats.local == 0


DOOMED = """
import sys
from pathlib import Path
from tests.cluster.cluster_tools import client_of, schema
with client_of(sys.argv[1], wait_s=60.0) as client:
    client.compile_json_schema(schema("doomed"))
    print("begun", flush=True)
    for start in range(1, 100000, 200):
        client.ensure([client.source_of_schema(schema("doomed", n)) for n in range(start, start + 200)])
"""


def test_a_client_is_killed_in_the_middle(tmp_path: Path) -> None:
    with agents(tmp_path, 2) as nodes:
        command = [sys.executable, "-c", DOOMED, nodes.addresses[0]]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        [first, second] = nodes.agents
        until(lambda: first.coordinator.stats.sources > 1)
        process.kill()
        process.wait()
        process.stdout.close()
        until(lambda: first.coordinator.flights.in_flight == second.coordinator.flights.in_flight == 0)
        until(lambda: not len(first.coordinator.peer.claims) and not len(second.coordinator.peer.claims))
        with client_of(nodes.addresses[0]) as client:
            assert accepts(client.compile_json_schema(schema("after")), example("after"))
            assert client.stats.cluster == 1


def test_a_client_that_goes_frees_what_it_asked_for(tmp_path: Path) -> None:
    with agents(tmp_path, 2) as nodes:
        items = [SourceItem(s.key, s.kind, s.options, s.text) for s in (source_of("gone", n) for n in range(100))]

        async def go_away() -> None:
            async with GrpcPeer(nodes.addresses[0]) as peer:
                await peer.register_tokenizer(FINGERPRINT, TOKENIZER.vocabulary.to_bytes())
                events = peer.compile_events(items, tokenizers=[FINGERPRINT], deadline_s=60)
                async for event in events:
                    if isinstance(event, Finished):
                        break
                await events.aclose()

        asyncio.run(go_away())
        until(lambda: not any(agent.coordinator.flights.in_flight for agent in nodes.agents))
        until(lambda: not any(len(agent.coordinator.peer.claims) for agent in nodes.agents))


# The network


@contextmanager
def behind_proxies(folder: Path, **more: dict[str, Any]) -> Iterator[tuple[Nodes, list[FaultProxy]]]:
    """Two nodes that reach each other through proxies; clients reach them directly."""
    nodes = Nodes(folder, 2, **more)
    proxies = [FaultProxy(address) for address in nodes.addresses]
    with proxies[0].in_thread(), proxies[1].in_thread():
        peers = [proxy.address for proxy in proxies]
        try:
            for place in range(2):
                name = {"name": f"n{place}", "advertise": peers[place]}
                listen = [nodes.addresses[place]]
                nodes.start(place, peers, node={**name, "listen": listen})
            yield nodes, proxies
        finally:
            nodes.close()


def test_a_partition_and_its_end(tmp_path: Path) -> None:
    with behind_proxies(tmp_path, deadlines={"peer_s": 0.5, "lease_s": 2.0, "drain_s": 0.1}) as (nodes, proxies):
        with client_of(nodes.addresses[0], wait_s=4.0) as left, client_of(nodes.addresses[1], wait_s=4.0) as right:
            left.compile_json_schema(schema("before"))
            right.compile_json_schema(schema("before"))
            for proxy in proxies:
                proxy.black_hole = True
            for number in range(4):
                start = time.monotonic()
                assert accepts(left.compile_json_schema(schema("cut", number)), example("cut", number))
                assert accepts(right.compile_json_schema(schema("cut", number)), example("cut", number))
                assert time.monotonic() - start < 20  # two deadlines of `wait_s`, and a busy machine
            assert left.stats.local == right.stats.local == 0  # each half goes on serving
            for proxy in proxies:
                proxy.black_hole = False
                proxy.cut()
            until(lambda: all(agent.coordinator.delivery.unpublished == 0 for agent in nodes.agents))
            lowered = sum(agent.coordinator.stats.sources_lowered for agent in nodes.agents)
            left.compile_json_schema(schema("healed"))
            assert right.ensure([right.source_of_schema(schema("healed"))]) == "cluster"
            assert sum(agent.coordinator.stats.sources_lowered for agent in nodes.agents) == lowered + 1
            assert (left.stats.fallbacks, right.stats.fallbacks) == ({}, {})
        stats = [agent.coordinator.stats for agent in nodes.agents]
        assert sum(one.units_unclaimed + one.puts_degraded for one in stats) > 0  # what happened was counted
        assert any(agent.metrics.peer_errors.snapshot() for agent in nodes.agents)


def test_a_slow_peer(tmp_path: Path) -> None:
    with behind_proxies(tmp_path) as (nodes, proxies):
        for proxy in proxies:
            proxy.delay_s = 0.1
        with client_of(nodes.addresses[0]) as client:
            for number in range(3):
                assert accepts(client.compile_json_schema(schema("slow", number)), example("slow", number))
            assert (client.stats.cluster, client.stats.fallbacks) == (3, {})
        for proxy in proxies:
            proxy.bytes_per_s = 200.0
        with client_of(nodes.addresses[0], wait_s=3.0) as client:
            start = time.monotonic()
            assert accepts(client.compile_json_schema(schema("slower")), example("slower"))
            assert time.monotonic() - start < 15


# Peers that lie


class Liar(MemoryNode):
    """A node that keeps what it is given, says that it has compiled everything, and spoils what is read."""

    def __init__(self, spoil: Callable[[Record], Record]) -> None:
        super().__init__("liar")
        self.spoil = spoil
        self.lowering = Lowering()
        self.compiling = self._compile

    def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        return [key for key in keys if key.kind is Kind.TOKENIZER]

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        found = super().read(keys)
        return [record and self.spoil(record) for record in found]

    def shard_page(self, tokenizer: bytes, unit: bytes, *, version: int, after: bytes, most_bytes: int) -> list[Record]:
        if after:
            return []
        return [Record(Key(Kind.ENTRY, unit, tokenizer, b"slot"), b"not what this unit allows", 1, bytes(32))]

    async def _compile(self, node: MemoryNode, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
        for index, item in enumerate(job.sources):
            source = Source.from_parts(item.kind, item.options, item.text)
            manifest, units = self.lowering.lower(source)
            self.add(*(Record(Key(Kind.UNIT, digest), data) for digest, data in units))
            yield Finished(index, Outcome(source.key, manifest))


SPOILED: dict[str, Callable[[Record], Record]] = {
    "corrupted": lambda r: replace(r, payload=bytes([r.payload[0] ^ 1, *r.payload[1:]])),
    "truncated": lambda r: replace(r, payload=r.payload[:-16]),
    "wrong key": lambda r: replace(r, key=replace(r.key, digest=bytes(32))),
    "wrong version": lambda r: replace(r, key=replace(r.key, version=FORMAT_VERSION + 1)),
    "wrong MAC": lambda r: r,
}


@contextmanager
def beside(folder: Path, other: MemoryNode) -> Iterator[tuple[Agent, str, Nodes]]:
    """A node whose only peer is `other`, and the peer's address."""
    nodes = Nodes(folder, 1)
    server = WireServer(other, "127.0.0.1:0")
    nodes.run(server.start())
    try:
        yield nodes.start(0, [nodes.addresses[0], server.address]), server.address, nodes
    finally:
        nodes.run(server.drain(0.1))
        nodes.close()


def owned_by(agent: Agent, address: str, name: str, number: int) -> list[int]:
    """Numbers of schemas that another node owns."""
    found: list[int] = []
    candidate = 0
    while len(found) < number:
        if agent.membership.owners(source_of(name, candidate).key, 1) == (address,):
            found.append(candidate)
        candidate += 1
    return found


@pytest.mark.parametrize("how", list(SPOILED))
def test_a_peer_that_lies(tmp_path: Path, how: str) -> None:
    from gramary.cluster.kernel import verify_units

    liar = Liar(SPOILED[how])
    with beside(tmp_path, liar) as (agent, address, nodes), client_of(nodes.addresses[0]) as client:
        for number in owned_by(agent, address, "lie", 4):
            assert accepts(client.compile_json_schema(schema("lie", number)), example("lie", number))
        assert (client.stats.cluster, client.stats.fallbacks) == (4, {})
        assert liar.jobs  # it was asked
        nodes.run(agent.coordinator.entries.settled())
        stored = agent.store.get(list(agent.store.live.keys(Kind.UNIT)))
        assert stored
        assert not verify_units([(record.key.digest, record.payload) for record in stored if record is not None])
        assert b"slot" not in {key.slot for key in agent.store.live.keys(Kind.ENTRY)}
        counted = agent.verifier.counters
        stats = agent.coordinator.stats
        if how in ("corrupted", "truncated"):
            assert counted["digest"] >= 3
            assert agent.verifier.quarantined_origins() == {address}
            values = agent.node.stats().values
            assert values["gramary_quarantined_origins"] == 1
            assert values['gramary_corruption_total{origin="peer"}'] >= 3
        elif how == "wrong MAC":
            assert counted["mac"] >= 1
        else:  # the answer is no answer to what was asked
            assert agent.node.stats().values['gramary_corruption_total{origin="peer"}'] >= 1
        assert stats.refused_records + stats.sources_lowered > 0


def test_nodes_of_another_format_version(tmp_path: Path) -> None:
    newer = MemoryNode("newer")
    newer.info = replace(newer.info, format_version=FORMAT_VERSION + 1)
    with beside(tmp_path, newer) as (agent, address, nodes), client_of(nodes.addresses[0]) as client:
        theirs = [
            Record(Key(Kind.UNIT, bytes([n]) * 32, version=FORMAT_VERSION + 1), b"of the future") for n in range(5)
        ]

        async def send() -> None:
            async with GrpcPeer(nodes.addresses[0]) as peer:
                with pytest.raises(PeerError, match="version"):
                    await peer.put(theirs)
                assert await peer.lookup([bytes(32)], version=FORMAT_VERSION + 1) == [None]

        asyncio.run(send())
        for number in owned_by(agent, address, "roll", 3):
            assert accepts(client.compile_json_schema(schema("roll", number)), example("roll", number))
        assert (client.stats.cluster, client.stats.fallbacks) == (3, {})
        assert agent.verifier.quarantined_origins() == set()  # to be newer is no lie
        # Values of both versions are beside each other in a store, as after an upgrade.
        nodes.run(agent.store.put(theirs))
        assert agent.store.get([theirs[0].key]) == [replace(theirs[0], origin="")]
        with client_of(None, nodes.folder / "n0" / "store") as reader:
            assert reader.warm() == 3


# Stores


def test_a_store_is_wiped_under_a_client(tmp_path: Path) -> None:
    with agents(tmp_path, 1) as nodes, client_of(nodes.addresses[0], tmp_path / "n0" / "store") as client:
        sources = [client.source_of_schema(schema("wiped", number)) for number in range(4)]
        client.ensure(sources[:2])
        nodes.stop(nodes.agents[0])
        shutil.rmtree(tmp_path / "n0" / "store")
        assert accepts(client.compile_json_schema(schema("wiped", 0)), example("wiped", 0))
        nodes.start(0)
        until(lambda: client.ensure([client.source_of_schema(schema("wiped", int(time.time() * 10)))]) == "cluster")
        assert client.ensure(sources[2:3]) == "cluster"  # the tokenizer was registered again
        assert accepts(client.compile_json_schema(schema("wiped", 2)), example("wiped", 2))
        with client_of(nodes.addresses[0], tmp_path / "n0" / "store") as other:
            assert other.ensure(sources[2:3]) == "lmdb"
            assert other.ensure(sources[:1]) == "cluster"


# Agents that are none


@contextmanager
def garbage() -> Iterator[str]:
    """Something that listens, and answers with noise."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
                connection.sendall(os.urandom(4000))
                connection.close()
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def test_noise_instead_of_an_agent() -> None:
    with garbage() as address, client_of(address, wait_s=3.0) as client:
        for number in range(3):
            assert accepts(client.compile_json_schema(schema("noise", number)), example("noise", number))
        assert client.stats.local == 3
        assert client.stats.fallbacks.keys() <= {"unreachable", "deadline"}


def test_an_agent_that_answers_nonsense(tmp_path: Path) -> None:
    class Nonsense(MemoryNode):
        async def register_tokenizer(self, fingerprint: bytes, form: Any, data: bytes) -> None:
            self.tokenizers[fingerprint] = data

    async def compile_nonsense(node: MemoryNode, job: CompileJob) -> AsyncGenerator[CompileEvent, None]:
        for index, item in enumerate(job.sources):
            yield Finished(index, Outcome(item.key, os.urandom(200)))

    nonsense = Nonsense()
    nonsense.compiling = compile_nonsense
    nodes = Nodes(tmp_path, 0)
    server = WireServer(nonsense, "127.0.0.1:0")
    nodes.run(server.start())
    try:
        with client_of(server.address) as client:
            for number in range(3):
                assert accepts(client.compile_json_schema(schema("nonsense", number)), example("nonsense", number))
            assert (client.stats.local, client.stats.fallbacks) == (3, {"corrupt": 3})
    finally:
        nodes.run(server.drain(0.1))
        nodes.close()


# Time


def test_clocks_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = types.ModuleType("time")
    clock.__dict__.update(time.__dict__)
    for name, module in list(sys.modules.items()):  # not gRPC's, which would compare ours with the system's
        if name.startswith("gramary.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", clock)
    with agents(tmp_path, 2) as nodes, client_of(nodes.addresses[0], tmp_path / "n0" / "store") as client:
        for place, jump in enumerate((0.0, 86400.0, -10 * 86400.0)):
            clock.time = lambda jump=jump: time.time() + jump  # type: ignore[attr-defined]
            name = f"clock_{place}"
            for number in range(2):
                assert accepts(client.compile_json_schema(schema(name, number)), example(name, number))
            nodes.run(nodes.agents[0].store.maintain())
        assert (client.stats.cluster, client.stats.local, client.stats.fallbacks) == (6, 0, {})


def test_a_frozen_agent(tmp_path: Path) -> None:
    """A process that is stopped looks like one that is very busy."""
    impatient = "[deadlines]\npeer_s = 1.0\nlease_s = 2.0\n"
    with cluster(tmp_path, 2, impatient) as local, client_beside(local, 0, wait_s=5.0) as client:
        client.compile_json_schema(schema("frozen"))
        os.kill(local.nodes()[1]["pid"], signal.SIGSTOP)
        for number in range(1, 4):
            assert accepts(client.compile_json_schema(schema("frozen", number)), example("frozen", number))
        assert client.stats.fallbacks == {}
        os.kill(local.nodes()[0]["pid"], signal.SIGSTOP)
        client.ladder.wait_s = 0.5
        start = time.monotonic()
        assert accepts(client.compile_json_schema(schema("frozen", 9)), example("frozen", 9))
        assert time.monotonic() - start < 10
        assert client.stats.fallbacks == {"deadline": 1}
