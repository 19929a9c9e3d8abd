"""Agents as actors of a Ray cluster: one a node, back after a kill with what it had stored."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def item(text: str) -> SourceItem:
    source = Source("json_schema", text)
    return SourceItem(source.key, source.kind, source.options, source.text)


@pytest.mark.timeout(240)
def test_an_agent_on_every_node_that_comes_back(ray_cluster: Any, tmp_path: Path) -> None:
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
    hosts = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
    assert sorted(addresses) == sorted(f"{host}:{port}" for host in hosts)
    assert len(hosts) >= 2
    assert deploy(settings, port=port) == addresses  # those that are there are left alone
    sources = [item(f'{{"type": "string", "maxLength": {n}}}') for n in range(1, 9)]

    async def work() -> None:
        security = ClientSecurity(token=lambda: TOKEN)
        first, second = (GrpcPeer(address, security=security) for address in sorted(addresses)[:2])
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
    assert withdraw(settings) == len(hosts)


def process_of(address: str) -> int:
    """The process of the agent that listens there."""
    [node] = [node for node in ray.nodes() if address.startswith(node["NodeManagerAddress"] + ":")]
    actor = ray.get_actor(f"gramary-agent-{node['NodeID'][:16]}", namespace="gramary")
    return int(ray.get(actor.process.remote(), timeout=30))
