"""What tools cost that nobody has seen: through the node's agent, and compiled in the worker's own process.

    python -m tests.benchmarks.cold [--nodes N] [--executors E] [--tools T] [--sets S] [--pause SECONDS] [--json]
    python -m tests.benchmarks.cold --workers 16 --nodes 3      # workers that ask at once for sets that overlap by half

`cold`: a request of T tools (one structural tag) through `ServingBackend`, whose worker has an agent and maps its
store; nobody has seen one of them. `again`: the same by another worker, from the mapped store. `here`: a worker without
a cluster. With several workers, each beside one of the nodes, `cold` is the time of every request, and what the cluster
compiled is compared with what it stores. Milliseconds; the last line of `--json` is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from gramary.cluster.agent.local_cluster import LocalCluster
from gramary.cluster.client import Client, WorkerSource
from gramary.cluster.measure import percentile
from gramary.cluster.records import Kind as Values
from gramary.cluster.settings import Settings
from gramary.cluster.store import open_reader
from gramary.compiler import Compiler, Tokenizer
from gramary.runtime.serving import Kind, LocalSource, RequestGrammar, ServingBackend
from gramary.runtime.serving.source import GrammarSource
from tests.benchmarks import nodes as local


def tag_of(tools: Sequence[dict[str, Any]]) -> str:
    """Free text with calls of these tools."""
    tags = [
        {
            "begin": f"<function={tool['name']}>",
            "content": {"type": "json_schema", "json_schema": tool["parameters"]},
            "end": "</function>",
        }
        for tool in tools
    ]
    form = {"type": "triggered_tags", "triggers": ["<function="], "tags": tags}
    return json.dumps({"type": "structural_tag", "format": form})


@contextmanager
def worker(source: GrammarSource) -> Iterator[ServingBackend]:
    """A worker as an engine starts it."""
    backend = ServingBackend(source)
    try:
        backend.warm().result()
        time.sleep(0.5)  # the agent's executor learns the tokenizer
        gc.collect()
        gc.freeze()  # as engines do once they have started
        yield backend
    finally:
        backend.close()


def ask(backend: ServingBackend, tag: str) -> float:
    """Seconds until a request's grammar is there."""
    start = time.perf_counter()
    backend.begin(Kind.STRUCTURAL_TAG, tag, make=RequestGrammar)
    return time.perf_counter() - start


def ask_all(source: GrammarSource, tags: Sequence[str], pause: float) -> list[float]:
    """One after the other, by a worker of its own."""
    times = []
    with worker(source) as backend:
        for tag in tags:
            time.sleep(pause)
            times.append(ask(backend, tag))
    return times


def one_worker(settings: Settings, tokenizer: Tokenizer, tags: Sequence[str], pause: float) -> dict[str, list[float]]:
    """The three ways, one after the other."""

    def cluster() -> WorkerSource:
        return WorkerSource(Client(Compiler(tokenizer), settings=settings))

    source = cluster()
    times = {"cold": ask_all(source, tags, pause)}
    stats = source.client.stats
    if stats.fallbacks or stats.local:
        raise SystemExit(f"the cluster did not answer in time: {stats.fallbacks}")
    times["again"] = ask_all(cluster(), tags, pause)
    times["here"] = ask_all(LocalSource(Compiler(tokenizer)), tags, pause)
    return times


def _one_of_many(settings: Settings, tokenizer: str | None, tag: str, ready: Any, times: Any) -> None:
    """A worker in a process of its own: asks when all others are ready, and tells the time."""
    source = WorkerSource(Client(Compiler(local.open_tokenizer(tokenizer)), settings=settings))
    with worker(source) as backend:
        ready.wait()
        seconds = ask(backend, tag)
        times.put(None if source.client.stats.local else seconds)
        ready.wait()


def many_workers(settings: Sequence[Settings], tokenizer: str | None, tags: Sequence[str]) -> dict[str, list[float]]:
    """Workers that ask at once, each for one of `tags`, beside nodes in turn."""
    context = multiprocessing.get_context("spawn")
    ready, times = context.Barrier(len(tags)), context.Queue()
    workers = [
        context.Process(target=_one_of_many, args=(settings[i % len(settings)], tokenizer, tag, ready, times))
        for i, tag in enumerate(tags)
    ]
    for one in workers:
        one.start()
    told = [times.get(timeout=300) for _ in workers]
    for one in workers:
        one.join()
    if None in told:
        raise SystemExit("a worker compiled by itself")
    return {"cold": told}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, on a cluster of its own."""
    tokenizer = local.tokenizer_path(options.tokenizer)
    step, number = (options.tools, options.sets) if options.workers == 1 else (options.tools // 2, options.workers)
    tools = local.read_tools(step * number + options.tools)
    tags = [tag_of(tools[i * step : i * step + options.tools]) for i in range(number)]
    more = f'{local.PATIENT}\n[executor]\nkind = "process"\nworkers = {options.executors}\n'
    with tempfile.TemporaryDirectory(prefix="gramary-") as name:
        cluster = LocalCluster(Path(name) / "nodes", more=more)
        nodes = cluster.up(options.nodes, local.free_ports(options.nodes))
        try:
            settings = [local.client_settings(cluster.client_config, node, wait_s=60.0) for node in nodes]
            if options.workers > 1:
                times = many_workers(settings, tokenizer, tags)
            else:
                times = one_worker(settings[0], local.open_tokenizer(tokenizer), tags, options.pause)
            time.sleep(1.0)  # mask entries follow
            compiled = sum(
                int(dict(told.values)["placement_units_compiled"])
                for told in local.ask_stats(cluster.client_config, [node["address"] for node in nodes])
            )
        finally:
            cluster.down()
        stored: set[bytes] = set()
        for node in nodes:
            with open_reader(node["store"]) as reader:
                stored.update(key.digest for key in reader.keys(Values.UNIT))
    out: dict[str, Any] = {"units_compiled": compiled, "units_stored": len(stored)}
    for what, seconds in times.items():
        ordered = sorted(seconds)
        figures = {"p50": percentile(ordered, 0.5), "min": ordered[0], "p90": percentile(ordered, 0.9)}
        out[what] = {name: round(value * 1e3, 1) for name, value in figures.items()}
        out[what]["first"] = round(seconds[0] * 1e3, 1)
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--executors", type=int, default=1, help="worker processes of each node's executor")
    parser.add_argument("--tools", type=int, default=100, help="of one request")
    parser.add_argument("--sets", type=int, default=15)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between two requests")
    parser.add_argument("--workers", type=int, default=1, help="workers that ask at once")
    parser.add_argument("--tokenizer", help="default: the one that make test uses, or bytes")
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    options = parser.parse_args(arguments)
    out = run(options)
    if not options.json:
        for name, figure in out.items():
            Console().print(f"{name:16} {figure}")
    print(json.dumps(out))


if __name__ == "__main__":
    main()
