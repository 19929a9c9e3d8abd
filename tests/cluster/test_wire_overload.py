"""Too much at once: connections, calls and watches beyond the limits, and watchers slower than the news."""

import asyncio

import pytest

from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.errors import CallFailed, Overloaded
from gramary.cluster.wire.limits import WireLimits
from tests.cluster.memory_node import MemoryNode, compile_forever, unit
from tests.cluster.wire_tools import SOURCE, both, run, served


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


def test_calls_beyond_the_queue_are_told_to_come_back() -> None:
    async def check(node: MemoryNode, peer: GrpcPeer) -> None:
        node.compiling = compile_forever
        asking = [asyncio.ensure_future(peer.compile([SOURCE], deadline_s=30)) for _ in range(8)]
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
