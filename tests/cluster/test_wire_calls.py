"""What becomes of a call that does not go through: cancelled, out of time, repeated, or failed inside the node."""

import asyncio
import os
from typing import Any

import grpc
import pytest

from gramary.cluster.peer import SourceItem
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.node import Finished
from gramary.cluster.wire.pb import cache_pb2, cache_pb2_grpc, compile_pb2, compile_pb2_grpc
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.memory_node import TOKENIZER, MemoryNode, compile_forever, digest, entry, unit
from tests.cluster.wire_tools import SOURCE, both, collect, run, served


def test_a_client_that_goes_cancels_its_work() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        node.compiling = compile_forever
        asking = asyncio.ensure_future(peer.compile([SOURCE], deadline_s=30))
        await node.started.wait()
        asking.cancel()
        await asyncio.wait_for(node.cancelled.wait(), 5)

        node.started.clear()
        node.cancelled.clear()
        events = peer.compile_events([SOURCE], tokenizers=[], deadline_s=30)
        await anext(events)
        await events.aclose()
        await asyncio.wait_for(node.cancelled.wait(), 5)

    both(check)


def test_a_connection_that_breaks_cancels_its_work() -> None:
    async def check() -> None:
        node = MemoryNode()
        node.compiling = compile_forever
        async with served(node) as server, FaultProxy(server.address) as proxy, GrpcPeer(proxy.address) as peer:
            asking = asyncio.ensure_future(peer.compile([SOURCE], deadline_s=30))
            await node.started.wait()
            proxy.cut()
            await asyncio.wait_for(node.cancelled.wait(), 5)
            with pytest.raises(CallFailed) as caught:
                await asking
            assert caught.value.code == "UNAVAILABLE"
            assert len(node.jobs) == 1  # Compile is not repeated

    run(check)


def test_a_client_that_goes_in_the_middle_of_a_stream_frees_its_place() -> None:
    async def check() -> None:
        node = MemoryNode()
        node.add(*(entry("a", slot, os.urandom(200_000)) for slot in range(200)))
        async with served(node) as server, GrpcPeer(server.address) as peer:
            assert server.guard is not None
            stream = peer.shards(TOKENIZER, [digest("a")])
            await anext(stream)
            assert server.guard.gates["stream"].active == 1
            await stream.aclose()
            while server.guard.running or server.guard.gates["stream"].active:
                await asyncio.sleep(0.01)

    run(check)


def test_deadlines_reach_the_node_and_stop_it() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        node.compiling = compile_forever
        with pytest.raises(CallFailed) as caught:
            await peer.compile([SOURCE], deadline_s=0.3)
        assert caught.value.code == "DEADLINE_EXCEEDED"
        assert 0 < node.jobs[0].deadline_s <= 0.3
        await asyncio.wait_for(node.cancelled.wait(), 5)

    both(check)


def test_calls_without_a_deadline_get_one() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        node.compiling = compile_forever
        stub = peer._connection.stub(compile_pb2_grpc.CompileServiceStub)
        source = compile_pb2.Source(kind="regex", text=b"a")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Compile(compile_pb2.CompileRequest(sources=[source]))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert node.jobs[0].deadline_s == 0.2
        assert node.cancelled.is_set()
        events = stub.CompileStream(
            compile_pb2.CompileStreamRequest(request=compile_pb2.CompileRequest(sources=[source]))
        )
        with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            await collect(events)

    both(check, limits=WireLimits(longest_call_s=0.2))


class Flaky(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Says UNAVAILABLE twice to everything, and then gives an empty answer."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]

        async def answer(request: Any, context: Any) -> bytes:
            self.seen[name] = self.seen.get(name, 0) + 1
            if self.seen[name] <= 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            return b""

        if name == "PutShards":
            return grpc.stream_unary_rpc_method_handler(answer)
        return grpc.unary_unary_rpc_method_handler(answer)


def test_only_idempotent_calls_are_repeated() -> None:
    async def check() -> None:
        server, flaky = grpc.aio.server(), Flaky()
        server.add_generic_rpc_handlers((flaky,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with GrpcPeer(f"127.0.0.1:{port}", compress=False) as peer:
            assert await peer.find_missing([unit("a").key]) == []
            await peer.release([digest("a")], holder="me")
            await peer.complete([digest("a")], holder="me")
            await peer.stats()
            for call in (peer.compile([SOURCE], deadline_s=5), peer.put([unit("a")])):
                with pytest.raises(CallFailed, match="UNAVAILABLE"):
                    await call
        assert flaky.seen == {"FindMissing": 3, "Release": 3, "Complete": 3, "Stats": 3, "Compile": 1, "PutShards": 1}
        async with GrpcPeer(f"127.0.0.1:{port}", attempts=1) as peer:
            flaky.seen.clear()
            with pytest.raises(CallFailed, match="UNAVAILABLE"):
                await peer.stats()
        assert flaky.seen == {"Stats": 1}
        await server.stop(0)

    run(check)


def test_a_fault_of_the_node_tells_strangers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        def fail(keys: Any) -> Any:
            raise RuntimeError("a secret")

        node.find_missing = fail  # type: ignore[method-assign]
        with pytest.raises(CallFailed, match="INTERNAL") as caught:
            await peer.find_missing([unit("a").key])
        assert "secret" not in str(caught.value)
        assert "a secret" in caplog.text
        mark = str(caught.value).rpartition(" ")[2]
        assert mark in caplog.text

    both(check)


def test_results_may_come_in_any_order() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        async def backwards(node: MemoryNode, job: Any) -> Any:
            events = [event async for event in quick(node, job) if isinstance(event, Finished)]
            for event in reversed(events[1:]):
                yield event

        quick, node.compiling = node.compiling, backwards
        items = [SourceItem(digest(name), "regex", "", name.encode()) for name in "abc"]
        outcomes = await peer.compile(items, deadline_s=5)
        assert [bool(outcome.manifest) for outcome in outcomes] == [False, True, True]
        assert outcomes[0].retryable  # the node forgot it: that says nothing about the source
        events = [event async for event in peer.compile_events(items, tokenizers=[], deadline_s=5)]
        assert sorted(event.index for event in events if isinstance(event, Finished)) == [0, 1, 2]

    both(check)


def test_every_call_is_counted() -> None:
    async def check() -> None:
        seen: list[tuple[str, str]] = []
        node = MemoryNode()
        async with (
            served(node, observe=lambda method, code, seconds: seen.append((method, code))) as server,
            GrpcPeer(server.address) as peer,
        ):
            await peer.stats()
            stub = peer._connection.stub(cache_pb2_grpc.CacheServiceStub)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.FindMissing(cache_pb2.FindMissingRequest(keys=[b"x"]))
            node.compiling = compile_forever
            asking = asyncio.ensure_future(peer.compile([SOURCE], deadline_s=30))
            await node.started.wait()
            asking.cancel()
            while len(seen) < 3:
                await asyncio.sleep(0.01)
        assert seen == [
            ("NodeService/Stats", "OK"),
            ("CacheService/FindMissing", "INVALID_ARGUMENT"),
            ("CompileService/Compile", "CANCELLED"),
        ]

    run(check)
