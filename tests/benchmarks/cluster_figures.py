"""What the cluster's pieces cost on this machine, in one run: look-ups, streams, compiles, the store against others.

    python tests/benchmarks/cluster_figures.py [--tools T] [--tokenizer FILE] [--peers PYTHON] [--json]

lookup: one manifest over gRPC from a node's process. compile: tools in one call, cold and then warm, with their mask
entries, as seen by a client without a store. shards: mask entries of all units, streamed over TCP. get: one value of
64 KB from the mapped store, its first and last byte read. deserialize: xgrammar's compiled grammar of a tool from its
JSON (in a process of its own, with the Python of `--peers`; left out without one). compile here: the
same tools by a compiler without a cluster. The last line of `--json` is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402

from gramary.cluster.agent.local_cluster import LocalCluster  # noqa: E402
from gramary.cluster.credentials import Credentials  # noqa: E402
from gramary.cluster.kernel import Manifest, Source  # noqa: E402
from gramary.cluster.peer import SourceItem  # noqa: E402
from gramary.cluster.settings import Settings  # noqa: E402
from gramary.cluster.store import LiveStore, open_reader  # noqa: E402
from gramary.cluster.wire.client import GrpcPeer  # noqa: E402
from gramary.cluster.wire.configured import client_security  # noqa: E402
from gramary.compiler import Compiler, Tokenizer  # noqa: E402
from tests.benchmarks import nodes as local  # noqa: E402
from tests.benchmarks.store import kept, records_of, timed  # noqa: E402

XGRAMMAR = """
import json, pickle, sys, time
import xgrammar
tokens, stop, schemas = pickle.load(open(sys.argv[1], "rb"))
info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=stop)
compiler = xgrammar.GrammarCompiler(info, max_threads=1)
out = {"compile": [], "deserialize": [], "bytes": []}
for schema in schemas:
    try:
        start = time.perf_counter()
        compiled = compiler.compile_json_schema(schema)
        out["compile"].append(time.perf_counter() - start)
    except RuntimeError:
        continue
    text = compiled.serialize_json()
    out["bytes"].append(len(text))
    start = time.perf_counter()
    xgrammar.CompiledGrammar.deserialize_json(text, info)
    out["deserialize"].append(time.perf_counter() - start)
print(json.dumps(out))
"""


async def over_the_wire(settings: Settings, address: str, tokenizer: Tokenizer, schemas: list[str]) -> dict[str, Any]:
    """What a node answers."""
    fingerprint = tokenizer.vocabulary.fingerprint
    sources = [Source("json_schema", schema) for schema in schemas]
    items = [SourceItem(source.key, source.kind, source.options, source.text) for source in sources]
    security = client_security(settings, Credentials(settings))
    out: dict[str, Any] = {}
    async with GrpcPeer(address, security=security, timeout_s=30.0) as peer:
        await peer.compile_sources([items[0]], tokenizers=[fingerprint], deadline_s=120.0)  # what all tools share
        for name in ("compile_cold", "compile_warm"):
            start = time.perf_counter()
            outcomes = await peer.compile_sources(items[1:], tokenizers=[fingerprint], deadline_s=120.0)
            seconds = time.perf_counter() - start
            out[name] = {"tools": len(outcomes), "ms": round(seconds * 1e3, 1)}
        manifests = [outcome.manifest for outcome in outcomes if outcome.manifest is not None]
        units = list(dict.fromkeys(unit for manifest in manifests for unit in Manifest.parse(manifest).units))
        times = []
        for number in range(2000):
            start = time.perf_counter()
            await peer.lookup([sources[number % len(sources)].key])
            times.append(time.perf_counter() - start)
        out["lookup"] = local.percentiles(times)
        size, start = 0, time.perf_counter()
        while time.perf_counter() - start < 2.0:
            size += sum([len(record.payload) async for record in peer.shards(fingerprint, units)])
        out["shards"] = {"mb_per_s": round(size / (time.perf_counter() - start) / 1e6, 1), "units": len(units)}
    return out


def store_get(folder: Path) -> dict[str, Any]:
    """One value of 64 KB."""
    records = records_of(65_000)[:300]
    with LiveStore(folder, 1 << 30) as store:
        store.put(records)
        with open_reader(folder) as reader:
            keys = [record.key for record in records] * 4

            def view(key: Any) -> object:
                blob = reader.get(key)
                if blob is None:
                    raise RuntimeError("a value is missing")
                seen = blob.view
                seen[0], seen[-1]
                return seen

            for key in keys:
                view(key)
            return dict(timed(kept(view), keys, 2.0))


def compile_here(tokenizer: Tokenizer, schemas: list[str]) -> dict[str, Any]:
    """Each tool by itself, in a compiler that knows what all tools share."""
    compiler = Compiler(tokenizer)
    compiler.prewarm()
    times = []
    for schema in schemas:
        start = time.perf_counter()
        compiler.compile_json_schema(schema)
        times.append(time.perf_counter() - start)
    return dict(local.percentiles(times))


def xgrammar(python: str | None, tokenizer: Tokenizer, schemas: list[str], folder: Path) -> dict[str, Any]:
    """The peer's figures, or why there are none."""
    if python is None or not Path(python).exists():
        return {"skipped": f"no Python with xgrammar: {python or 'name one with --peers'}"}
    vocabulary = tokenizer.vocabulary
    tokens = [vocabulary.token_bytes(token) for token in range(len(vocabulary))]
    (folder / "input").write_bytes(pickle.dumps((tokens, list(tokenizer.stop_token_ids), schemas)))
    done = subprocess.run(
        [python, "-c", XGRAMMAR, str(folder / "input")], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        return {"skipped": (done.stderr.strip().splitlines() or ["it failed"])[-1]}
    told = json.loads(done.stdout)
    sizes = sorted(told["bytes"])
    return {
        "compile": local.percentiles(told["compile"]),
        "deserialize": local.percentiles(told["deserialize"]),
        "bytes_p50": sizes[len(sizes) // 2] if sizes else 0,
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=100)
    parser.add_argument("--tokenizer", help="default: the one that make test uses, or bytes")
    parser.add_argument("--peers", metavar="PYTHON", help="one that has xgrammar installed")
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    options = parser.parse_args()
    tokenizer = local.open_tokenizer(local.tokenizer_path(options.tokenizer))
    schemas = [json.dumps(tool["parameters"]) for tool in local.read_tools(options.tools + 1)]
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="gramary-") as name:
        folder = Path(name)
        cluster = LocalCluster(folder / "nodes", more=local.PATIENT)
        [node] = cluster.up(1, local.free_ports(1))
        try:
            local.register(cluster.client_config, [node["address"]], tokenizer)
            settings = local.client_settings(cluster.client_config, node, wait_s=30.0)
            out |= asyncio.run(over_the_wire(settings, node["address"], tokenizer, schemas))
        finally:
            cluster.down()
        out["get_64_kb"] = store_get(folder / "store")
        out["compile_here"] = compile_here(tokenizer, schemas)
        out["xgrammar"] = xgrammar(options.peers, tokenizer, schemas, folder)
    if not options.json:
        for name, figure in out.items():
            Console().print(f"{name:14} {figure}")
    print(json.dumps(out))


if __name__ == "__main__":
    main()
