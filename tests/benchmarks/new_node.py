"""A node that begins with an empty store, beside nodes that know every tool: it streams instead of compiling.

    python tests/benchmarks/new_node.py [--nodes N] [--tools T] [--requests R] [--tokenizer FILE] [--json]

The nodes compile the tools once. Then one is stopped, its store is removed, and it is started again; a client beside
it asks for popular and rare tools (Zipf, 5 to 20 a request). shard: the mask entries of one unit, streamed over TCP
from a node that has them, against building them here from the compiled unit. tool: manifest and units, fetched, against
compiled here. to 99 percent local: from the first request until 99 of 100 sources looked up in a row came from the
client's memory or the new node's store. The last line of `--json` is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from gramary.cluster.agent.local_cluster import LocalCluster  # noqa: E402
from gramary.cluster.client import Client  # noqa: E402
from gramary.cluster.credentials import Credentials  # noqa: E402
from gramary.cluster.kernel import Lowering, Manifest  # noqa: E402
from gramary.cluster.records import Key, Kind  # noqa: E402
from gramary.cluster.settings import Settings  # noqa: E402
from gramary.cluster.wire.client import GrpcPeer  # noqa: E402
from gramary.cluster.wire.configured import client_security  # noqa: E402
from gramary.compiler import Compiler, Tokenizer  # noqa: E402
from tests.benchmarks import nodes as local  # noqa: E402

WAIT_S = 60.0
WINDOW = 100
MIN_COST_US = 100.0
SHARDS = 200


def known_sources(client: Client, tools: list[dict[str, Any]]) -> list[Any]:
    """The sources of all tools, compiled by the cluster."""
    sources = client.compiler.core.sources_of_tools(json.dumps(tools))
    for start in range(0, len(sources), 50):
        client.ensure(sources[start : start + 50])
    return list(sources)


def stop_and_wipe(node: dict[str, Any]) -> None:
    """End a node's process and remove its store."""
    os.kill(node["pid"], signal.SIGTERM)
    until = time.monotonic() + 60
    while Path(f"/proc/{node['pid']}").exists() and time.monotonic() < until:
        try:
            if os.waitpid(node["pid"], os.WNOHANG)[0]:
                break
        except ChildProcessError:
            break
        time.sleep(0.05)
    shutil.rmtree(node["store"])


def until_local(client: Client, tools: list[dict[str, Any]], requests: int, seed: int) -> dict[str, Any]:
    """Make requests until they are answered where the client is."""
    zipf = local.Zipf(len(tools), seed, 5, 20)
    window: deque[bool] = deque(maxlen=WINDOW)
    reached: dict[str, Any] = {"requests": None, "seconds": None}
    first_s = 0.0
    start = time.perf_counter()
    for number in range(1, requests + 1):
        chosen = [tools[index] for index in zipf.request()]
        before = client.stats.cluster + client.stats.local
        client.compile_tools(json.dumps(chosen))
        away = client.stats.cluster + client.stats.local - before
        window.extend([False] * away + [True] * (len(chosen) - away))
        if number == 1:
            first_s = time.perf_counter() - start
        if reached["requests"] is None and len(window) == WINDOW and sum(window) >= WINDOW * 0.99:
            reached = {"requests": number, "seconds": round(time.perf_counter() - start, 3)}
    stats = client.stats
    return {
        "first_request_ms": round(first_s * 1e3, 1),
        "to_99_percent_local": reached,
        "sources": {"process": stats.process, "lmdb": stats.lmdb, "cluster": stats.cluster, "local": stats.local},
        "fallbacks": sum(stats.fallbacks.values()),
    }


