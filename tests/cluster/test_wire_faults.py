"""Bad networks, bad peers, bad clients, too much at once, and goodbyes."""

import asyncio
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gramary.cluster.peer import SourceItem
from gramary.cluster.records import Record
from gramary.cluster.wire import reading
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.codec import chunks
from gramary.cluster.wire.errors import CallFailed, CorruptAnswer, Draining, InvalidRequest, Overloaded
from gramary.cluster.wire.limits import CHUNK_BYTES, WireLimits
from gramary.cluster.wire.node import Finished
from gramary.cluster.wire.pb import cache_pb2, cache_pb2_grpc, compile_pb2, compile_pb2_grpc, values_pb2
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.memory_node import TOKENIZER, MemoryNode, compile_forever, digest, entry, unit
from tests.cluster.wire_tools import both, run, served

SOURCE = SourceItem(digest("s"), "regex", "", b"s")


async def collect(items: AsyncIterable[Any], into: list[Any] | None = None) -> list[Any]:
    """All items; those that came before an error are in `into`."""
    into = [] if into is None else into
    async for item in items:
        into.append(item)
    return into


# The network


def test_a_broken_stream_of_shards_is_resumed() -> None:
    async def check() -> None:
        node = MemoryNode()
        records = [entry("a", slot, os.urandom(300_000)) for slot in range(20)]
        records += [entry("b", slot, os.urandom(100)) for slot in range(200)]
        node.add(*records)
        async with served(node) as server, FaultProxy(server.address) as proxy, GrpcPeer(proxy.address) as peer:
            proxy.cut_after = 1_000_000
            got = []
            async for record in peer.shards(TOKENIZER, [digest("a"), digest("b")]):
                got.append(record)
                if len(got) in (7, 11):
                    proxy.cut_after = 400_000
                if len(got) == 15:
                    proxy.cut()
            assert got == records
            assert proxy.connections >= 4
            # Little was sent twice: a stream goes on within a payload.
            assert proxy.passed < 20 * 300_000 * 2

    run(check)


def test_a_broken_read_is_resumed_within_the_payload() -> None:
    async def check() -> None:
        node = MemoryNode()
        large = [unit(str(number), os.urandom(6_000_000)) for number in range(2)]
        node.add(*large)
        async with served(node) as server, FaultProxy(server.address) as proxy, GrpcPeer(proxy.address) as peer:
            proxy.cut_after = 4_000_000
            assert await peer.read([record.key for record in large]) == large
            assert proxy.connections >= 2
            assert proxy.passed < 20_000_000

    run(check)


def test_a_record_that_changed_between_streams_is_sent_again() -> None:
    async def check() -> None:
        node = MemoryNode()
        node.add(entry("a", 5, os.urandom(2_000_000)))
        async with served(node) as server, FaultProxy(server.address) as proxy, GrpcPeer(proxy.address) as peer:
            proxy.cut_after = 1_000_000
            added = entry("a", 1, os.urandom(1_500_000))
            got = []

            async def ask() -> None:
                got.extend([record async for record in peer.shards(TOKENIZER, [digest("a")])])

            asking = asyncio.ensure_future(ask())
            while proxy.cut_after is not None:
                await asyncio.sleep(0.001)
            node.add(added)  # comes before the one that broke off
            await asking
            assert got[-1] == entry("a", 5, got[-1].payload)
            assert len(got) in (1, 2)

    run(check)


def test_a_peer_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_RESUMES", 2)

    async def check() -> None:
        async with FaultProxy("127.0.0.1:1") as proxy, GrpcPeer(proxy.address, timeout_s=5) as peer:
            for call in (peer.find_missing([unit("a").key]), peer.put([unit("a")]), peer.stats()):
                with pytest.raises(CallFailed) as caught:
                    await call
                assert caught.value.code == "UNAVAILABLE"
                assert caught.value.retryable
                assert proxy.address in str(caught.value)
            with pytest.raises(CallFailed):
                await collect(peer.shards(TOKENIZER, [digest("a")]))

    run(check)


