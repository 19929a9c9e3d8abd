"""What peers and executors do is counted, and nothing about it changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gramary.cluster.metrics import NodeMetrics
from gramary.cluster.observed import ObservedExecutor, ObservedPeer
from gramary.cluster.peer import PeerError, SourceItem
from gramary.cluster.records import Record
from gramary.cluster.wire.server import WireServer
from gramary.compiler.errors import LimitExceeded
from tests.cluster.memory_node import TOKENIZER, MemoryNode, digest, entry, unit


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def test_a_peer() -> None:
    metrics = NodeMetrics()

    async def test() -> None:
        node = MemoryNode()
        node.add(unit("a", b"12345"), entry("a", 1, os.urandom(1000)))
        server = WireServer(node, "127.0.0.1:0")
        await server.start()
        peer = ObservedPeer(server.address, attempts=1, timeout_s=5)
        peer.metrics = metrics
        try:
            assert await peer.find_missing([unit("b").key]) == [unit("b").key]
            assert await peer.read([unit("a").key, unit("b").key]) == [unit("a", b"12345"), None]
            assert [record.key async for record in peer.shards(TOKENIZER, [digest("a")])]
            await peer.put([unit("c", b"123")])
            claims = await peer.claim([digest("d")], holder="n1", lease_s=1)
            await peer.release([digest("d")], holder="n1")
            await peer.complete([digest("d")], holder="n1")
            assert await peer.wait([digest("d")], timeout_s=0.1)
            assert claims
        finally:
            await server.drain(0)
        with pytest.raises(PeerError):
            await peer.read([unit("a").key])
        with pytest.raises(PeerError):
            await peer.compile([SourceItem(bytes(32), "regex", "{}", b"a")], deadline_s=1)
        await peer.close()

    run(test())
    assert [metrics.lookups.value("peer", result) for result in ("hit", "miss", "error")] == [1, 1, 1]
    assert metrics.lookup_duration.count("peer") == 1
    assert metrics.peer_bytes.snapshot() == [1005, 3]
    assert metrics.peer_errors.total() == metrics.peer_errors.value("UNAVAILABLE") == 2


class Executor:
    """Says what it was asked, and answers as it is told."""

    workers = 3

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []

    def stats(self) -> str:
        return "stats"

    async def register_tokenizer(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        self.calls.append("register")

    async def lower(
        self, sources: Sequence[SourceItem], *, limits: Any = None, deadline_s: float = 60.0, done: Any = None
    ) -> list[Any]:
        self.calls.append(f"lower {limits} {deadline_s}")
        return self.answers

    async def build(
        self,
        tokenizer: bytes,
        closure: Mapping[bytes, bytes],
        wanted: Sequence[bytes],
        *,
        min_cost_us: float = 0.0,
        deadline_s: float = 60.0,
    ) -> list[Record]:
        self.calls.append(f"build {min_cost_us} {deadline_s}")
        if self.answers:
            raise self.answers[0]
        return [entry("a", 1, b"x")]

    async def close(self) -> None:
        self.calls.append("close")


def test_an_executor() -> None:
    metrics = NodeMetrics()

    def failed(kind: str, retryable: bool = False) -> Any:
        return SimpleNamespace(error={"type": kind}, retryable=retryable)

    ends = [
        ("LimitExceeded", "limit"),
        ("InvalidPattern", "invalid"),
        ("Cancelled", "cancelled"),
        ("WorkerDied", "died"),
    ]
    ends += [("KernelFault", "died"), ("nobody knows", "died")]
    answers = [
        SimpleNamespace(cost_ns=2_000_000),
        *(failed(kind) for kind, _ in ends),
        failed("UnknownTokenizer", True),
    ]
    inner = Executor(*answers)
    executor = ObservedExecutor(inner, metrics)
    sources = [SourceItem(bytes([number]) * 32, "regex", "{}", b"a") for number in range(len(answers))]

    async def test() -> None:
        assert await executor.lower(sources, limits="few", deadline_s=5) == answers
        inner.answers = []
        assert await executor.build(bytes(32), {}, [bytes(32)], min_cost_us=7, deadline_s=4) == [entry("a", 1, b"x")]
        inner.answers = [LimitExceeded("too much", limit="memory", value=1)]
        with pytest.raises(LimitExceeded):
            await executor.build(bytes(32), {}, [bytes(32)])
        await executor.register_tokenizer(bytes(32), b"")
        await executor.close()

    run(test())
    assert (executor.workers, executor.stats()) == (3, "stats")
    assert inner.calls == ["lower few 5", "build 7 4", "build 0.0 60.0", "register", "close"]
    results = {result: metrics.compiles.value("cluster", result) for result in ("ok", "invalid", "limit", "cancelled")}
    assert results == {"ok": 1, "invalid": 1, "limit": 1, "cancelled": 1}
    assert metrics.compiles.value("cluster", "died") == 4
    assert metrics.compile_duration.sum("lower") == pytest.approx(0.002)
    assert [metrics.compile_duration.count(stage) for stage in ("queue", "lower", "entries")] == [1, 1, 1]
