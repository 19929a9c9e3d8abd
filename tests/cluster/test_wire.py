"""Client and server together, when all is well."""

import asyncio
import os
import threading
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gramary.cluster import trace
from gramary.cluster.peer import ClaimState, Peer, SourceItem
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.wire.channel import channel_options
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, Rejected, from_dict
from gramary.cluster.wire.limits import WireLimits
from gramary.cluster.wire.mac import Mac
from gramary.cluster.wire.node import Finished, Progress
from gramary.cluster.wire.security import ClientSecurity
from gramary.cluster.wire.server import SERVICES, server_options
from gramary.cluster.wire.verifier import Checks, Verifier
from gramary.compiler.errors import TokenizerError, UnsupportedSchema
from gramary.runtime._core import FORMAT_VERSION
from tests.cluster.memory_node import TOKENIZER, MemoryNode, digest, entry, manifest, manifest_units, unit
from tests.cluster.wire_tools import both, run, served


def test_find_and_read() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        typed: Peer = peer
        large = unit("large", os.urandom(1_000_000))
        records = [unit("a"), entry("a", 1, b"x" * 5000), large, unit("empty", b"")]
        node.add(*records)
        absent = Key(Kind.UNIT, digest("absent"))
        keys = [record.key for record in records]
        assert await typed.find_missing([absent, *keys]) == [absent]
        assert await typed.read([*keys, absent, keys[0]]) == [*records, None, records[0]]
        assert await typed.read([]) == []
        many = [Key(Kind.UNIT, digest(str(number))) for number in range(10_000)]
        assert await typed.find_missing(many) == many

    both(check)


def test_read_fills_messages() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        records = [unit(str(number), os.urandom(60_000)) for number in range(100)]
        node.add(*records)
        assert await peer.read([record.key for record in records]) == records

    both(check)


def test_lookup_wants_every_unit() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        whole, partial = manifest("whole", ["a", "b"]), manifest("partial", ["a", "gone"])
        huge = manifest("huge", [str(number) for number in range(10_000)])
        node.add(unit("a"), unit("b"), whole, partial, huge, *(unit(str(number), b"") for number in range(10_000)))
        keys = [digest("whole"), digest("partial"), digest("never"), digest("huge"), digest("whole")]
        assert await peer.lookup(keys) == [whole, None, None, huge, whole]

    both(check)


@pytest.mark.parametrize("compress", [True, False])
def test_shards(compress: bool) -> None:
    async def check() -> None:
        node = MemoryNode()
        records = [entry(name, slot, bytes([slot]) * (slot * 20_000)) for name in "ab" for slot in range(30)]
        records.sort(key=lambda record: (record.key.digest != digest("a"), record.key.encode()))
        node.add(*records, entry("c", 1, b"other"), entry("a", 1, b"other", digest("another tokenizer")))
        async with served(node) as server, GrpcPeer(server.address, compress=compress) as peer:
            units = [digest("a"), digest("none"), digest("b")]
            assert [record async for record in peer.shards(TOKENIZER, units)] == records
            for place in (0, 29, 30, 59):
                after = records[place].key.encode()
                assert [record async for record in peer.shards(TOKENIZER, units, after=after)] == records[place + 1 :]
            assert [record async for record in peer.shards(TOKENIZER, [digest("none")])] == []

    run(check)


def test_put() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        records = [unit(f"{number}", os.urandom(700_000) if number == 7 else None) for number in range(2000)]
        await peer.put(records)
        await peer.put(records[:3])
        await peer.put([])
        assert [node.records[record.key.encode()] for record in records] == records
        assert node.puts[0][0] == "local@ipv4:127.0.0.1"

    both(check)


def test_watch() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        news = peer.watch([Kind.ENTRY], [TOKENIZER])
        assert (await anext(news)).keys == []
        node.put([unit("a"), entry("a", 1, b"1"), entry("a", 2, b"2", digest("other"))], origin="")
        assert (await anext(news)).keys == [entry("a", 1, b"1").key]
        await news.aclose()
        while len(node.feed):  # the server forgets a watcher that went away
            await asyncio.sleep(0.01)

    both(check)


