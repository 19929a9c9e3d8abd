"""Peers that lie: whatever a server answers, a client gives out nothing that is false, and its streams end."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from gramary.cluster.records import Record
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CorruptAnswer
from gramary.cluster.wire.limits import CHUNK_BYTES, WireLimits
from gramary.cluster.wire.pb import cache_pb2, cache_pb2_grpc, values_pb2
from tests.cluster.false_records import BOMB, GOOD, LONG, ZSTD, pieces
from tests.cluster.memory_node import TOKENIZER, digest, entry, unit
from tests.cluster.wire_tools import collect, run


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
