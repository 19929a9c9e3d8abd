"""A fleet in one thread: the real placement, claims, coordinator and eviction policy with a thousand virtual nodes.

    python tests/benchmarks/fleet.py --nodes 1000 --tools 10000 --requests 20000 --json

Requests arrive at random nodes and name `--per-request` tools each, drawn from a Zipf distribution. Time and network
are simulated; everything between a request and a message is the code that a node runs. In the middle of the stream a
tenth of the nodes dies; `--noticed` seconds later the others' list of members says so. The last line of the output is
one JSON object.

A tool has two units of its own, two of some hundreds that several tools share, and three of the dozen that nearly all
have; each has one shard for the one tokenizer. Sizes are drawn, not stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from gramary.cluster.peer import Peer, PeerError, SourceItem
from gramary.cluster.placement import Coordinator, Member, Membership, Settings, StaticSource
from gramary.cluster.placement.rendezvous import Ring
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store.layout import group_of, stored_key
from gramary.cluster.store.ledger import Ledger
from tests.cluster.fakes import manifest_units, source
from tests.cluster.simulated import MemoryStore, Network, RemotePeer, SimulatedExecutor, simulate

T = TypeVar("T")
TOKENIZER = b"\1" * 32


def size_of(key: Key) -> int:
    """Bytes of a value: 1 to 16 KiB for a unit, 2 to 32 KiB for an entry, as its digest has it."""
    spread = 1 + key.digest[0] % 16
    return {Kind.UNIT: 1024 * spread, Kind.ENTRY: 2048 * spread}.get(key.kind, 512)


class PolicyStore(MemoryStore):
    """A node's store with a budget, emptied by the eviction policy of the real one (`gramary.cluster.store.ledger`)."""

    def __init__(self, budget_bytes: int, grace_s: int = 30) -> None:
        super().__init__()
        self.budget_bytes, self.grace_s = budget_bytes, grace_s
        self.ledger = Ledger()
        self.bytes = 0
        self.members: dict[bytes, set[Key]] = {}
        self.evicted = 0
        self._checked = 0

    def _now(self) -> int:
        return int(asyncio.get_running_loop().time())

    def get(self, keys: Sequence[Key]) -> list[Record | None]:
        now = self._now()
        found = super().get(keys)
        for record in found:
            if record is not None:
                self.ledger.touch(_group(record.key), now)
        return found

    def shard(self, tokenizer: bytes, unit: bytes) -> list[Record]:
        found = super().shard(tokenizer, unit)
        if found:
            self.ledger.touch(_group(found[0].key), self._now())
        return found

    async def put(self, records: Sequence[Record]) -> None:
        now = self._now()
        for record in records:
            if record.key in self.values:
                continue
            group, size = _group(record.key), size_of(record.key)
            self.ledger.add(group, size, record.cost_ns, now)
            self.members.setdefault(group, set()).add(record.key)
            self.bytes += size
            if record.key.kind is Kind.MANIFEST:
                self.ledger.pin(group, manifest_units(record.payload))
        await super().put(records)
        if self.bytes >= 0.9 * self.budget_bytes and now > self._checked:
            self._checked = now
            self._evict(now)

    def _evict(self, now: int) -> None:
        self.ledger.mark(self.bytes - int(0.75 * self.budget_bytes), now)
        for group in list(self.ledger.due(now, self.grace_s)):
            if self.ledger.is_pinned(group):
                continue
            for key in self.members.pop(group, set()):
                self.bytes -= size_of(key)
                self.delete(key)
                self.evicted += 1
            self.ledger.forget(group)


_groups: dict[Key, bytes] = {}


def _group(key: Key) -> bytes:
    group = _groups.get(key)
    if group is None:
        group = _groups[key] = group_of(stored_key(key.encode()))
    return group


class QuickNetwork(Network):
    """Delays every message; a dead node refuses."""

    async def call(self, a: str, b: str, method: str, work: Callable[[Peer], Awaitable[T]]) -> T:
        self.calls[b] += 1
        self.by_method[method] += 1
        await asyncio.sleep(self.random.uniform(0.0002, 0.001))
        node = self.fleet[b]
        if node is None:
            raise PeerError(b, "connection refused")
        result = await work(node.peer)
        await asyncio.sleep(self.random.uniform(0.0002, 0.001))
        if self.fleet[b] is None:
            raise PeerError(b, "connection reset")
        return result

    fleet: dict[str, Coordinator | None]