def test_tokenizers() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        data = os.urandom(3_000_000)
        fingerprint = sha256(data).digest()
        assert await peer.register_tokenizer(fingerprint, data)
        assert node.tokenizers == {fingerprint: data}
        assert not await peer.register_tokenizer(fingerprint, data)
        with pytest.raises(CallFailed, match="another fingerprint") as caught:
            await peer.register_tokenizer(digest("wrong"), data)
        assert isinstance(caught.value.error, TokenizerError)
        assert not caught.value.retryable

    both(check)


def test_leases() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        names = [digest("a"), digest("b")]
        assert [claim.state for claim in await peer.claim(names[:1], holder="me", lease_s=5)] == [ClaimState.GRANTED]
        held, granted = await peer.claim(names, holder="you", lease_s=5)
        assert (held.state, held.holder, held.remaining_s) == (ClaimState.HELD, "me", 5.0)
        assert granted.state is ClaimState.GRANTED
        waiting = asyncio.ensure_future(peer.wait(names[:1], timeout_s=30))
        await peer.complete(names[:1], holder="me")
        assert [claim.state for claim in await waiting] == [ClaimState.DONE]
        await peer.release(names, holder="you")
        assert node.leases == {}
        assert [claim.state for claim in await peer.wait(names, timeout_s=0.01)] == [
            ClaimState.DONE,
            ClaimState.GRANTED,
        ]

    both(check)


def sources(*texts: str) -> list[SourceItem]:
    return [SourceItem(digest(text), "json_schema", "{}", text.encode()) for text in texts]


def test_compile() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        items = sources("a", "error:UnsupportedSchema:not here", "lost", "b")
        outcomes = await peer.compile(items, deadline_s=20)
        assert [outcome.key for outcome in outcomes] == [item.key for item in items]
        assert [outcome.manifest for outcome in outcomes] == [digest("a"), None, None, digest("b")]
        error = from_dict(outcomes[1].error)
        assert isinstance(error, UnsupportedSchema)
        assert (error.message, error.pointer, error.keyword, error.remedy) == ("not here", "/a", "not", "drop it")
        assert [outcome.retryable for outcome in outcomes] == [False, False, True, False]
        job = node.jobs[0]
        assert job.sources == items
        assert job.local_only
        assert 15 < job.deadline_s < 20

    both(check)


def test_compile_with_progress() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        items = sources("a", "b")
        events = [event async for event in peer.compile_events(items, tokenizers=[], deadline_s=20)]
        assert [event.index for event in events if isinstance(event, Finished)] == [0, 1]
        assert [event.done for event in events if isinstance(event, Progress)] == [0, 1, 2]

    both(check)


def test_compile_many_and_large() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        items = sources(*(f"{number}" + "x" * 300_000 for number in range(5)), *map(str, range(5000)))
        items.append(SourceItem(digest("key"), "regex", "", b"y" * 2_000_000))
        outcomes = await peer.compile_sources(items, tokenizers=[], deadline_s=30)
        assert [outcome.key for outcome in outcomes] == [item.key for item in items]
        assert all(outcome.manifest for outcome in outcomes[:-1])
        assert outcomes[-1].error["limit"] == "source_bytes"

    both(check)


def test_capabilities_and_stats() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        told = await peer.capabilities()
        assert told.info == node.info
        assert told.roles == {"read", "compile", "publish", "lease"}
        assert told.zstd
        assert await peer.stats() == node.stats()

    both(check)


