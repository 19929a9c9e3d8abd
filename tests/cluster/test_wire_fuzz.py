"""Whatever bytes arrive, a server answers with a status and lives, and a client raises what it says it raises."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from blake3 import blake3
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramary.cluster.records import Key
from gramary.cluster.wire.codec import Assembler, chunks, decode_keys
from gramary.cluster.wire.errors import CorruptData, InvalidRequest, from_dict, make_status, read_status
from gramary.cluster.wire.guard import RULES
from gramary.cluster.wire.limits import CHUNK_BYTES, WireLimits
from gramary.cluster.wire.pb import cache_pb2, compile_pb2, placement_pb2, tokenizer_pb2, values_pb2
from gramary.compiler.errors import GramaryError
from tests.cluster.memory_node import TOKENIZER, MemoryNode, digest, entry, manifest, unit
from tests.cluster.wire_tools import served

RECORDS = [unit("a"), entry("a", 1, b"x" * 700), manifest("m", ["a"]), entry("a", 2, bytes(CHUNK_BYTES + 9))]
CHUNKS = [chunk for record in RECORDS for zstd in (False, True) for chunk in chunks(record, zstd=zstd)]
KEYS = [record.key.encode() for record in RECORDS]
COMPILE = compile_pb2.CompileRequest(
    sources=[compile_pb2.Source(kind="regex", text=b"a", options="{}")], tokenizers=[TOKENIZER]
)
SEEDS: dict[str, list[Any]] = {
    "Lookup": [cache_pb2.LookupRequest(source_keys=[digest("m")], accept=[1, 2])],  # type: ignore[list-item]
    "FindMissing": [cache_pb2.FindMissingRequest(keys=KEYS)],
    "BatchRead": [cache_pb2.BatchReadRequest(keys=KEYS)],
    "Read": [cache_pb2.ReadRequest(keys=KEYS, offset=3)],
    "GetShards": [cache_pb2.GetShardsRequest(tokenizer=TOKENIZER, units=[digest("a")], after=KEYS[1], offset=9)],
    "PutShards": [cache_pb2.PutShardsRequest(chunks=CHUNKS[:3]), cache_pb2.PutShardsRequest(chunks=CHUNKS[4:])],
    "Watch": [cache_pb2.WatchRequest(kinds=[1], tokenizers=[TOKENIZER])],  # type: ignore[list-item]
    "Compile": [COMPILE],
    "CompileStream": [compile_pb2.CompileStreamRequest(request=COMPILE)],
    "RegisterTokenizer": [
        tokenizer_pb2.RegisterTokenizerRequest(
            header=tokenizer_pb2.TokenizerHeader(fingerprint=digest("t"), format=1, size_bytes=4, hash=digest("h"))  # type: ignore[arg-type]
        ),
        tokenizer_pb2.RegisterTokenizerRequest(data=b"1234"),
    ],
    "Claim": [placement_pb2.ClaimRequest(digests=[digest("a")], holder="me")],
    "Release": [placement_pb2.ReleaseRequest(digests=[digest("a")], holder="me")],
    "Complete": [placement_pb2.CompleteRequest(digests=[digest("a")], holder="me")],
    "Wait": [placement_pb2.WaitRequest(digests=[digest("a")])],
}
METHODS = sorted(method for method in RULES if "gramary" in method)


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A good message with some of its bytes changed, cut or doubled."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["set", "insert", "cut", "double"])):
            case "set" if place < len(data):
                data[place] = draw(st.integers(0, 255))
            case "insert":
                data[place:place] = draw(st.binary(max_size=9))
            case "cut":
                del data[place:]
            case _:
                data += data[place : place + 50]
    return bytes(data)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a thread."""
    up, told, stop = threading.Event(), [""], asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        node = MemoryNode()
        node.add(*RECORDS)
        limits = WireLimits(idle_message_s=0.2, longest_call_s=0.3)
        async with served(node, limits=limits) as server:
            told[0] = server.address
            up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    up.wait(20)
    yield told[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    loop.close()


ANSWERS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
}


@pytest.mark.parametrize("method", METHODS)
def test_any_bytes_as_requests(method: str, address: str) -> None:
    name = method.rpartition("/")[2]
    seeds = [message.SerializeToString() for message in SEEDS.get(name, [])] or [b""]
    many = name in ("PutShards", "RegisterTokenizer")
    streamed = name in ("Read", "GetShards", "Watch", "CompileStream")
    with grpc.insecure_channel(address) as channel:

        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(mutated(seeds) | st.binary(max_size=300), min_size=1, max_size=4 if many else 1))
        def ask(messages: list[bytes]) -> None:
            # Watch has no end of its own, and Wait waits.
            timeout = 0.05 if name in ("Watch", "Wait") else 10
            try:
                if many:
                    channel.stream_unary(method)(iter(messages), timeout=timeout)
                elif streamed:
                    list(channel.unary_stream(method)(messages[0], timeout=timeout))
                else:
                    channel.unary_unary(method)(messages[0], timeout=timeout)
            except grpc.RpcError as error:
                if error.code() not in ANSWERS:  # type: ignore[attr-defined]
                    raise

        ask()
        channel.unary_unary("/gramary.v1.NodeService/Stats")(b"", timeout=10)


def parsed(message: bytes) -> values_pb2.RecordChunk | None:
    try:
        return values_pb2.RecordChunk.FromString(message)
    except DecodeError:
        return None


@settings(max_examples=80, deadline=None)
@given(st.lists(mutated([chunk.SerializeToString() for chunk in CHUNKS if len(chunk.data) < 1000]), max_size=6))
def test_any_chunks(messages: list[bytes]) -> None:
    assembler = Assembler(WireLimits())
    promised = {bytes(chunk.header.payload.hash) for chunk in map(parsed, messages) if chunk is not None}
    with suppress(CorruptData):
        for chunk in filter(None, map(parsed, messages)):
            record = assembler.feed(chunk)
            assert record is None or blake3(record.payload).digest() in promised
        assembler.finish()


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=150) | mutated(KEYS))
def test_any_keys(data: bytes) -> None:
    try:
        [key] = decode_keys([data], "keys", WireLimits())
    except InvalidRequest:
        return
    assert key.encode() == data
    assert Key.decode(data) == key


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["type", "message", "retry_after_s", "cause", "pointer", "[" * 5000, "1e999", "null", '{"a": 1}', "LimitExceeded"]
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(TEXTS, TEXTS, max_size=6), st.sampled_from(list(grpc.StatusCode)))
def test_any_error_travels(error: dict[str, str], code: grpc.StatusCode) -> None:
    assert isinstance(from_dict(error), GramaryError)
    status = make_status(code, error.get("message", ""), error=error)
    assert status.ByteSize() < 40_000
    told_code, told, _ = read_status(status)
    assert told_code is code
    assert told["type"] == error.get("type", "")[:64]


@settings(max_examples=80, deadline=None)
@given(mutated([make_status(grpc.StatusCode.ABORTED, "x", error={"type": "y"}, retry_after_s=1).SerializeToString()]))
def test_any_status_is_read(data: bytes) -> None:
    try:
        status = status_pb2.Status.FromString(data)
    except DecodeError:
        return
    read_status(status)
