"""The cache grows with distinct tools, not with requests: several nodes, several clients, every unit compiled once.

    python tests/benchmarks/growth.py [--nodes N] [--tools T] [--requests R] [--clients C]
                                      [--tokenizer FILE] [--plot FILE] [--json]

Every node is a process with a store of its own, every client another one beside one of the nodes. A request offers 5 to
20 tools, popular ones more often (Zipf); its grammar is compiled and the first mask filled. Then all processes are
stopped and started again, and a part of the requests comes once more. The exit code is 1 if a unit was compiled twice,
a request fell back to compiling by itself, or the stores grew after every node had seen every tool.

compiles: units compiled by all nodes since their stores were empty. distinct units: units with different digests in all
stores together. store bytes: values of all stores, with their keys and headers; a value is in the stores of two owners
and of every node that was asked for it. mid: when every node had seen every tool. The last line of `--json` is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from gramary.cluster.agent.local_cluster import LocalCluster  # noqa: E402
from gramary.cluster.client import Client  # noqa: E402
from gramary.cluster.records import Kind  # noqa: E402
from gramary.runtime import allocate_bitmask  # noqa: E402
from tests.benchmarks import nodes as local  # noqa: E402

FEWEST, MOST = 5, 20
BLOCKS = 24
WAIT_S = 30.0
TIERS = ("process", "lmdb", "cluster", "local")


@dataclass
class Work:
    """What a client process is to do. Its requests follow from the seed."""

    config: Path
    node: dict[str, Any]
    tokenizer: str | None
    tools: int
    seed: int


def client_process(work: Work, pipe: Connection) -> None:
    """One client: receives numbers of requests, answers with what became of them; 0 ends it."""
    os.nice(1)
    tools = local.read_tools(work.tools)
    settings = local.client_settings(work.config, work.node, wait_s=WAIT_S)
    requests = local.Zipf(work.tools, work.seed, FEWEST, MOST)
    with Client(local.open_tokenizer(work.tokenizer), settings=settings) as client:
        bitmask = allocate_bitmask(1, client.compiler.vocab_size)
        pipe.send("ready")
        while number := pipe.recv():
            seconds: dict[str, list[float]] = {tier: [] for tier in TIERS}
            for _ in range(number):
                text = json.dumps([tools[index] for index in requests.request()])
                before = [getattr(client.stats, tier) for tier in TIERS]
                start = time.perf_counter()
                client.compile_tools(text).matcher().fill_bitmask(bitmask)
                took = time.perf_counter() - start
                used = [tier for tier, was in zip(TIERS, before, strict=True) if getattr(client.stats, tier) > was]
                seconds[used[-1]].append(took)
            client.flush()
            pipe.send((seconds, client.stats.as_dict()))
    pipe.send("done")


@dataclass
class Phase:
    """What happened between a start of all processes and their stop."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {tier: [] for tier in TIERS})
    wall_s: float = 0.0
    clients: list[dict[str, Any]] = field(default_factory=list)
    compiles: int = 0
    fallbacks: int = 0
    unclaimed: int = 0
    takeovers: int = 0
    degraded: int = 0
    lowered: int = 0
    bytes: int = 0
    distinct_units: int = 0
    points: list[dict[str, int]] = field(default_factory=list)
    bytes_mid: int | None = None

    @property
    def requests(self) -> int:
        return sum(map(len, self.seconds.values()))


