"""The second part of `make demo`: two nodes. The first compiles; the second answers from what it streams.

Both are what `gramary agent` runs, each a process with a store of its own. The second one starts, empty, when the first
has compiled.
"""

from __future__ import annotations

import argparse
import gzip
import json
import socket
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from gramary.cluster.agent.asking import ask_nodes
from gramary.cluster.agent.local_cluster import LocalCluster
from gramary.cluster.client import Client
from gramary.cluster.config import load
from gramary.compiler import Tokenizer
from gramary.runtime import allocate_bitmask

CATALOGUE = Path(__file__).parents[1] / "data" / "tools.jsonl.gz"
EXPLANATION = """\
ms: the tools' list to the first mask, in a program that has nothing in memory. memory, store, cluster, here: where each
tool came from. compiled: units that the node built. streamed: values that it brought from the other one, checked by
digests and the cluster's key."""


def free_port() -> int:
    """The first of two free ports, most likely."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(local: LocalCluster, tokenizer: Tokenizer, node: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """One program that uses a node: milliseconds to the first mask, and which tier had the tools."""
    settings = load(local.client_config, role="client", environ={}, options={"client": {"wait_s": 120.0, "others": []}})
    with Client(tokenizer, address=node["address"], store=node["store"], settings=settings) as client:
        began = perf_counter()
        matcher = client.compile_tools(tools, on_error="drop").matcher()
        bitmask = allocate_bitmask(1, client.compiler.vocab_size)
        matcher.fill_bitmask(bitmask)
        took = perf_counter() - began
        return {"ms": round(took * 1e3, 2), **client.stats.as_dict()}


def figures(local: LocalCluster, node: dict[str, Any]) -> dict[str, float]:
    """A node's counters."""
    import asyncio

    settings = load(local.client_config, role="client", environ={})
    (stats,) = asyncio.run(ask_nodes(settings, [node["address"]])())  # type: ignore[arg-type]
    if stats.error:
        raise SystemExit(f"{node['name']} does not answer: {stats.error}; see {node['log']}")
    return dict(stats.values)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--tools", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as file:
        catalogue = {tool["name"]: tool for tool in map(json.loads, file)}
    tools = [{"name": t["name"], "parameters": t["parameters"]} for t in list(catalogue.values())[: arguments.tools]]
    tokenizer = Tokenizer.from_file(arguments.tokenizer)
    console = Console(stderr=arguments.json)
    with tempfile.TemporaryDirectory(prefix="gramary-demo-") as folder:
        local = LocalCluster(Path(folder))
        try:
            console.print("starting a node ...")
            [first] = local.up(2, free_port(), begin=1)
            asked = {"node 0, first": ask(local, tokenizer, first, tools)}
            asked["node 0, again"] = ask(local, tokenizer, first, tools)
            console.print("starting a second one beside it, empty ...")
            second = local.join()
            asked["node 1, first"] = ask(local, tokenizer, second, tools)
            asked["node 1, again"] = ask(local, tokenizer, second, tools)
            nodes = [figures(local, node) for node in (first, second)]
        finally:
            local.down()
    compiled = [int(node["placement_units_compiled"]) for node in nodes]
    streamed = [int(node["placement_fetched"]) for node in nodes]
    if arguments.json:
        sys.stdout.write(json.dumps({"asked": asked, "compiled": compiled, "streamed": streamed}) + "\n")
    else:
        table = Table(title=f"two nodes, {len(tools)} tools", title_justify="left")
        for name in ("request", "ms", "memory", "store", "cluster", "here"):
            table.add_column(name, justify="left" if name == "request" else "right")
        for name, row in asked.items():
            cells = (row["process"], row["lmdb"], row["cluster"], row["local"])
            table.add_row(name, f"{row['ms']:,}", *(f"{cell:,}" for cell in cells))
        console.print(table)
        for number in (0, 1):
            console.print(
                f"node {number}: {compiled[number]:,} units compiled, {streamed[number]:,} values streamed in"
            )
        console.print(EXPLANATION, style="dim")
    good = compiled[0] > 0 and compiled[1] == 0 and streamed[1] > 0 and not any(row["local"] for row in asked.values())
    if not good:
        sys.stderr.write("the second node should have answered from what it streamed, and compiled nothing\n")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
