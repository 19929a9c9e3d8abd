"""What tests of agents, clients and their faults share: agents in this process, and nodes as processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gramary.cluster.agent.local_cluster import LocalCluster
from gramary.cluster.agent.running import Agent
from gramary.cluster.client import Client
from gramary.cluster.client.background import Background
from gramary.cluster.config import load
from gramary.cluster.credentials import Credentials
from gramary.cluster.executor import InProcess
from gramary.cluster.settings import Settings
from gramary.cluster.stats import NodeStats
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.configured import client_security
from gramary.compiler import Compiler, Tokenizer

T = TypeVar("T")
KEY = "ab" * 32
"""The cluster's MAC key."""
TOKENIZER = Tokenizer.from_bytes()


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on, a moment ago."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def schema(name: str, number: int = 0) -> dict[str, Any]:
    """A schema of its own for each name and number."""
    return {
        "type": "object",
        "properties": {f"{name}_{number}": {"type": "string", "maxLength": 5 + number}, "also": {"type": "integer"}},
        "required": [f"{name}_{number}"],
        "additionalProperties": False,
    }


def example(name: str, number: int = 0) -> str:
    """An instance of `schema`."""
    return f'{{"{name}_{number}": "abc", "also": 3}}'


def accepts(grammar: Any, text: str) -> bool:
    """Whether a compiled grammar takes a text as a whole."""
    matcher = grammar.matcher()
    return bool(matcher.accept_bytes(text)) and bool(matcher.is_complete())


BOMB = {"enum": [f"{number:x}" * 5 for number in range(4000)]}
"""Needs more automaton states than `limits.fsm_states` of 2000."""


def node_settings(
    folder: Path, *, port: int = 0, members: Sequence[str] = (), role: Any = "agent", **more: dict[str, Any]
) -> Settings:
    """Settings of a node that keeps everything in a folder. `more`: fields by section."""
    options: dict[str, dict[str, Any]] = {
        "node": {"name": folder.name, "listen": [f"127.0.0.1:{port}", f"unix:{folder}/agent.sock"]},
        "store": {"path": str(folder / "store"), "budget_bytes": 64 << 20, "min_free_bytes": 0},
        "peers": {"nodes": list(members), "refresh_s": 0.5},
        "executor": {"kind": "inline", "workers": 2},
        "metrics": {"listen": ""},
        "trust": {"mac_keys": [KEY], "publishers": "workers"},
        "deadlines": {"drain_s": 0.2, "lease_s": 2.0},
    }
    for section, fields in more.items():
        options.setdefault(section, {}).update(fields)
    folder.mkdir(parents=True, exist_ok=True)
    return load(None, role=role, options=options, environ={})


class Nodes:
    """Nodes in this process that know each other, on an event loop of their own thread."""

    def __init__(self, folder: Path, number: int, **more: dict[str, Any]) -> None:
        self.background = Background("test-nodes")
        ports = free_ports(number)
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.folder, self.more = folder, more
        self.executor = InProcess(2)
        self.agents: list[Agent] = []

    def start(self, place: int, peers: Sequence[str] | None = None, **more: dict[str, Any]) -> Agent:
        """Start the node of this place."""
        port = int(self.addresses[place].rpartition(":")[2])
        known = self.addresses if peers is None else peers
        settings = node_settings(self.folder / f"n{place}", port=port, members=known, **{**self.more, **more})

        async def begin() -> Agent:
            agent = Agent(settings, executor=self.executor)
            await agent.start()
            return agent

        agent = self.run(begin())
        self.agents.append(agent)
        return agent

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """The result of a coroutine on the nodes' loop."""
        return self.background.start(work).result(seconds)

    def stop(self, agent: Agent) -> None:
        """End one node."""
        self.run(agent.close(drain_s=0.1))
        self.agents.remove(agent)

    def close(self) -> None:
        """End all of them."""

        async def end() -> None:
            await asyncio.gather(*(agent.close(drain_s=0.1) for agent in self.agents), return_exceptions=True)
            await self.executor.close()

        self.run(end())
        self.background.close()


@contextmanager
def agents(folder: Path, number: int, **more: dict[str, Any]) -> Iterator[Nodes]:
    """So many nodes, started."""
    nodes = Nodes(folder, number, **more)
    try:
        for place in range(number):
            nodes.start(place)
        yield nodes
    finally:
        nodes.close()


def client_of(
    address: str | None, store: Path | None = None, *, wait_s: float = 20.0, **more: dict[str, Any]
) -> Client:
    """A client with a compiler of its own."""
    options: dict[str, dict[str, Any]] = {"client": {"wait_s": wait_s}, "trust": {"mac_keys": [KEY]}}
    if address is not None:
        options["client"]["address"] = address
    if store is not None:
        options["store"] = {"path": str(store)}
    for section, fields in more.items():
        options.setdefault(section, {}).update(fields)
    settings = load(None, role="client", options=options, environ={})
    return Client(Compiler(TOKENIZER), settings=settings, store=store)


@contextmanager
def cluster(folder: Path, number: int, more: str = "") -> Iterator[LocalCluster]:
    """Nodes as processes, ended at the end."""
    executor = '[executor]\nkind = "inline"\nworkers = 2\n' if "[executor]" not in more else ""
    local = LocalCluster(folder / "nodes", more=f"{executor}{more}")
    port = next(port for port in free_ports(1) if port + number < 65536)
    local.up(number, port)
    try:
        yield local
    finally:
        for node in local.nodes():
            try:
                os.kill(node["pid"], signal.SIGCONT)
            except ProcessLookupError:
                continue
        local.down()


def kill(pid: int) -> None:
    """Kill a child, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.01)


def client_beside(local: LocalCluster, place: int, *, wait_s: float = 20.0, others: bool = False) -> Client:
    """A client beside a node of a cluster of processes; with `others`, it may ask the other nodes too."""
    nodes = local.nodes()
    options: dict[str, dict[str, Any]] = {
        "client": {"address": nodes[place]["address"], "wait_s": wait_s},
        "store": {"path": nodes[place]["store"]},
    }
    if not others:
        options["client"]["others"] = []
    settings = load(local.client_config, role="client", options=options, environ={})
    return Client(Compiler(TOKENIZER), settings=settings)


def stats_of(local: LocalCluster, places: Sequence[int]) -> list[NodeStats]:
    """The figures of some nodes."""
    settings = load(local.client_config, role="client", environ={})
    security = client_security(settings, Credentials(settings))

    async def ask() -> list[NodeStats]:
        out = []
        for place in places:
            async with GrpcPeer(local.nodes()[place]["address"], security=security, timeout_s=10.0) as peer:
                out.append(await peer.stats())
        return out

    return asyncio.run(ask())
