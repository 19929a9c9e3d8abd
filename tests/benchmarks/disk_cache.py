"""What caches of grammars on disk cost: whole grammars as JSON text, or units in a mapped store that workers share.

    python -m tests.benchmarks.disk_cache --tokenizer DIR     # in an environment with xgrammar, torch and transformers

The first is XGrammar's own form, which forks of SGLang keep. Requests offer sets of tools that overlap, as agents' do.
Both caches are filled first; then a new process answers every request from them. Bytes are what lies on disk;
milliseconds are from a request's tools to a compiled grammar and, of a new process, what it does at start.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

CATALOGUE = Path(__file__).parents[1] / "data" / "tools.jsonl.gz"


def requests_of(number: int, tools: int) -> list[list[dict[str, Any]]]:
    """Sets of `tools` tools each, drawn from three times as many."""
    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as file:
        catalogue = list({tool["name"]: tool for tool in map(json.loads, file)}.values())[: 3 * tools]
    chance = random.Random(1)
    return [chance.sample(catalogue, tools) for _ in range(number)]


def tag_of(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Free text with calls of these tools."""
    tags = [
        {
            "type": "tag",
            "begin": f"<function={tool['name']}>",
            "content": {"type": "json_schema", "json_schema": tool["parameters"]},
            "end": "</function>",
        }
        for tool in tools
    ]
    return {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": ["<function="], "tags": tags},
    }


def whole_grammars(folder: Path, tokenizer: str, tags: list[str], *, read: bool) -> tuple[float, list[float]]:
    """XGrammar: one file of JSON text for each distinct request. Seconds at start (none), and of each request."""
    import xgrammar
    from transformers import AutoTokenizer

    info = xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(tokenizer))
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)
    times = []
    for number, tag in enumerate(tags):
        path = folder / f"{number}.json"
        start = perf_counter()
        if read:
            xgrammar.CompiledGrammar.deserialize_json(path.read_text(), info)
        else:
            grammar = compiler.compile_structural_tag(tag)
        times.append(perf_counter() - start)
        if not read:
            path.write_text(grammar.serialize_json())
    return 0.0, times


def units(folder: Path, tokenizer: str, tags: list[str], *, read: bool) -> tuple[float, list[float]]:
    """Ours: a store of units and mask entries, written by a node's agent, mapped by workers. Seconds at start, when
    a worker takes over what the store has, and of each request.
    """
    from gramary.compiler import Compiler, Tokenizer
    from gramary.runtime.serving import CompileOptions, Kind, WorkerOptions
    from gramary.runtime.serving.factory import open_source
    from gramary.runtime.serving.metrics import WorkerCounts

    source = open_source(Compiler(Tokenizer.from_file(tokenizer)), WorkerOptions.load(), WorkerCounts())
    start = perf_counter()
    if read:
        source.warm()
    warmed = perf_counter() - start
    times = []
    tiers = set()
    for tag in tags:
        start = perf_counter()
        compiled = source.compile(Kind.STRUCTURAL_TAG, tag, CompileOptions(), deadline=start + 600.0)
        times.append(perf_counter() - start)
        tiers.add(compiled.tier)
        if not read:
            compiled.grammar.matcher().fill_bitmask(_row(source.compiler.vocab_size))
    if read and tiers - {"process", "lmdb"}:
        raise SystemExit(f"not everything came from the store: {sorted(tiers)}")
    source.close()
    return warmed, times


def _row(vocab_size: int) -> Any:
    from gramary.runtime import allocate_bitmask

    return allocate_bitmask(1, vocab_size)


def bytes_in(folder: Path) -> int:
    """Of the values of a store, or of a folder's files."""
    from gramary.cluster.records import Kind
    from gramary.cluster.store import open_reader

    if not (folder / "store").exists():
        return sum(path.stat().st_size for path in folder.iterdir())
    reader = open_reader(folder / "store")
    try:
        keys = [key for kind in (Kind.MANIFEST, Kind.UNIT, Kind.ENTRY) for key in reader.keys(kind)]
        return sum(len(value) for key in keys if (value := reader.get(key)) is not None)
    finally:
        reader.close()


def phase(arguments: argparse.Namespace, name: str, folder: Path, environ: dict[str, str]) -> tuple[float, list[float]]:
    """One phase, in a process of its own; milliseconds at start and of each request."""
    command = [*(sys.executable, "-m", "tests.benchmarks.disk_cache", "--phase", name, "--folder", str(folder))]
    command += [
        "--tokenizer",
        arguments.tokenizer,
        "--requests",
        str(arguments.requests),
        "--tools",
        str(arguments.tools),
    ]
    child = subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=True)
    warmed, times = json.loads(child.stdout.splitlines()[-1])
    return 1e3 * warmed, [1e3 * seconds for seconds in times]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--tools", type=int, default=50)
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.phase:
        tags = [json.dumps(tag_of(tools)) for tools in requests_of(arguments.requests, arguments.tools)]
        kind, _, step = arguments.phase.partition("-")
        run = {"whole": whole_grammars, "units": units}[kind]
        print(json.dumps(run(arguments.folder, arguments.tokenizer, tags, read=step == "read")))
        return 0
    from tests.vllm.checks.agents import agents

    rows = []
    with tempfile.TemporaryDirectory() as name, agents(Path(name) / "agents") as (agent,):
        whole = Path(name) / "whole"
        whole.mkdir()
        for title, kind, folder, environ in (
            ("whole grammars, JSON text (XGrammar)", "whole", whole, {}),
            ("units, mapped (Gramary)", "units", agent.folder, {**agent.worker_environ, "GRAMARY_CLIENT_WAIT_S": "60"}),
        ):
            _, written = phase(arguments, f"{kind}-write", folder, environ)
            warmed, read = phase(arguments, f"{kind}-read", folder, environ)
            rows.append(
                {
                    "cache": title,
                    "bytes": bytes_in(folder),
                    "start_ms": round(warmed, 1),
                    "first_ms_p50": round(statistics.median(written), 2),
                    "from_disk_ms_p50": round(statistics.median(read), 2),
                    "from_disk_ms_worst": round(max(read), 2),
                }
            )
    for row in rows:
        print(row, file=sys.stderr)
    print(json.dumps({"requests": arguments.requests, "tools": arguments.tools, "rows": rows}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
