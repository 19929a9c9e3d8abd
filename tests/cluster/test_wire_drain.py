"""Goodbyes: a server that is told to stop lets work finish, cuts what lasts, and says so to whoever asks."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, Draining
from tests.cluster.memory_node import MemoryNode, compile_forever
from tests.cluster.wire_tools import SOURCE, run, served


def test_drain_lets_work_finish_and_ends_what_lasts() -> None:
    async def check() -> None:
        node = MemoryNode()
        go = asyncio.Event()

        async def slowly(node: MemoryNode, job: Any) -> Any:
            await go.wait()
            async for event in quick(node, job):
                yield event

        quick, node.compiling = node.compiling, slowly
        async with served(node, grace_s=10) as server, GrpcPeer(server.address, attempts=1) as peer:
            asking = [asyncio.ensure_future(peer.compile([SOURCE], deadline_s=30)) for _ in range(20)]
            watch = peer.watch()
            await anext(watch)
            async with grpc.aio.insecure_channel(server.address) as channel:
                health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
                while len(node.jobs) < 20:
                    await asyncio.sleep(0.01)
                draining = asyncio.ensure_future(server.drain(10))
                assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
                with pytest.raises(CallFailed) as caught:
                    await anext(watch)
                assert caught.value.code == "UNAVAILABLE"
                assert isinstance(caught.value.error, Draining)
                with pytest.raises(CallFailed) as caught:
                    await peer.stats()
                assert caught.value.code == "UNAVAILABLE"
                go.set()
                answers = await asyncio.gather(*asking)
                assert all(outcome.manifest for [outcome] in answers)
                await asyncio.wait_for(draining, 5)  # nothing that lasts holds it up for the whole grace

    run(check)


@pytest.mark.parametrize("streamed", [False, True])
def test_drain_cuts_what_does_not_finish(streamed: bool) -> None:
    async def check() -> None:
        node = MemoryNode()
        node.compiling = compile_forever
        async with served(node) as server, GrpcPeer(server.address) as peer:

            async def ask() -> None:
                if not streamed:
                    await peer.compile([SOURCE], deadline_s=30)
                async for _ in peer.compile_events([SOURCE], tokenizers=[], deadline_s=30):
                    pass

            asking = asyncio.ensure_future(ask())
            await node.started.wait()
            await server.drain(0.1)
            with pytest.raises(CallFailed) as caught:
                await asking
            assert caught.value.retryable
            assert node.cancelled.is_set()

    run(check)


SERVER = """
import asyncio, sys
from gramary.cluster.wire.server import WireServer
from tests.cluster.memory_node import MemoryNode

async def main():
    server = WireServer(MemoryNode(), "127.0.0.1:0")
    await server.start()
    print(server.address, flush=True)
    await server.serve_until_signal(5)

asyncio.run(main())
"""


def test_sigterm_drains() -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    address = process.stdout.readline().strip()

    async def check() -> None:
        async with GrpcPeer(address) as peer:
            watch = peer.watch()
            await anext(watch)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(CallFailed, match="shutting down"):
                await anext(watch)

    try:
        run(check)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