def shard_times(settings: Settings, address: str, tokenizer: Tokenizer, sources: list[Any]) -> dict[str, Any]:
    """Each unit's shard: streamed, built, and compiled and built; milliseconds."""
    lowering = Lowering()
    closures: list[list[tuple[bytes, bytes]]] = []
    compile_ms: list[float] = []
    for source in sources:
        start = time.perf_counter()
        _, units = lowering.lower(source)
        compile_ms.append((time.perf_counter() - start) * 1e3)
        closures.append(units)

    async def stream() -> dict[str, list[float]]:
        times: dict[str, list[float]] = {"shard": [], "bytes": [], "tool": []}
        fingerprint = tokenizer.vocabulary.fingerprint
        security = client_security(settings, Credentials(settings))
        async with GrpcPeer(address, security=security, timeout_s=30.0) as peer:
            await peer.stats()
            done: set[bytes] = set()
            for source, closure in zip(sources, closures, strict=True):
                for digest, _ in closure:
                    if digest in done or len(done) >= SHARDS:
                        continue
                    done.add(digest)
                    start = time.perf_counter()
                    size = sum([len(record.payload) async for record in peer.shards(fingerprint, [digest])])
                    if size:
                        times["shard"].append((time.perf_counter() - start) * 1e3)
                        times["bytes"].append(size)
                start = time.perf_counter()
                [manifest] = await peer.lookup([source.key])
                if manifest is None:
                    raise RuntimeError("the node does not know a tool that it compiled")
                units = Manifest.parse(manifest.payload).units
                await peer.read([Key(Kind.UNIT, unit) for unit in units])
                times["tool"].append((time.perf_counter() - start) * 1e3)
        return times

    streamed = asyncio.run(stream())
    build_ms: list[float] = []
    core = Compiler(tokenizer).core
    done: set[bytes] = set()
    for closure in closures:
        for digest, _ in closure:
            if digest in done or len(done) >= SHARDS:
                continue
            done.add(digest)
            start = time.perf_counter()
            if core.build_entries(closure, [digest], min_cost_us=MIN_COST_US):
                build_ms.append((time.perf_counter() - start) * 1e3)
    return {
        "shards": len(streamed["shard"]),
        "shard_kib_p50": round(statistics.median(streamed["bytes"]) / 1024, 1) if streamed["bytes"] else 0,
        "stream_shard_ms_p50": _median(streamed["shard"]),
        "build_shard_ms_p50": _median(build_ms),
        "stream_shards_ms_sum": round(sum(streamed["shard"]), 1),
        "build_shards_ms_sum": round(sum(build_ms), 1),
        "fetch_tool_ms_p50": _median(streamed["tool"]),
        "compile_tool_ms_p50": _median(compile_ms),
    }


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--tools", type=int, default=300)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--tokenizer", help="default: the one that make test uses, or bytes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    options = parser.parse_args()
    tokenizer = local.open_tokenizer(local.tokenizer_path(options.tokenizer))
    tools = local.read_tools(options.tools)
    with tempfile.TemporaryDirectory(prefix="gramary-") as folder:
        cluster = LocalCluster(Path(folder), more=local.PATIENT)
        nodes = cluster.up(options.nodes, local.free_ports(options.nodes))
        try:
            addresses = [node["address"] for node in nodes]
            local.register(cluster.client_config, addresses, tokenizer)
            settings = local.client_settings(cluster.client_config, nodes[0], wait_s=WAIT_S)
            start = time.perf_counter()
            with Client(tokenizer, settings=settings) as client:
                sources = known_sources(client, tools)
                cold_s = time.perf_counter() - start
            compiled = local.placement(local.ask_stats(cluster.client_config, addresses[:-1]), "units_compiled")
            stop_and_wipe(nodes[-1])
            start = time.perf_counter()
            nodes[-1] = cluster.start(nodes[-1]["name"])
            up_s = time.perf_counter() - start
            settings = local.client_settings(cluster.client_config, nodes[-1], wait_s=WAIT_S)
            with Client(tokenizer, settings=settings) as client:
                joined = until_local(client, tools, options.requests, options.seed)
            figures = local.ask_stats(cluster.client_config, addresses)
            shards = shard_times(settings, nodes[0]["address"], tokenizer, sources)
        finally:
            cluster.down()
    out = {
        "nodes": options.nodes,
        "tools": options.tools,
        "cold_compile_s": round(cold_s, 2),
        "start_s": round(up_s, 2),
        **joined,
        **shards,
        "compiled_again": local.placement(figures, "units_compiled") - compiled,
        "repaired": local.placement(figures, "units_repaired"),
    }
    if not options.json:
        table = Table("what", "value")
        for name, figure in out.items():
            table.add_row(name.replace("_", " "), str(figure))
        Console().print(table)
    print(json.dumps(out))
    return 1 if out["compiled_again"] or out["fallbacks"] else 0


if __name__ == "__main__":
    sys.exit(main())
