"""What the benchmarks of the cluster share: tools, a tokenizer, nodes on this machine, and their figures."""

from __future__ import annotations

import asyncio
import copy
import gzip
import itertools
import json
import random
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gramary.cluster.config import load
from gramary.cluster.credentials import Credentials
from gramary.cluster.measure import percentile
from gramary.cluster.records import Kind
from gramary.cluster.settings import Settings
from gramary.cluster.stats import NodeStats
from gramary.cluster.store import open_reader
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.configured import client_security
from gramary.compiler import Tokenizer

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "tests" / "data" / "tools.jsonl.gz"
TEKKEN = ROOT / ".venv" / "data" / "tekken.json"
PATIENT = "[deadlines]\npeer_s = 30.0\nlease_s = 60.0\n"
"""For nodes that share a few CPUs: one that waits for one has not failed."""


def tokenizer_path(given: str | None) -> str | None:
    """The tokenizer's file: the one that was asked for, or the one that `make test` puts there; `None`: bytes."""
    return given or (str(TEKKEN) if TEKKEN.exists() else None)


def open_tokenizer(path: str | None) -> Tokenizer:
    """The tokenizer in a file; without one, the 256 bytes and an end token."""
    return Tokenizer.from_file(path) if path else Tokenizer.from_bytes()


def read_tools(number: int) -> list[dict[str, Any]]:
    """So many distinct tools: those of the bundled catalogue, then variants of them with one more property."""
    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as file:
        bundled = [json.loads(line) for line in file]
    tools: list[dict[str, Any]] = []
    for index in range(number):
        tool = bundled[index % len(bundled)]
        name, schema = tool["name"], tool["parameters"]
        variant = index // len(bundled)
        if variant:
            schema = copy.deepcopy(schema)
            schema.setdefault("properties", {})[f"variant_{variant}"] = {"type": "string", "maxLength": variant}
            name = f"{name}_{variant}"
        tools.append({"name": name, "parameters": schema})
    return tools


def free_ports(number: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    for first in range(20000, 60000, 100):
        sockets = [socket.socket() for _ in range(number)]
        try:
            for offset, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + offset))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return first
    raise RuntimeError("no free ports")


class Zipf:
    """Requests that offer tools as popular as words: the n-th one 1/n times as often as the first."""

    def __init__(self, tools: int, seed: int, fewest: int, most: int) -> None:
        self._tools, self._fewest, self._most = tools, min(fewest, tools), min(most, tools)
        order = random.Random(7)
        self._ranked = list(range(tools))
        order.shuffle(self._ranked)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, tools + 1)))
        self._dice = random.Random(seed)

    def request(self) -> list[int]:
        """The numbers of the tools that one request offers."""
        wanted = self._dice.randint(self._fewest, self._most)
        chosen: dict[int, None] = {}
        while len(chosen) < wanted:
            for place in self._dice.choices(range(self._tools), cum_weights=self._weights, k=wanted - len(chosen)):
                chosen[self._ranked[place]] = None
        return list(chosen)


def client_settings(config: Path, node: dict[str, Any], *, wait_s: float) -> Settings:
    """Settings of a client beside a node of a `LocalCluster`: the node's socket and store, the cluster's keys."""
    folder = Path(node["store"]).parent
    options = {
        "client": {"address": f"unix:{folder}/agent.sock", "wait_s": wait_s},
        "store": {"path": node["store"]},
    }
    return load(config, role="client", options=options)


def ask_stats(config: Path, addresses: Sequence[str]) -> list[NodeStats]:
    """The figures of nodes; raises `PeerError` where one does not answer."""
    settings = load(config, role="client")
    security = client_security(settings, Credentials(settings))

    async def ask() -> list[NodeStats]:
        peers = [GrpcPeer(address, security=security, timeout_s=20.0) for address in addresses]
        try:
            return list(await asyncio.gather(*(peer.stats() for peer in peers)))
        finally:
            await asyncio.gather(*(peer.close() for peer in peers))

    return asyncio.run(ask())


def register(config: Path, addresses: Sequence[str], tokenizer: Tokenizer) -> None:
    """Make a tokenizer known to nodes, as their own settings would: its 8 MB are no part of what is measured."""
    settings = load(config, role="client")
    security = client_security(settings, Credentials(settings))

    async def tell() -> None:
        for address in addresses:
            async with GrpcPeer(address, security=security, timeout_s=120.0) as peer:
                await peer.register_tokenizer(tokenizer.vocabulary.fingerprint, tokenizer.vocabulary.to_bytes())

    asyncio.run(tell())


def value(nodes: Iterable[NodeStats], name: str) -> float:
    """The sum of one series over nodes."""
    return sum(node.values.get(name, 0.0) for node in nodes)


def placement(nodes: Iterable[NodeStats], name: str) -> int:
    """The sum of one of placement's counters over nodes."""
    return int(value(nodes, f"placement_{name}"))


def store_bytes(nodes: Iterable[NodeStats]) -> int:
    """What the values take in all stores, headers and keys included."""
    return int(value(nodes, 'gramary_store_bytes{kind="live"}'))


def stored_digests(stores: Iterable[str], kind: Kind) -> list[set[bytes]]:
    """The digests of one kind that each store holds."""
    found = []
    for store in stores:
        with open_reader(store) as reader:
            found.append({key.digest for key in reader.keys(kind)})
    return found


def percentiles(seconds: Sequence[float]) -> dict[str, float | int]:
    """Number, p50 and p99 in milliseconds."""
    if not seconds:
        return {"requests": 0}
    return {
        "requests": len(seconds),
        "p50_ms": round(percentile(seconds, 0.5) * 1e3, 3),
        "p99_ms": round(percentile(seconds, 0.99) * 1e3, 3),
    }