def test_a_silent_peer_costs_the_deadline_and_no_more() -> None:
    async def check() -> None:
        node = MemoryNode()
        node.add(unit("a"), *(entry("a", slot, os.urandom(200_000)) for slot in range(20)))
        async with (
            served(node) as server,
            FaultProxy(server.address) as proxy,
            GrpcPeer(proxy.address, timeout_s=0.3) as peer,
        ):
            assert await peer.read([unit("a").key]) == [unit("a")]
            proxy.black_hole = True
            with pytest.raises(CallFailed) as caught:
                await peer.read([unit("a").key])
            assert (caught.value.code, caught.value.retryable) == ("DEADLINE_EXCEEDED", True)
            stub = peer._connection.stub(cache_pb2_grpc.CacheServiceStub)
            request = cache_pb2.GetShardsRequest(tokenizer=TOKENIZER, units=[digest("a")])
            with pytest.raises(CallFailed, match="nothing came"):
                await collect(peer._stream(stub.GetShards, request))
            proxy.black_hole = False
            proxy.cut()
            assert await GrpcPeer(proxy.address, timeout_s=10).read([unit("a").key]) == [unit("a")]

    run(check)


def test_a_slow_network_is_only_slow() -> None:
    async def check() -> None:
        node = MemoryNode()
        records = [entry("a", slot, os.urandom(1000)) for slot in range(50)]
        node.add(*records)
        async with served(node) as server, FaultProxy(server.address) as proxy, GrpcPeer(proxy.address) as peer:
            proxy.delay_s, proxy.bytes_per_s = 0.02, 1e6
            assert [record async for record in peer.shards(TOKENIZER, [digest("a")])] == records

    run(check)


