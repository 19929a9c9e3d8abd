"""Compiling cold tools on 1 and 2 workers: how much faster is the second?

    python tests/benchmarks/parallel.py --tools 2000 --json
    python tests/benchmarks/parallel.py --tools 2000 --executors pool,ray --entries --json

The tools are variants of the bundled catalogue: every property and description of a copy has a suffix, so that its
units are its own. Each run has fresh workers, which are started before the clock. Efficiency is the time of one worker
over twice that of two. `--entries` builds the mask entries of every unit too, for the tokenizer at `--tokenizer` or
for the 256 bytes. The last line of the output is one JSON object. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

from gramary.cluster.executor import Executor, Lowered, ProcessPool, RayExecutor  # noqa: E402
from gramary.cluster.executor.actors import connect  # noqa: E402
from gramary.cluster.kernel import Source, Vocabulary  # noqa: E402
from gramary.cluster.peer import SourceItem  # noqa: E402
from gramary.compiler import Tokenizer  # noqa: E402


def variant(schema: Any, suffix: str) -> Any:
    """A schema whose property names all end in `suffix`."""
    if isinstance(schema, list):
        return [variant(one, suffix) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: variant(value, suffix) for key, value in schema.items() if key not in ("properties", "required")}
    if isinstance(schema.get("properties"), dict):
        out["properties"] = {name + suffix: variant(value, suffix) for name, value in schema["properties"].items()}
    if isinstance(schema.get("required"), list):
        out["required"] = [name + suffix for name in schema["required"]]
    return out


def sources(count: int, run: int) -> list[SourceItem]:
    with gzip.open(ROOT / "tests" / "data" / "tools.jsonl.gz", "rt", encoding="utf-8") as file:
        tools = [json.loads(line) for line in file]
    out = []
    for i in range(count):
        schema = variant(tools[i % len(tools)]["parameters"], f"_{run}_{i // len(tools)}")
        source = Source("json_schema", json.dumps(schema))
        out.append(SourceItem(source.key, source.kind, source.options, source.text))
    return out


async def measure(executor: Executor, items: list[SourceItem], vocabulary: Vocabulary | None) -> dict[str, float]:
    warm = sources(executor.workers * 64, 999)
    await executor.lower(warm)
    if vocabulary is not None:
        await executor.register_tokenizer(vocabulary.fingerprint, vocabulary.to_bytes())
        await build(executor, await executor.lower(warm), vocabulary)
    before = executor.stats().work_ns
    own = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    results = await executor.lower(items, deadline_s=3600)
    lowered = time.perf_counter() - began
    entries = 0
    if vocabulary is not None:
        entries = await build(executor, results, vocabulary)
    wall = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    failed = sum(not isinstance(result, Lowered) for result in results)
    units = {digest for result in results if isinstance(result, Lowered) for digest, _ in result.units}
    return {
        "wall_s": round(wall, 3),
        "lower_s": round(lowered, 3),
        "work_s": round((executor.stats().work_ns - before) / 1e9, 3),
        "dispatcher_cpu_s": round(used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime, 3),
        "batches": executor.stats().batches,
        "failed": failed,
        "units": len(units),
        "entries": entries,
    }


async def build(executor: Executor, results: list[Any], vocabulary: Vocabulary) -> int:
    known: set[bytes] = set()
    jobs = []
    for result in results:
        if isinstance(result, Lowered):
            wanted = [digest for digest, _ in result.units if digest not in known]
            known.update(wanted)
            jobs.append(executor.build(vocabulary.fingerprint, dict(result.units), wanted, deadline_s=3600))
    return sum(len(records) for records in await asyncio.gather(*jobs))


async def run(kind: str, workers: int, items: list[SourceItem], vocabulary: Vocabulary | None) -> dict[str, float]:
    executor: Executor = RayExecutor(workers) if kind == "ray" else ProcessPool(workers)
    try:
        return await measure(executor, items, vocabulary)
    finally:
        await executor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=int, default=2000)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--executors", default="pool,ray")
    parser.add_argument("--entries", action="store_true")
    parser.add_argument("--tokenizer", type=Path, help="build entries for this one (any file that Tokenizer reads)")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(arguments.tokenizer) if arguments.tokenizer else Tokenizer.from_bytes()
    vocabulary = tokenizer.vocabulary if arguments.entries else None
    counts = [int(text) for text in arguments.workers.split(",")]
    report: dict[str, Any] = {"tools": arguments.tools, "cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
    for kind in arguments.executors.split(","):
        if kind == "ray":
            paths = dict.fromkeys([str(ROOT), *(path for path in sys.path if path)])
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)
            connect(num_cpus=max(counts), object_store_memory=200 << 20, configure_logging=False)
        runs = {}
        for run_number, workers in enumerate(counts):
            items = sources(arguments.tools, run_number)
            runs[workers] = asyncio.run(run(kind, workers, items, vocabulary))
            if not arguments.json:
                print(kind, workers, runs[workers], flush=True)
        first = min(counts)
        report[kind] = {"runs": runs}
        for workers in counts:
            if workers != first:
                ratio = runs[first]["wall_s"] / runs[workers]["wall_s"]
                report[kind][f"speedup_{workers}"] = round(ratio, 3)
                report[kind][f"efficiency_{workers}"] = round(ratio * first / workers, 3)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
