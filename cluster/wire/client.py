"""Another node, over gRPC: `Peer`, and what clients ask beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from gramary.cluster.peer import Claim, ClaimState
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.stats import NodeStats, SlowUnit, TokenizerFigures
from gramary.cluster.wire.calls import paired, slices
from gramary.cluster.wire.codec import BLAKE3, ZSTD, compressors, messages
from gramary.cluster.wire.compile_client import Compiling
from gramary.cluster.wire.errors import CorruptData, Rejected
from gramary.cluster.wire.limits import CHUNK_BYTES
from gramary.cluster.wire.node import NodeInfo, TokenizerFormat
from gramary.cluster.wire.pb import (
    cache_pb2,
    cache_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    placement_pb2,
    placement_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
)
from gramary.cluster.wire.services import duration

MOST_REJECTIONS = 1000


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a peer can do, and what it lets this client do."""

    info: NodeInfo
    roles: frozenset[str]
    zstd: bool
    most_items: int
    most_source_bytes: int
    most_tokenizer_bytes: int
    mac_required: bool


class GrpcPeer(Compiling):
    """A node, asked over gRPC. Implements `gramary.cluster.peer.Peer`; see `Calls` for the constructor.

    Payloads are checked against their hashes; whether to believe what they say is up to the caller's `Verifier`.
    """

    _peer_capabilities: Capabilities | None = None

    async def __aenter__(self) -> GrpcPeer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Writing

    async def put(self, records: Sequence[Record]) -> None:
        """See `Peer.put`. Raises `Rejected` if some were not stored; the others are."""
        rejected: list[tuple[bytes, str]] = []
        total = 0
        for record in records:
            most = self._limits.payload_bytes(record.key.kind)
            if len(record.payload) > most:
                total += 1
                rejected.append((record.key.encode(), f"{len(record.payload)} bytes, at most {most} travel"))
        records = [r for r in records if len(r.payload) <= self._limits.payload_bytes(r.key.kind)]
        if records:
            response = await self._put(records)
            rejected += [(rejection.key, rejection.status.message) for rejection in response.rejected]
            total += response.rejected_total
        if total:
            raise Rejected(self.name, rejected[:MOST_REJECTIONS], total)

    async def _put(self, records: Sequence[Record]) -> Any:
        zstd = self._accept != compressors()[:1] and (await self.capabilities()).zstd

        async def requests() -> AsyncIterator[cache_pb2.PutShardsRequest]:
            yield cache_pb2.PutShardsRequest(digest_function=BLAKE3)
            for message in messages(records, field=cache_pb2.PutShardsRequest.CHUNKS_FIELD_NUMBER, zstd=zstd):
                yield cache_pb2.PutShardsRequest.FromString(message)
                await asyncio.sleep(0)

        return await self._call(
            cache_pb2_grpc.CacheServiceStub, "PutShards", requests(), timeout_s=max(self._timeout_s, 60.0)
        )

    async def register_tokenizer(
        self, fingerprint: bytes, data: bytes, form: TokenizerFormat = TokenizerFormat.PREPARED
    ) -> bool:
        """Make a tokenizer known to the peer; returns whether it had to be sent. `CallFailed` if it is refused."""
        if not await self.find_missing([Key(Kind.TOKENIZER, fingerprint)]):
            return False
        header = tokenizer_pb2.TokenizerHeader(
            fingerprint=fingerprint,
            format=tokenizer_pb2.TokenizerFormat.ValueType(form.value),
            size_bytes=len(data),
            hash=blake3(data).digest(),
        )

        async def requests() -> AsyncIterator[tokenizer_pb2.RegisterTokenizerRequest]:
            yield tokenizer_pb2.RegisterTokenizerRequest(header=header)
            for start in range(0, len(data), CHUNK_BYTES):
                yield tokenizer_pb2.RegisterTokenizerRequest(data=data[start : start + CHUNK_BYTES])

        response = await self._call(
            tokenizer_pb2_grpc.TokenizerServiceStub,
            "RegisterTokenizer",
            requests(),
            timeout_s=max(self._timeout_s, 60.0),
        )
        return not response.present

    # Leases

    async def claim(self, digests: Sequence[bytes], *, holder: str, lease_s: float) -> list[Claim]:
        """See `Peer.claim`."""
        out: list[Claim] = []
        for some in slices(digests, self._limits.items):
            request = placement_pb2.ClaimRequest(digests=some, holder=holder, lease=duration(lease_s))
            response = await self._call(placement_pb2_grpc.PlacementServiceStub, "Claim", request)
            out += self._claims(some, response)
        return out

    async def release(self, digests: Sequence[bytes], *, holder: str) -> None:
        """See `Peer.release`."""
        for some in slices(digests, self._limits.items):
            request = placement_pb2.ReleaseRequest(digests=some, holder=holder)
            await self._call(placement_pb2_grpc.PlacementServiceStub, "Release", request)

    async def complete(self, digests: Sequence[bytes], *, holder: str) -> None:
        """See `Peer.complete`."""
        for some in slices(digests, self._limits.items):
            request = placement_pb2.CompleteRequest(digests=some, holder=holder)
            await self._call(placement_pb2_grpc.PlacementServiceStub, "Complete", request)

    async def wait(self, digests: Sequence[bytes], *, timeout_s: float) -> list[Claim]:
        """See `Peer.wait`."""
        out: list[Claim] = []
        until = time.monotonic() + timeout_s
        for some in slices(digests, self._limits.items):
            left = max(0.0, until - time.monotonic())
            request = placement_pb2.WaitRequest(digests=some, timeout=duration(left))
            response = await self._call(
                placement_pb2_grpc.PlacementServiceStub, "Wait", request, timeout_s=left + self._timeout_s
            )
            out += self._claims(some, response)
        return out

    def _claims(self, asked: Sequence[bytes], response: Any) -> list[Claim]:
        states = {
            placement_pb2.ClaimResult.STATE_GRANTED: ClaimState.GRANTED,
            placement_pb2.ClaimResult.STATE_HELD: ClaimState.HELD,
            placement_pb2.ClaimResult.STATE_DONE: ClaimState.DONE,
        }
        out = []
        with self._checked():
            for _, result in paired(asked, response.claims):
                if result.state not in states:
                    raise CorruptData("a claim is in a state that is not known")
                remaining_s = max(0.0, result.remaining.seconds + result.remaining.nanos / 1e9)
                out.append(Claim(states[result.state], result.holder[:255], remaining_s))
        return out

    # About the peer

    async def capabilities(self) -> Capabilities:
        """What the peer can do; asked once."""
        if self._peer_capabilities is None:
            response = await self._call(
                node_pb2_grpc.NodeServiceStub, "GetCapabilities", node_pb2.GetCapabilitiesRequest()
            )
            told = response.capabilities
            info = NodeInfo(
                told.node,
                told.software_version,
                told.format_version,
                tuple(told.stored_format_versions),
                tuple(told.source_kinds),
            )
            self._peer_capabilities = Capabilities(
                info,
                frozenset(response.roles),
                ZSTD in told.compressors,
                told.max_items,
                told.max_source_bytes,
                told.max_tokenizer_bytes,
                told.mac_required,
            )
        return self._peer_capabilities

    async def stats(self) -> NodeStats:
        """The peer's figures."""
        told = await self._call(node_pb2_grpc.NodeServiceStub, "Stats", node_pb2.StatsRequest())
        return NodeStats(
            told.node,
            told.uptime.seconds + told.uptime.nanos / 1e9,
            dict(told.values),
            [TokenizerFigures(t.fingerprint, t.entries, t.size_bytes) for t in told.tokenizers],
            [SlowUnit(unit.digest, unit.name, unit.cost_ns) for unit in told.slowest],
        )
