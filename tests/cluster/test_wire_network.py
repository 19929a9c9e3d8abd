"""Networks that break, fall silent, slow down and corrupt, between a client and a server that are well."""

import asyncio
import os
from contextlib import suppress

import pytest

from gramary.cluster.records import Record
from gramary.cluster.wire import reading
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, CorruptAnswer
from gramary.cluster.wire.pb import cache_pb2, cache_pb2_grpc
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.memory_node import TOKENIZER, MemoryNode, digest, entry, unit
from tests.cluster.wire_tools import collect, run, served


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