@pytest.mark.parametrize("place", [9, 150, 5_000, 400_000])
def test_a_network_that_corrupts_is_found_out(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_RESUMES", 1)

    async def check() -> None:
        node = MemoryNode()
        records = [entry("a", slot, os.urandom(100_000)) for slot in range(10)]
        node.add(*records)
        async with (
            served(node) as server,
            FaultProxy(server.address) as proxy,
            GrpcPeer(proxy.address, timeout_s=2) as peer,
        ):
            await peer.stats()
            proxy.corrupt_after = place
            got: list[Record] = []
            with suppress(CallFailed, CorruptAnswer):
                await collect(peer.shards(TOKENIZER, [digest("a")]), got)
            assert got == records[: len(got)]

    run(check)


# Peers that lie


class Liar(cache_pb2_grpc.CacheServiceServicer):
    """Answers with the chunks that it is given."""

    def __init__(self) -> None:
        self.messages: list[list[values_pb2.RecordChunk]] = []
        self.endless = False

    async def GetShards(self, request: Any, context: Any) -> AsyncIterator[cache_pb2.GetShardsResponse]:  # noqa: N802
        while True:
            for message in self.messages:
                yield cache_pb2.GetShardsResponse(chunks=message)
            if not self.endless:
                return

    async def BatchRead(self, request: Any, context: Any) -> cache_pb2.BatchReadResponse:  # noqa: N802
        response = cache_pb2.BatchReadResponse()
        for chunk in (chunk for message in self.messages for chunk in message):
            response.results.add(record=chunk)
        return response


def lying(check: Any) -> None:
    async def whole() -> None:
        server, liar = grpc.aio.server(), Liar()
        cache_pb2_grpc.add_CacheServiceServicer_to_server(liar, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with GrpcPeer(f"127.0.0.1:{port}", timeout_s=5) as peer:
                await check(liar, peer)
        finally:
            await server.stop(0)

    run(whole)


def pieces(record: Record, **changes: Any) -> list[values_pb2.RecordChunk]:
    """A record's chunks, the first with other fields."""
    out = list(chunks(record, zstd=False))
    for name, value in changes.items():
        if name in ("key", "cost_ns", "mac"):
            setattr(out[0].header, name, value)
        elif name in ("hash", "size_bytes"):
            setattr(out[0].header.payload, name, value)
        else:
            setattr(out[0], name, value)
    return out


GOOD = entry("a", 1, os.urandom(1000))
LONG = entry("a", 2, os.urandom(CHUNK_BYTES + 1000))
ZSTD = values_pb2.COMPRESSOR_ZSTD
BOMB = bytes.fromhex("28b52ffd84") + struct.pack("<I", 0x7FFFFFFF)[:4]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pieces(GOOD, data=GOOD.payload[:-1] + b"x"), "hash"),
        (pieces(GOOD, data=GOOD.payload[:-1]), "says 1000"),
        (pieces(GOOD, data=GOOD.payload + b"x"), "says 1000"),
        (pieces(GOOD, data=GOOD.payload + b"x", plain_bytes=1001), "more than the 1000 bytes"),
        (pieces(GOOD, hash=b"x" * 32), "hash"),
        (pieces(GOOD, hash=b"x"), "32 bytes"),
        (pieces(GOOD, size_bytes=1 << 62), "at most"),
        (pieces(GOOD, size_bytes=999), "more than the 999"),
        (pieces(GOOD, key=b"nonsense"), "key"),
        (pieces(GOOD, key=entry("b", 1, b"").key.encode()), "not asked for"),
        (pieces(GOOD, key=entry("a", 1, b"", digest("other")).key.encode()), "not asked for"),
        (pieces(GOOD, key=unit("a").key.encode()), "not asked for"),
        (pieces(GOOD, mac=b"x" * 33), "MAC"),
        (pieces(GOOD, offset=7), "begins at 7"),
        (pieces(GOOD, compressor=99), "compressor"),
        (pieces(GOOD, compressor=ZSTD), "zstd"),
        (pieces(GOOD, compressor=ZSTD, data=BOMB), "zstd"),
        (pieces(GOOD, plain_bytes=CHUNK_BYTES + 1), "at most"),
        ([values_pb2.RecordChunk(data=b"x", plain_bytes=1)], "header"),
        (pieces(LONG)[:1], "within a record"),
        (pieces(LONG)[:1] + pieces(GOOD), "before the one before"),
        ([pieces(LONG)[0], values_pb2.RecordChunk(offset=CHUNK_BYTES)], "not the last"),
        (pieces(LONG)[1:], "header"),
        (pieces(LONG)[:1] + pieces(LONG)[:1], "before the one before"),
        (pieces(GOOD) + pieces(GOOD), "out of order"),
        (pieces(LONG) + pieces(GOOD), "out of order"),
    ],
)
def test_a_lying_stream_is_refused(message: list[values_pb2.RecordChunk], why: str) -> None:
    async def check(liar: Liar, peer: GrpcPeer) -> None:
        liar.messages = [message]
        got: list[Record] = []
        with pytest.raises(CorruptAnswer, match=why):
            await collect(peer.shards(TOKENIZER, [digest("a")]), got)
        assert all(record in (GOOD, LONG) for record in got)

    lying(check)


def test_an_endless_stream_ends() -> None:
    async def check(liar: Liar, peer: GrpcPeer) -> None:
        liar.endless = True
        liar.messages = [[]]
        with pytest.raises(CorruptAnswer, match="empty message"):
            await collect(peer.shards(TOKENIZER, [digest("a")]))
        liar.messages = [[chunk] for slot in range(64) for chunk in pieces(entry("a", slot, b"x"))]
        peer._limits = WireLimits(records_per_put=50)
        with pytest.raises(CorruptAnswer, match="more than 50"):
            await collect(peer.shards(TOKENIZER, [digest("a")]))

    lying(check)


def test_lying_batches_are_refused() -> None:
    async def check(liar: Liar, peer: GrpcPeer) -> None:
        key = GOOD.key
        for messages, why in (
            ([], "0 results for 1"),
            ([pieces(GOOD), pieces(GOOD)], "2 results for 1"),
            ([pieces(entry("a", 9, b"x"))], "asked for"),
            ([pieces(GOOD, data=b"x" * 1000)], "hash"),
            ([pieces(LONG)[:1]], "not whole"),
        ):
            liar.messages = messages
            with pytest.raises(CorruptAnswer, match=why):
                await peer.read([key])
        liar.messages = [pieces(GOOD)]
        assert await peer.read([key]) == [GOOD]

    lying(check)


# Clients that misbehave


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