def test_health_and_reflection() -> None:
    async def check() -> None:
        async with served(MemoryNode()) as server, grpc.aio.insecure_channel(server.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for name in ("", *SERVICES):
                status = await health.Check(health_pb2.HealthCheckRequest(service=name))
                assert status.status == health_pb2.HealthCheckResponse.SERVING
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            async for response in call:
                names = {service.name for service in response.list_services_response.service}
                assert names >= set(SERVICES)

    run(check)


def test_unix_socket(tmp_path: Path) -> None:
    async def check() -> None:
        node = MemoryNode()
        node.add(unit("a"))
        path = tmp_path / "agent.sock"
        for _ in range(2):
            async with served(node, f"unix:{path}") as server, GrpcPeer(server.address) as peer:
                assert path.stat().st_mode & 0o777 == 0o660
                assert await peer.read([unit("a").key]) == [unit("a")]
                await peer.put([unit("b")])
                assert node.puts[-1][0] == "local@unix"
        assert not path.exists()

    run(check)


def test_put_tells_what_was_not_stored() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        whole, partial = manifest("whole", ["a"]), manifest("partial", ["a", "gone"])
        too_large = Record(unit("b").key, b"x" * (33 << 20))
        with pytest.raises(Rejected) as caught:
            await peer.put([unit("a"), too_large, whole, partial])
        assert caught.value.total == 1
        assert {key for key, _ in caught.value.keys} == {too_large.key.encode()}
        # A manifest is taken without its units: in a cluster they are with their own owners.
        assert await peer.find_missing([unit("a").key, whole.key, partial.key, too_large.key]) == [too_large.key]

    both(check, verifier=Verifier(Checks(manifest_units=manifest_units)))


def test_what_is_not_vouched_for_is_not_stored() -> None:
    mac = Mac([b"k" * 32])
    lie, good = mac.seal(entry("a", 2, b"lie")), mac.seal(entry("a", 1, b"good"))
    checks = Checks(
        mac=mac,
        manifest_units=manifest_units,
        rebuild=lambda record: record.payload != b"lie",
        sample=1.0,
        versions=frozenset({FORMAT_VERSION}),
    )
    verifier = Verifier(checks)

    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        assert (await peer.capabilities()).mac_required
        old = Record(replace(unit("a").key, version=FORMAT_VERSION + 1), b"old")
        forged = replace(entry("a", 3, b"x"), mac=b"m" * 32)
        with pytest.raises(Rejected) as caught:
            await peer.put([unit("a"), good, entry("a", 4, b"no mac"), forged, old, manifest("m", ["a"])])
        assert caught.value.total == 4
        assert set(node.records) == {unit("a").key.encode(), good.key.encode()}
        with pytest.raises(Rejected, match="building it again"):
            await peer.put([lie])
        with pytest.raises(Rejected, match="caught with false records"):
            await peer.put([unit("b")])
        assert verifier.quarantined("local@ipv4:127.0.0.1")
        assert verifier.counters["quarantines"] == 1
        assert lie.key.encode() not in node.records
        # What a reader gets has its MAC still.
        assert (await peer.read([good.key]))[0] == good

    both(check, verifier=verifier)


def test_one_peer_in_several_loops() -> None:
    node = MemoryNode()
    node.add(unit("a"))

    address: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    up = threading.Event()

    async def main() -> None:
        async with served(node) as server:
            address.append(server.address)
            up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    up.wait(10)
    peer = GrpcPeer(address[0])

    async def ask() -> None:
        assert await peer.read([unit("a").key]) == [unit("a")]

    asyncio.run(ask())
    asyncio.run(ask())
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_clients_ping_no_more_than_servers_allow() -> None:
    server = dict(server_options(WireLimits()))
    client = dict(channel_options(ClientSecurity(), 3))
    assert client["grpc.keepalive_time_ms"] >= server["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert client["grpc.keepalive_permit_without_calls"] == server["grpc.keepalive_permit_without_calls"] == 1
    assert client["grpc.max_send_message_length"] == server["grpc.max_receive_message_length"] == 1 << 20


def test_traces_cross_the_wire() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        seen: list[tuple[str, str] | None] = []
        find = node.find_missing

        def look(keys: Any) -> Any:
            seen.append(trace.current_ids())
            return find(keys)

        node.find_missing = look  # type: ignore[method-assign]
        name = "0af7651916cd43dd8448eb211c80319c"
        with trace.attached(trace.restore({"traceparent": f"00-{name}-b7ad6b7169203331-01"})):
            await peer.find_missing([unit("a").key])
        await peer.find_missing([unit("a").key])
        assert seen[0] is not None
        assert seen[0][0] == name
        assert seen[1] is None

    both(check)