class Run:
    """The nodes and clients of one run."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.cluster = LocalCluster(folder, more=local.PATIENT)
        self.tokenizer = local.tokenizer_path(options.tokenizer)
        self.log = Console(stderr=True, quiet=options.json)

    def phase(self, requests: int, first: Phase | None = None) -> Phase:
        """Start everything, have so many requests made, stop everything."""
        options = self.options
        nodes = self.cluster.up(options.nodes, local.free_ports(options.nodes))
        context = multiprocessing.get_context("spawn")
        pipes, processes = [], []
        phase = Phase()
        try:
            tokenizer = local.open_tokenizer(self.tokenizer)
            local.register(self.cluster.client_config, [node["address"] for node in nodes], tokenizer)
            for number in range(options.clients):
                node = nodes[number % len(nodes)]
                work = Work(self.cluster.client_config, node, self.tokenizer, options.tools, options.seed + number)
                ours, theirs = context.Pipe()
                process = context.Process(target=client_process, args=(work, theirs))
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            for pipe in pipes:
                pipe.recv()
            self._requests(requests, pipes, nodes, phase)
            for pipe in pipes:
                pipe.send(0)
            for pipe in pipes:
                pipe.recv()
            self._figures(phase, nodes)
            phase.distinct_units = len(set().union(*local.stored_digests((n["store"] for n in nodes), Kind.UNIT)))
        finally:
            for process in processes:
                process.join(30)
                if process.is_alive():
                    process.kill()
            self.cluster.down()
        if first is not None:
            phase.compiles += first.compiles
        return phase

    def _requests(self, requests: int, pipes: list[Connection], nodes: list[dict[str, Any]], phase: Phase) -> None:
        options = self.options
        seen: list[set[int]] = [set() for _ in nodes]
        plans = [local.Zipf(options.tools, options.seed + n, FEWEST, MOST) for n in range(len(pipes))]
        done = 0
        for block in range(1, BLOCKS + 1):
            shares = []
            for number in range(len(pipes)):
                share = (_until(requests, block) + number) // len(pipes)
                share -= (_until(requests, block - 1) + number) // len(pipes)
                shares.append(share)
                for _ in range(share):
                    seen[number % len(nodes)].update(plans[number].request())
            if not any(shares):
                continue
            start = time.perf_counter()
            for pipe, share in zip(pipes, shares, strict=True):
                if share:
                    pipe.send(share)
            answers = [pipe.recv() for pipe, share in zip(pipes, shares, strict=True) if share]
            phase.wall_s += time.perf_counter() - start
            for seconds, _ in answers:
                for tier, more in seconds.items():
                    phase.seconds[tier] += more
            phase.clients = [stats for _, stats in answers]
            done += sum(shares)
            self._figures(phase, nodes)
            tools = len(set().union(*seen))
            point = {"requests": done, "tools": tools, "compiles": phase.compiles, "store_bytes": phase.bytes}
            phase.points.append(point)
            if phase.bytes_mid is None and all(len(of_node) == options.tools for of_node in seen):
                phase.bytes_mid = phase.bytes
            self.log.print(f"{done:,} requests, {tools} tools, {phase.compiles:,} compiles, {phase.bytes:,} bytes")

    def _figures(self, phase: Phase, nodes: list[dict[str, Any]]) -> None:
        figures = local.ask_stats(self.cluster.client_config, [node["address"] for node in nodes])
        phase.compiles = local.placement(figures, "units_compiled")
        phase.unclaimed = local.placement(figures, "units_unclaimed")
        phase.takeovers = local.placement(figures, "takeovers")
        phase.degraded = local.placement(figures, "puts_degraded")
        phase.lowered = local.placement(figures, "sources_lowered")
        phase.fallbacks = local.placement(figures, "fallbacks")
        phase.fallbacks += sum(sum(client["fallbacks"].values()) for client in phase.clients)
        phase.bytes = local.store_bytes(figures)


def _until(requests: int, block: int) -> int:
    """The requests of so many blocks: blocks grow, since everything new comes early."""
    return requests * block * block // (BLOCKS * BLOCKS)


def result(options: argparse.Namespace, first: Phase, again: Phase) -> dict[str, Any]:
    """What is printed."""
    mid = first.bytes_mid
    problems = []
    if first.compiles != first.distinct_units:
        problems.append(f"{first.compiles} compiles of {first.distinct_units} distinct units")
    if again.compiles != again.distinct_units or again.compiles != first.compiles:
        problems.append(f"{again.compiles} compiles of {again.distinct_units} distinct units after the restart")
    if first.fallbacks + again.fallbacks:
        problems.append(f"{first.fallbacks + again.fallbacks} fallbacks")
    if mid is None:
        problems.append("some node has not seen every tool: make more requests")
    elif mid != first.bytes or first.bytes != again.bytes:
        problems.append(f"the stores grew from {mid} to {first.bytes}, and to {again.bytes} after the restart")
    return {
        "nodes": options.nodes,
        "clients": options.clients,
        "tools": options.tools,
        "requests": first.requests,
        "distinct_units": first.distinct_units,
        "compiles": first.compiles,
        "store_bytes_mid": mid,
        "store_bytes_end": first.bytes,
        "fallbacks": first.fallbacks + again.fallbacks,
        "requests_per_s": round(first.requests / first.wall_s, 1),
        "latency": {tier: local.percentiles(seconds) for tier, seconds in first.seconds.items()},
        "takeovers": first.takeovers + again.takeovers,
        "puts_degraded": first.degraded + again.degraded,
        "units_unclaimed": first.unclaimed + again.unclaimed,
        "sources_lowered": first.lowered,
        "restart": {
            "requests": again.requests,
            "compiles": again.compiles - first.compiles,
            "distinct_units": again.distinct_units,
            "store_bytes": again.bytes,
            "requests_per_s": round(again.requests / again.wall_s, 1),
            "latency": {tier: local.percentiles(seconds) for tier, seconds in again.seconds.items()},
        },
        "series": first.points,
        "problems": problems,
    }


def show(out: dict[str, Any]) -> None:
    """Tables for people, and for docs/benchmarks.md."""
    table = Table("requests", "tools seen", "units compiled", "MiB in all stores")
    for point in out["series"]:
        cells = (point["requests"], point["tools"], point["compiles"])
        table.add_row(*(f"{cell:,}" for cell in cells), f"{point['store_bytes'] / 2**20:.2f}")
    again = out["restart"]
    table.add_row(
        f"restart, {again['requests']:,}", "", f"{again['compiles']} more", f"{again['store_bytes'] / 2**20:.2f}"
    )
    Console().print(table)
    tiers = Table("dearest tier needed", "requests", "p50 ms", "p99 ms", "after restart", "p50 ms", "p99 ms")
    for tier in TIERS:
        cells = [out["latency"][tier], again["latency"][tier]]
        tiers.add_row(tier, *(str(cell.get(name, "")) for cell in cells for name in ("requests", "p50_ms", "p99_ms")))
    Console().print(tiers)
    Console().print(
        f"{out['compiles']:,} compiles of {out['distinct_units']:,} distinct units; {out['fallbacks']} fallbacks; "
        f"{out['requests_per_s']:,} requests/s; {out['takeovers']} takeovers; {out['puts_degraded']} degraded puts"
    )
    for problem in out["problems"]:
        Console().print(f"[red]{problem}[/]")


def plot(out: dict[str, Any], path: Path) -> bool:
    """Draw the series, if matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "gramary"
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    points = out["series"]
    requests = [0, *(point["requests"] for point in points)]
    for name, label in (("tools", "tools seen"), ("compiles", "units compiled"), ("store_bytes", "bytes stored")):
        values = [0, *(point[name] for point in points)]
        axes.plot(requests, [100 * one / max(values) for one in values], label=f"{label} (of {max(values):,})")
    axes.set_xlabel("requests")
    axes.set_ylabel("percent of the end")
    axes.set_ylim(0, 105)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    return True


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--tools", type=int, default=500)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--restart-requests", type=int, help="made after the restart; default: a fifth")
    parser.add_argument("--tokenizer", help="default: the one that make test uses, or bytes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where stores go (default: a temporary directory)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the growth (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gramary-", dir=options.directory) as folder:
        run = Run(options, Path(folder))
        first = run.phase(options.requests)
        again = run.phase(options.restart_requests or max(options.clients, options.requests // 5), first)
    out = result(options, first, again)
    if not options.json:
        show(out)
    if options.plot is not None and not plot(out, options.plot):
        Console(stderr=True).print("no plot: matplotlib is not there")
    print(json.dumps(out))
    return 1 if out["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