def test_many_connections() -> None:
    async def check() -> None:
        async with served(MemoryNode(), limits=WireLimits(connections=40, handshake_s=60)) as server:
            host, _, port = server.address.rpartition(":")
            connections = [await asyncio.open_connection(host, int(port)) for _ in range(400)]

            async def is_closed(reader: asyncio.StreamReader) -> bool:
                try:
                    return await reader.read(1) == b""  # a server that takes a connection says so
                except OSError:
                    return True

            assert sum(await asyncio.gather(*(is_closed(reader) for reader, _ in connections))) >= 350
            for _, writer in connections:
                writer.close()
            async with GrpcPeer(server.address) as peer:
                for _ in range(50):  # until the server has seen that they are gone
                    try:
                        await peer.stats()
                        break
                    except CallFailed:
                        await asyncio.sleep(0.1)
                assert (await peer.stats()).node == "memory"

    run(check)


# Cancellation and deadlines


def test_a_client_that_goes_cancels_its_work() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        node.compiling = compile_forever
        asking = asyncio.ensure_future(peer.compile([SOURCE], tokenizers=[], deadline_s=30))
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
            asking = asyncio.ensure_future(peer.compile([SOURCE], tokenizers=[], deadline_s=30))
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
            await peer.compile([SOURCE], tokenizers=[], deadline_s=0.3)
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


# Too much at once


def test_calls_beyond_the_queue_are_told_to_come_back() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        node.compiling = compile_forever
        asking = [asyncio.ensure_future(peer.compile([SOURCE], tokenizers=[], deadline_s=30)) for _ in range(8)]
        done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 3:
            done, waiting = await asyncio.wait(asking, timeout=0.05)
        assert len(done) == 3
        for task in done:
            failed = task.exception()
            assert isinstance(failed, CallFailed)
            assert (failed.code, failed.retryable, failed.retry_after_s) == ("RESOURCE_EXHAUSTED", True, 0.25)
            assert isinstance(failed.error, Overloaded)
            assert failed.error.retry_after_s == 0.25
        assert len(node.jobs) == 2
        assert await peer.find_missing([]) == []  # other kinds of calls have room
        for task in waiting:
            task.cancel()

    both(check, limits=WireLimits(compiles=2, queue=3, retry_after_s=0.25))


def test_watches_are_limited() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        streams = [peer.watch() for _ in range(3)]
        for stream in streams[:2]:
            await anext(stream)
        with pytest.raises(CallFailed, match="RESOURCE_EXHAUSTED"):
            await anext(streams[2])
        for stream in streams:
            await stream.aclose()

    both(check, limits=WireLimits(watches=2))


def test_a_slow_watcher_loses_news_and_is_told() -> None:
    from gramary.cluster.wire.feed import Feed

    async def check() -> None:
        feed = Feed(most_pending=10)
        watcher = feed.watch()
        feed.publish(unit(str(number)).key for number in range(25))
        news = await watcher.next(1)
        assert (len(news.keys), news.lost) == (10, 15)
        assert not (await watcher.next(0.01)).keys
        watcher.close()
        feed.publish([unit("a").key])
        assert len(feed) == 0

    run(check)


# Retries


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
            for call in (peer.compile([SOURCE], tokenizers=[], deadline_s=5), peer.put([unit("a")])):
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


# Goodbyes


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
            asking = [asyncio.ensure_future(peer.compile([SOURCE], tokenizers=[], deadline_s=30)) for _ in range(20)]
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
                    await peer.compile([SOURCE], tokenizers=[], deadline_s=30)
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
            asking = asyncio.ensure_future(peer.compile([SOURCE], tokenizers=[], deadline_s=30))
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
        outcomes = await peer.compile(items, tokenizers=[], deadline_s=5)
        assert [bool(outcome.manifest) for outcome in outcomes] == [False, True, True]
        assert outcomes[0].retryable  # the node forgot it: that says nothing about the source
        events = [event async for event in peer.compile_events(items, tokenizers=[], deadline_s=5)]
        assert sorted(event.index for event in events if isinstance(event, Finished)) == [0, 1, 2]

    both(check)
