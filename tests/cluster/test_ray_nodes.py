"""Agents as actors of a Ray cluster: one a node, back after a kill with what it had stored."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.agent.ray_nodes import deploy, withdraw
from gramary.cluster.kernel import Source
from gramary.cluster.peer import SourceItem
from gramary.cluster.settings import Settings
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.security import ClientSecurity

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'gramary[ray]'")

TOKEN = "a-token-that-is-long-enough"
HOSTS = ("127.0.0.31", "127.0.0.32")


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOSTS[0], 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two Ray nodes on loopback addresses."""
    if ray.is_initialized():
        pytest.skip("another test's Ray cluster is up in this process")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from ray.cluster_utils import Cluster

    head = {"node_ip_address": HOSTS[0], "include_dashboard": False, "num_cpus": 1, "object_store_memory": 96 << 20}
    both = Cluster(initialize_head=True, head_node_args=head)
    try:
        both.add_node(node_ip_address=HOSTS[1], wait=False, num_cpus=1, object_store_memory=96 << 20)
        both.wait_for_nodes()
        ray.init(address=both.address, namespace="gramary", log_to_driver=False)
        yield both
    finally:
        ray.shutdown()
        both.shutdown()


def item(text: str) -> SourceItem:
    source = Source("json_schema", text)
    return SourceItem(source.key, source.kind, source.options, source.text)


@pytest.mark.timeout(240)
def test_an_agent_on_every_node_that_comes_back(cluster: Any, tmp_path: Path) -> None:
    port = free_port()
    settings = Settings(
        # Both nodes are this machine: each needs a store of its own, which a real node has by itself.
        store={"path": str(tmp_path / "store-{host}")},
        executor={"kind": "inline", "workers": 1},
        auth={"tokens": [TOKEN]},
        trust={"mac_keys": ["ab" * 32]},
        metrics={"listen": ""},
        peers={"refresh_s": 0.5},
    )
    addresses = deploy(settings, port=port)
    assert sorted(addresses) == [f"{host}:{port}" for host in HOSTS]
    assert deploy(settings, port=port) == addresses  # those that are there are left alone
    sources = [item(f'{{"type": "string", "maxLength": {n}}}') for n in range(1, 9)]

    async def work() -> None:
        security = ClientSecurity(token=lambda: TOKEN)
        first, second = (GrpcPeer(address, security=security) for address in sorted(addresses))
        outcomes = await first.compile_sources(sources, tokenizers=[], deadline_s=60.0)
        assert all(outcome.manifest for outcome in outcomes)
        compiled = [dict((await peer.stats()).values)["placement_units_compiled"] for peer in (first, second)]
        assert sum(compiled) > 0
        assert all(compiled), "work is spread over the nodes"
        pid = await asyncio.to_thread(process_of, sorted(addresses)[0])
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                again = await first.compile_sources(sources, tokenizers=[], deadline_s=10.0)
                if all(outcome.manifest for outcome in again):
                    break
            except Exception:
                await asyncio.sleep(0.3)
        assert [o.manifest for o in again] == [o.manifest for o in outcomes]
        values = dict((await first.stats()).values)
        assert values["placement_units_compiled"] == 0, "what it had stored was found again"
        await first.close()
        await second.close()

    asyncio.run(work())
    assert withdraw(settings) == len(HOSTS)


def process_of(address: str) -> int:
    """The process of the agent that listens there."""
    [node] = [node for node in ray.nodes() if address.startswith(node["NodeManagerAddress"] + ":")]
    actor = ray.get_actor(f"gramary-agent-{node['NodeID'][:16]}", namespace="gramary")
    return int(ray.get(actor.process.remote(), timeout=30))
