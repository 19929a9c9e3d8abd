"""Compiling, tokenizers, placement, and the node itself, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Any

from blake3 import blake3
from google.protobuf.duration_pb2 import Duration

from gramary.cluster.peer import Claim, ClaimState, Outcome, SourceItem
from gramary.cluster.records import DIGEST_BYTES, Key, Kind, Record
from gramary.cluster.wire.codec import (
    BLAKE3,
    HEADER_ROOM,
    check_count,
    check_digest_function,
    check_digests,
    compressors,
    write_single,
)
from gramary.cluster.wire.errors import CorruptData, InvalidRequest, outcome_status
from gramary.cluster.wire.limits import CHUNK_BYTES, MESSAGE_BYTES, ROOM_BYTES, WireLimits
from gramary.cluster.wire.node import CompileJob, Finished, Node, Progress, TokenizerFormat
from gramary.cluster.wire.pb import (
    compile_pb2,
    compile_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    placement_pb2,
    placement_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
)
from gramary.cluster.wire.security import CALLER

LONGEST_NAME = 255
LONGEST_LEASE_S = 3600.0
LONGEST_OPTIONS = 16 << 10


class CompileService(compile_pb2_grpc.CompileServiceServicer):
    """Hands sources to the node, and what became of them back."""

    def __init__(self, node: Node, limits: WireLimits) -> None:
        self._node = node
        self._limits = limits

    def _job(self, request: compile_pb2.CompileRequest, context: Any) -> CompileJob:
        check_digest_function(request.digest_function)
        check_count(len(request.sources), "sources", self._limits)
        tokenizers = check_digests(request.tokenizers, "tokenizers", self._limits)
        wanted, own = request.format_version, self._node.info.format_version
        if wanted not in (0, own):
            raise InvalidRequest(f"this node writes format version {own}, not {wanted}", field="format_version")
        sources = []
        for number, source in enumerate(request.sources):
            place = f"sources[{number}]"
            if source.key and len(source.key) != DIGEST_BYTES:
                raise InvalidRequest(f"{place} has a key of {len(source.key)} bytes, not 32", field=f"{place}.key")
            if source.kind not in self._node.info.source_kinds:
                kinds = ", ".join(self._node.info.source_kinds)
                raise InvalidRequest(
                    f"{place} is of the kind {source.kind[:64]!r}; this node compiles {kinds}", field=f"{place}.kind"
                )
            if len(source.options) > LONGEST_OPTIONS or len(source.text) > self._limits.source_bytes:
                most = self._limits.source_bytes
                raise InvalidRequest(
                    f"{place} has {len(source.text)} bytes and at most {most} travel: compile it locally",
                    field=f"{place}.text",
                )
            sources.append(SourceItem(source.key, source.kind, source.options, source.text))
        left = context.time_remaining()
        longest = self._limits.longest_call_s
        return CompileJob(sources, tokenizers, longest if left is None else min(left, longest), request.local_only)

    async def Compile(  # noqa: N802
        self, request: compile_pb2.CompileRequest, context: Any
    ) -> compile_pb2.CompileResponse:
        """See the protocol."""
        job = self._job(request, context)
        outcomes: dict[int, Outcome] = {}
        async with aclosing(self._node.compile(job)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    outcomes[event.index] = event.outcome
                    if len(outcomes) == len(job.sources):
                        break  # mask entries follow, and nobody waits for them here
        response, room = compile_pb2.CompileResponse(), ROOM_BYTES
        for index, source in enumerate(job.sources):
            outcome = outcomes.get(index) or _forgotten(source.key)
            room -= self._write(response.results.add(), index, outcome, room)
        return response

    async def CompileStream(  # noqa: N802
        self, request: compile_pb2.CompileStreamRequest, context: Any
    ) -> AsyncIterator[compile_pb2.CompileStreamResponse]:
        """See the protocol."""
        job = self._job(request.request, context)
        open_sources = set(range(len(job.sources)))
        async with aclosing(self._node.compile(job)) as events:
            async for event in events:
                if isinstance(event, Progress):
                    yield compile_pb2.CompileStreamResponse(
                        progress=compile_pb2.CompileProgress(
                            stage=compile_pb2.CompileProgress.Stage.ValueType(event.stage.value),
                            sources_done=event.done,
                            sources_total=event.total,
                            sources_known=event.known,
                            units_built=event.units_built,
                        )
                    )
                elif event.index in open_sources:
                    open_sources.discard(event.index)
                    yield self._message(event.index, event.outcome)
        for index in sorted(open_sources):
            yield self._message(index, _forgotten(job.sources[index].key))

    def _message(self, index: int, outcome: Outcome) -> compile_pb2.CompileStreamResponse:
        response = compile_pb2.CompileStreamResponse()
        self._write(response.result, index, outcome, ROOM_BYTES)
        return response

    def _write(self, result: compile_pb2.CompileResult, index: int, outcome: Outcome, room: int) -> int:
        """Write a result in place, without a manifest for which `room` bytes are too few. Returns its size."""
        result.key, result.index = outcome.key, index
        result.status.CopyFrom(outcome_status(outcome))
        if outcome.manifest is not None and len(outcome.manifest) + HEADER_ROOM <= room:
            key = Key(Kind.MANIFEST, outcome.key, version=self._node.info.format_version)
            write_single(result.manifest, Record(key, outcome.manifest), zstd=False)
        return int(result.ByteSize())


def _forgotten(key: bytes) -> Outcome:
    return Outcome(key, error={"type": "WireError", "message": "the node gave no answer for it"}, retryable=True)


class TokenizerService(tokenizer_pb2_grpc.TokenizerServiceServicer):
    """Takes tokenizers in."""

    def __init__(self, node: Node, limits: WireLimits, threads: Executor) -> None:
        self._node = node
        self._limits = limits
        self._threads = threads

    async def RegisterTokenizer(  # noqa: N802
        self, requests: AsyncIterator[tokenizer_pb2.RegisterTokenizerRequest], context: Any
    ) -> tokenizer_pb2.RegisterTokenizerResponse:
        """See the protocol."""
        header: tokenizer_pb2.TokenizerHeader | None = None
        form = TokenizerFormat.PREPARED
        data = bytearray()
        async for request in requests:
            part = request.WhichOneof("part")
            if header is None:
                if part != "header":
                    raise InvalidRequest("the first message has no header", field="header")
                header = request.header
                form = self._checked(header)
                if self._node.has_tokenizer(header.fingerprint):
                    return tokenizer_pb2.RegisterTokenizerResponse(fingerprint=header.fingerprint, present=True)
                continue
            if part != "data" or not request.data or len(request.data) > CHUNK_BYTES:
                raise InvalidRequest(f"every further message has 1 to {CHUNK_BYTES} bytes of data", field="data")
            if len(data) + len(request.data) > header.size_bytes:
                raise CorruptData(f"more than the {header.size_bytes} bytes announced arrived", reason="size")
            data += request.data
        if header is None:
            raise InvalidRequest("no message came", field="header")
        if len(data) != header.size_bytes:
            raise CorruptData(f"{len(data)} of {header.size_bytes} bytes arrived", reason="size")
        content = bytes(data)
        loop = asyncio.get_running_loop()
        digest = await loop.run_in_executor(self._threads, lambda: blake3(content).digest())
        if digest != header.hash:
            raise CorruptData("the content does not have the hash announced", reason="hash")
        await self._node.register_tokenizer(header.fingerprint, form, content)
        return tokenizer_pb2.RegisterTokenizerResponse(fingerprint=header.fingerprint)

    def _checked(self, header: tokenizer_pb2.TokenizerHeader) -> TokenizerFormat:
        check_digests([header.fingerprint], "header.fingerprint", self._limits)
        check_digests([header.hash], "header.hash", self._limits)
        if header.size_bytes > self._limits.tokenizer_bytes:
            raise InvalidRequest(
                f"a tokenizer of {header.size_bytes} bytes; at most {self._limits.tokenizer_bytes} are taken",
                field="header.size_bytes",
            )
        try:
            return TokenizerFormat(header.format)
        except ValueError:
            raise InvalidRequest(f"the format {header.format} is not known", field="header.format") from None


class PlacementService(placement_pb2_grpc.PlacementServiceServicer):
    """Passes claims on to the node, which owns what is claimed."""

    def __init__(self, node: Node, limits: WireLimits) -> None:
        self._node = node
        self._limits = limits

    def _asked(self, request: Any) -> tuple[list[bytes], str]:
        digests = check_digests(request.digests, "digests", self._limits)
        if not 0 < len(request.holder.encode()) <= LONGEST_NAME:
            raise InvalidRequest(f"a holder's name has 1 to {LONGEST_NAME} bytes", field="holder")
        return digests, request.holder

    async def Claim(self, request: placement_pb2.ClaimRequest, context: Any) -> placement_pb2.ClaimResponse:  # noqa: N802
        """See the protocol."""
        digests, holder = self._asked(request)
        lease_s = _seconds(request.lease, "lease")
        if not 0 < lease_s <= LONGEST_LEASE_S:
            raise InvalidRequest(f"a lease lasts up to {LONGEST_LEASE_S:g} s, not {lease_s:g}", field="lease")
        claims = await self._node.claim(digests, holder=holder, lease_s=lease_s)
        return placement_pb2.ClaimResponse(claims=[_claim(claim) for claim in claims])

    async def Release(self, request: placement_pb2.ReleaseRequest, context: Any) -> placement_pb2.ReleaseResponse:  # noqa: N802
        """See the protocol."""
        digests, holder = self._asked(request)
        await self._node.release(digests, holder=holder)
        return placement_pb2.ReleaseResponse()

    async def Complete(  # noqa: N802
        self, request: placement_pb2.CompleteRequest, context: Any
    ) -> placement_pb2.CompleteResponse:
        """See the protocol."""
        digests, holder = self._asked(request)
        await self._node.complete(digests, holder=holder)
        return placement_pb2.CompleteResponse()

    async def Wait(self, request: placement_pb2.WaitRequest, context: Any) -> placement_pb2.WaitResponse:  # noqa: N802
        """See the protocol."""
        digests = check_digests(request.digests, "digests", self._limits)
        timeout_s = max(0.0, min(_seconds(request.timeout, "timeout"), self._limits.longest_call_s))
        left = context.time_remaining()
        if left is not None:
            timeout_s = min(timeout_s, max(0.0, left * 0.9))  # so that the answer still arrives in time
        claims = await self._node.wait(digests, timeout_s=timeout_s)
        return placement_pb2.WaitResponse(claims=[_claim(claim) for claim in claims])


def _seconds(duration: Duration, place: str) -> float:
    try:
        return duration.ToNanoseconds() / 1e9
    except ValueError:
        raise InvalidRequest(f"{place} is no duration", field=place) from None


def duration(seconds: float) -> Duration:
    """A duration of so many seconds."""
    out = Duration()
    out.FromNanoseconds(round(max(0.0, min(seconds, 1e9)) * 1e9))
    return out


_STATES = {
    ClaimState.GRANTED: placement_pb2.ClaimResult.STATE_GRANTED,
    ClaimState.HELD: placement_pb2.ClaimResult.STATE_HELD,
    ClaimState.DONE: placement_pb2.ClaimResult.STATE_DONE,
}


def _claim(claim: Claim) -> placement_pb2.ClaimResult:
    return placement_pb2.ClaimResult(
        state=_STATES[claim.state], holder=claim.holder, remaining=duration(claim.remaining_s)
    )


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """Tells what the node is and how it fares."""

    def __init__(self, node: Node, limits: WireLimits, *, mac_required: bool) -> None:
        self._node = node
        self._limits = limits
        self._mac_required = mac_required

    async def GetCapabilities(  # noqa: N802
        self, request: node_pb2.GetCapabilitiesRequest, context: Any
    ) -> node_pb2.GetCapabilitiesResponse:
        """See the protocol."""
        info, limits = self._node.info, self._limits
        return node_pb2.GetCapabilitiesResponse(
            capabilities=node_pb2.Capabilities(
                node=info.name,
                software_version=info.software_version,
                format_version=info.format_version,
                stored_format_versions=info.stored_versions,
                digest_functions=[BLAKE3],
                compressors=compressors(),
                source_kinds=info.source_kinds,
                max_message_bytes=MESSAGE_BYTES,
                max_payload_bytes=max(limits.payload_bytes(kind) for kind in Kind),
                max_items=limits.items,
                max_source_bytes=limits.source_bytes,
                max_tokenizer_bytes=limits.tokenizer_bytes,
                mac_required=self._mac_required,
            ),
            roles=sorted(role.value for role in CALLER.get().roles),
        )

    async def Stats(self, request: node_pb2.StatsRequest, context: Any) -> node_pb2.StatsResponse:  # noqa: N802
        """See the protocol."""
        stats = self._node.stats()
        response = node_pb2.StatsResponse(node=stats.node, uptime=duration(stats.uptime_s), values=dict(stats.values))
        for figures in stats.tokenizers[:100]:
            response.tokenizers.add(
                fingerprint=figures.fingerprint, entries=figures.entries, size_bytes=figures.size_bytes
            )
        for unit in stats.slowest[:20]:
            response.slowest.add(digest=unit.digest, name=unit.name, cost_ns=unit.cost_ns)
        return response
