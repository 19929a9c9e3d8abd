"""Clients that misbehave: each is refused with what is wrong named, and the server goes on for the others."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import InvalidRequest
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.pb import cache_pb2, cache_pb2_grpc, compile_pb2, compile_pb2_grpc
from tests.cluster.false_records import BOMB, GOOD, LONG, ZSTD, pieces
from tests.cluster.memory_node import TOKENIZER, MemoryNode, digest, unit
from tests.cluster.wire_tools import both, collect


def test_clients_that_lie_are_refused() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        stub = peer._connection.stub(cache_pb2_grpc.CacheServiceStub)
        good = pieces(unit("a"))
        for message in (
            pieces(GOOD, hash=b"x" * 32),
            pieces(GOOD, size_bytes=1 << 40),
            pieces(GOOD, key=b""),
            pieces(LONG)[:1],
            pieces(LONG)[1:],
            pieces(GOOD, compressor=ZSTD, data=BOMB),
        ):
            requests = [cache_pb2.PutShardsRequest(chunks=good), cache_pb2.PutShardsRequest(chunks=message)]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.PutShards(iter(requests))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert set(node.records) <= {unit("a").key.encode()}
        # The same again is no lie.
        answer = await stub.PutShards(iter([cache_pb2.PutShardsRequest(chunks=good + good)]))
        assert (answer.stored, answer.rejected_total) == (2, 0)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.PutShards(iter([cache_pb2.PutShardsRequest(digest_function=77)]))  # type: ignore[arg-type]

    both(check)


def test_a_client_that_falls_silent() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        async def requests() -> AsyncIterator[cache_pb2.PutShardsRequest]:
            yield cache_pb2.PutShardsRequest(chunks=pieces(unit("a")))
            await asyncio.sleep(30)

        stub = peer._connection.stub(cache_pb2_grpc.CacheServiceStub)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.PutShards(requests())
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    both(check, limits=WireLimits(idle_message_s=0.1))


def test_requests_with_wrong_fields() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        stub = peer._connection.stub(cache_pb2_grpc.CacheServiceStub)
        compiler = peer._connection.stub(compile_pb2_grpc.CompileServiceStub)
        source = compile_pb2.Source(kind="json_schema", text=b"{}")
        wrong: list[tuple[Any, Any, str]] = [
            (stub.FindMissing, cache_pb2.FindMissingRequest(keys=[b"x"]), "keys"),
            (stub.FindMissing, cache_pb2.FindMissingRequest(keys=[b""] * 5000), "keys"),
            (stub.Lookup, cache_pb2.LookupRequest(source_keys=[b"x"]), "source_keys"),
            (stub.BatchRead, cache_pb2.BatchReadRequest(keys=[b"\xff" * 40]), "keys"),
            (stub.BatchRead, cache_pb2.BatchReadRequest(digest_function=9), "digest_function"),  # type: ignore[arg-type]
            (compiler.Compile, compile_pb2.CompileRequest(sources=[compile_pb2.Source(kind="x")]), "sources[0].kind"),
            (compiler.Compile, compile_pb2.CompileRequest(sources=[source], format_version=99), "format_version"),
            (compiler.Compile, compile_pb2.CompileRequest(tokenizers=[b"x"]), "tokenizers"),
        ]
        for method, request, field in wrong:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(request)
            failed = peer._failed(caught.value)
            assert failed.code == "INVALID_ARGUMENT"
            assert isinstance(failed.error, InvalidRequest)
            assert failed.error.field == field
        for request in (
            cache_pb2.GetShardsRequest(tokenizer=b"x"),
            cache_pb2.GetShardsRequest(tokenizer=TOKENIZER, units=[digest("a")], after=b"other"),
            cache_pb2.GetShardsRequest(tokenizer=TOKENIZER, units=[b""]),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="INVALID_ARGUMENT"):
                await collect(stub.GetShards(request))

    both(check)


def test_messages_that_are_too_large() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        channel = grpc.aio.insecure_channel(peer.target, [("grpc.max_send_message_length", -1)])
        async with channel:
            for size in (2 << 20, 50 << 20):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary("/gramary.v1.CacheService/FindMissing")(bytes(size))
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await peer.find_missing([]) == []

    both(check)


def test_garbage_on_the_port() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        host, _, port = peer.target.rpartition(":")
        for data in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            os.urandom(5000),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(5000),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff\x01\x04\x00\x00\x00\x01" + bytes(100_000),
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(data)
                await writer.drain()
                await asyncio.wait_for(reader.read(1000), 0.2)
            except (OSError, asyncio.TimeoutError):
                pass
            writer.close()
        assert await peer.find_missing([unit("a").key]) == [unit("a").key]

    both(check)