class Fleet:
    """All nodes, and what is measured."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.random = random.Random(arguments.seed)
        self.network = QuickNetwork(arguments.seed)
        self.names = [f"node-{i:04}" for i in range(arguments.nodes)]
        self.members = [Member(name, name) for name in self.names]
        self.network.fleet = {}
        self.coordinators: list[Coordinator] = []
        self.compiled: set[bytes] = set()
        self.windows: dict[str, Window] = {}

    async def start(self) -> None:
        ring = Ring(self.names)
        for name in self.names:
            membership = Membership(
                name, StaticSource(self.members), lambda member, me=name: RemotePeer(self.network, me, member.name)
            )
            await membership.refresh()
            membership.ring = ring  # equal for all: one copy of what it remembers
            store = PolicyStore(self.arguments.budget_mib << 20)
            store.ledger.owned = lambda digest, m=membership: m.me in m.owners(digest, 2)
            settings = Settings(min_cost_us=0.0)
            executor = SimulatedExecutor(2)
            coordinator = Coordinator(membership, store, executor, manifest_units, settings=settings)
            self.coordinators.append(coordinator)
            self.network.fleet[name] = coordinator

    def tools(self) -> list[SourceItem]:
        count = self.arguments.tools
        shared = max(1, count // 20)
        out = []
        for i in range(count):
            some = [f"some-{min(int(self.random.paretovariate(0.7)), shared)}" for _ in range(2)]
            common = [f"common-{self.random.randrange(12)}" for _ in range(3)]
            out.append(source(*dict.fromkeys([*common, *some, f"tool-{i}-a", f"tool-{i}-b"])))
        return out

    def total(self, counter: str) -> int:
        return sum(getattr(coordinator.stats, counter) for coordinator in self.coordinators)

    async def run(self) -> dict[str, object]:
        arguments = self.arguments
        await self.start()
        loop = asyncio.get_running_loop()
        tools = self.tools()
        ranks = np.arange(1, len(tools) + 1, dtype=np.float64) ** -arguments.zipf
        drawn = np.random.default_rng(arguments.seed).choice(
            len(tools), size=(arguments.requests, arguments.per_request), p=ranks / ranks.sum()
        )
        duration = arguments.requests / (arguments.nodes * arguments.rate)
        interval = duration / arguments.requests
        lost_at = arguments.requests // 2
        victims = self.random.sample(range(arguments.nodes), arguments.nodes // 10)
        alive = list(range(arguments.nodes))
        pending: set[asyncio.Task[None]] = set()
        healthy: dict[str, object] = {}

        async def request(node: int, items: Sequence[SourceItem], window: Window) -> None:
            began = loop.time()
            outcomes = await self.coordinators[node].compile(items, tokenizers=[TOKENIZER], deadline_s=10.0)
            if self.network.fleet[self.names[node]] is not None:
                window.add(loop.time() - began, sum(outcome.manifest is None for outcome in outcomes))

        async def notice() -> None:
            await asyncio.sleep(arguments.noticed)
            left = [member for member, name in zip(self.members, self.names, strict=True) if self.network.fleet[name]]
            ring = Ring([member.name for member in left])
            for node in alive:
                membership = self.coordinators[node].membership
                membership._source = StaticSource(left)
                await membership.refresh()
                membership.ring = ring

        noticing = None
        lost_time = 0.0
        for number in range(arguments.requests):
            if number == lost_at:
                if pending:
                    await asyncio.wait(pending)
                healthy = self.figures(tools, loop.time())
                lost_time = loop.time()
                for node in victims:
                    self.network.fleet[self.names[node]] = None
                    alive.remove(node)
                noticing = asyncio.create_task(notice())
            window = self.window(loop.time(), lost_time)
            items = [tools[i] for i in dict.fromkeys(drawn[number].tolist())]
            task = asyncio.create_task(request(self.random.choice(alive), items, window))
            pending.add(task)
            task.add_done_callback(lambda task: (pending.discard(task), task.result()))
            await asyncio.sleep(interval)
        if pending:
            await asyncio.wait(pending)
        if noticing is not None:
            await noticing
        return self.report(healthy, self.figures(tools, loop.time()), lost_time)

    def window(self, now: float, lost_time: float) -> Window:
        noticed = now - lost_time >= self.arguments.noticed
        name = "before" if not lost_time else "after" if noticed else "until noticed"
        return self.windows.setdefault(name, Window())

    def figures(self, tools: Sequence[SourceItem], now: float) -> dict[str, object]:
        names = ("sources", "hits_local", "hits_owner", "flights_joined", "sources_lowered", "units_compiled")
        more = ("fallbacks", "takeovers", "units_repaired", "units_unclaimed", "puts_degraded", "hedges", "fetched")
        figures: dict[str, object] = {name: self.total(name) for name in (*names, *more)}
        lowered = {key for c in self.coordinators for key in c.executor.lowered}  # type: ignore[attr-defined]
        units = {unit for tool in tools if tool.key in lowered for unit in json.loads(tool.text)["units"]}
        figures["distinct_units"] = len(units)
        figures["distinct_tools"] = len(lowered)
        figures["messages"] = sum(self.network.calls.values())
        figures["seconds"] = now
        figures["evicted"] = sum(c.store.evicted for c in self.coordinators)  # type: ignore[attr-defined]
        return figures

    def report(self, healthy: dict, end: dict, lost_time: float) -> dict[str, object]:
        nodes = self.arguments.nodes
        later = {name: end[name] - healthy[name] for name in end}
        built = end["units_compiled"] + end["units_unclaimed"]
        tiers = {}
        for name, part in (("before", healthy), ("after_loss", later)):
            lookups = max(1, part["sources"])
            compiled = part["sources_lowered"]
            tiers[name] = {
                "local": round(part["hits_local"] / lookups, 4),
                "cluster": round((lookups - part["hits_local"] - compiled) / lookups, 4),
                "compiled": round(compiled / lookups, 4),
            }
        return {
            "nodes": nodes,
            "tools": self.arguments.tools,
            "requests": self.arguments.requests,
            "compiles_per_unit": round(healthy["units_compiled"] / max(1, healthy["distinct_units"]), 4),
            "compiles_per_unit_with_loss": round(built / max(1, end["distinct_units"]), 4),
            "hit_rate": round(1 - healthy["sources_lowered"] / max(1, healthy["sources"]), 4),
            "hit_rate_by_tier": tiers,
            "messages_per_node_s": round(healthy["messages"] / nodes / max(1e-9, healthy["seconds"]), 3),
            "messages_per_request": round(healthy["messages"] / max(1, self.arguments.requests // 2), 3),
            "messages_by_kind": dict(self.network.by_method),
            "recovery": {
                "nodes_lost": nodes // 10,
                "noticed_after_s": self.arguments.noticed,
                "windows": {name: window.figures() for name, window in self.windows.items()},
                "units_recompiled": built - end["distinct_units"],
                "units_repaired": later["units_repaired"],
                "fallbacks": later["fallbacks"],
            },
            "figures_before_loss": healthy,
            "figures_at_end": end,
        }


class Window:
    """Requests of a stretch of time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0

    def add(self, seconds: float, failed: int) -> None:
        self.seconds.append(seconds)
        self.failed += failed

    def figures(self) -> dict[str, float]:
        p50, p99 = np.percentile(self.seconds, [50, 99]) if self.seconds else (0.0, 0.0)
        return {
            "requests": len(self.seconds),
            "failed": self.failed,
            "p50_ms": round(float(p50) * 1e3, 3),
            "p99_ms": round(float(p99) * 1e3, 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--per-request", type=int, default=4, help="tools that a request names")
    parser.add_argument("--rate", type=float, default=1.0, help="requests per node and (simulated) second")
    parser.add_argument("--zipf", type=float, default=1.0, help="exponent of the tools' popularity")
    parser.add_argument("--budget-mib", type=int, default=8, help="each node's store")
    parser.add_argument("--noticed", type=float, default=5.0, help="seconds until the list of members lacks the dead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    arguments = parser.parse_args()
    began = time.perf_counter()
    result = simulate(Fleet(arguments).run())
    result["wall_s"] = round(time.perf_counter() - began, 1)
    if not arguments.json:
        for name, value in result.items():
            print(f"{name:30} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
