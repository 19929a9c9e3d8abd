"""CacheService: a node's store, over the wire.

Streams of chunks are given to gRPC as bytes (`codec.messages`), everything else as messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from itertools import chain, islice
from typing import Any, TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from gramary.cluster.records import Key, Record, shard_prefix
from gramary.cluster.wire.codec import (
    HEADER_ROOM,
    Assembler,
    accepts_zstd,
    check_count,
    check_digest_function,
    check_digests,
    decode_keys,
    kind_of,
    messages,
    write_single,
)
from gramary.cluster.wire.errors import OK, InvalidRequest, code_of, make_status, status_of
from gramary.cluster.wire.limits import ROOM_BYTES, WireLimits
from gramary.cluster.wire.node import Node
from gramary.cluster.wire.pb import cache_pb2 as pb
from gramary.cluster.wire.pb import cache_pb2_grpc
from gramary.cluster.wire.security import CALLER
from gramary.cluster.wire.verifier import Verifier
from gramary.compiler.errors import GramaryError

T = TypeVar("T")

INLINE_ITEMS = 64
"""Requests with no more keys than this are answered on the event loop: a thread would cost more than the store."""
COMMIT_BYTES = 4 << 20
COMMIT_RECORDS = 1024
PAGE_BYTES = 1 << 20
"""What is read from the store in one go for a stream."""
MESSAGES_AHEAD = 4
MOST_REJECTIONS = 1000
HEARTBEAT_S = 30.0

_READ_CHUNKS = pb.ReadResponse.CHUNKS_FIELD_NUMBER
_SHARD_CHUNKS = pb.GetShardsResponse.CHUNKS_FIELD_NUMBER
NOT_FOUND = make_status(grpc.StatusCode.NOT_FOUND, "")
DEFERRED = make_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "")


class CacheService(cache_pb2_grpc.CacheServiceServicer):
    """Serves `Node`'s store. `threads`: where what is big is done."""

    def __init__(self, node: Node, verifier: Verifier, limits: WireLimits, threads: Executor) -> None:
        self._node = node
        self._verifier = verifier
        self._limits = limits
        self._threads = threads

    async def _run(self, work: Callable[[], T], items: int = INLINE_ITEMS + 1) -> T:
        if items <= INLINE_ITEMS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:  # noqa: N802
        """See the protocol."""
        check_digest_function(request.digest_function)
        sources = check_digests(request.source_keys, "source_keys", self._limits)
        version = request.format_version or self._node.info.format_version
        zstd = accepts_zstd(request.accept)

        def work() -> pb.LookupResponse:
            response, room = pb.LookupResponse(), ROOM_BYTES
            for record in self._node.lookup(sources, version=version):
                room = _add(response.results, "manifest", record, room, zstd)
            return response

        return await self._run(work, len(sources))

    async def FindMissing(self, request: pb.FindMissingRequest, context: Any) -> pb.FindMissingResponse:  # noqa: N802
        """See the protocol."""
        check_count(len(request.keys), "keys", self._limits)

        def work() -> pb.FindMissingResponse:
            keys = decode_keys(request.keys, "keys", self._limits)
            return pb.FindMissingResponse(missing=[key.encode() for key in self._node.find_missing(keys)])

        return await self._run(work, len(request.keys))

    async def BatchRead(self, request: pb.BatchReadRequest, context: Any) -> pb.BatchReadResponse:  # noqa: N802
        """See the protocol."""
        check_digest_function(request.digest_function)
        keys = decode_keys(request.keys, "keys", self._limits)
        zstd = accepts_zstd(request.accept)

        def work() -> pb.BatchReadResponse:
            response, room, start, some = pb.BatchReadResponse(), ROOM_BYTES, 0, 4
            while start < len(keys) and room > HEADER_ROOM:
                records = self._node.read(keys[start : start + some])
                start += some
                for record in records:
                    room = _add(response.results, "record", record, room, zstd)
                # About as many of that size as still have a place: what has none need not be read.
                size = sum(len(record.payload) for record in records if record is not None)
                some = max(1, min(INLINE_ITEMS, room * some // (size + some * HEADER_ROOM)))
            rest = keys[start:]
            missing = set(self._node.find_missing(rest)) if rest else set()
            for key in rest:
                response.results.add().status.CopyFrom(NOT_FOUND if key in missing else DEFERRED)
            return response

        return await self._run(work, len(keys) + 16)

    async def Read(self, request: pb.ReadRequest, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """See the protocol."""
        check_digest_function(request.digest_function)
        keys = decode_keys(request.keys, "keys", self._limits)
        zstd = accepts_zstd(request.accept)

        def produce() -> Iterator[bytes]:
            offset = request.offset
            for key in keys:
                [record] = self._node.read([key])
                if record is None:
                    continue
                if offset > len(record.payload):
                    raise InvalidRequest(
                        f"the offset {offset} is above the value's size, {len(record.payload)}", field="offset"
                    )
                yield from messages([record], field=_READ_CHUNKS, zstd=zstd, offset=offset)
                offset = 0

        async with aclosing(self._ahead(produce())) as responses:
            async for response in responses:
                yield response

    async def GetShards(self, request: pb.GetShardsRequest, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """See the protocol."""
        check_digest_function(request.digest_function)
        [tokenizer] = check_digests([request.tokenizer], "tokenizer", self._limits)
        units = check_digests(request.units, "units", self._limits)
        version = request.format_version or self._node.info.format_version
        zstd = accepts_zstd(request.accept)
        if request.after:
            units = _rest(units, request.after, tokenizer, version)

        def records() -> Iterator[Record]:
            after = request.after
            for unit in units:
                while page := self._node.shard_page(
                    tokenizer, unit, version=version, after=after, most_bytes=PAGE_BYTES
                ):
                    yield from page
                    after = page[-1].key.encode()
                after = b""

        def produce() -> Iterator[bytes]:
            rest = records()
            first = next(rest, None)
            if first is not None:
                offset = request.offset if request.offset <= len(first.payload) else 0
                yield from messages(chain((first,), rest), field=_SHARD_CHUNKS, zstd=zstd, offset=offset)

        async with aclosing(self._ahead(produce())) as responses:
            async for response in responses:
                yield response

    async def _ahead(self, produce: Iterator[T]) -> AsyncGenerator[T, None]:
        """What a generator gives, made in a thread while what it gave before is sent: a few messages ahead, no more."""

        def some() -> list[T]:
            return list(islice(produce, MESSAGES_AHEAD))

        loop = asyncio.get_running_loop()
        making = loop.run_in_executor(self._threads, some)
        try:
            while batch := await asyncio.shield(making):
                making = loop.run_in_executor(self._threads, some)
                for item in batch:
                    yield item
        finally:  # nobody waits for what is being made now
            making.add_done_callback(lambda made: made.cancelled() or made.exception())

    async def PutShards(  # noqa: N802
        self, requests: AsyncIterator[pb.PutShardsRequest], context: Any
    ) -> pb.PutShardsResponse:
        """See the protocol."""
        intake = _Intake(self._node, self._verifier, self._limits, CALLER.get().origin)
        first = True
        async for request in requests:
            if first:
                check_digest_function(request.digest_function)
                first = False
            await self._run(lambda request=request: intake.feed(request.chunks))  # type: ignore[misc]
        await self._run(intake.finish)
        response = pb.PutShardsResponse(stored=intake.stored, rejected_total=intake.rejected)
        response.rejected.extend(intake.rejections)
        return response

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        """See the protocol."""
        kinds = [kind_of(kind, "kinds") for kind in request.kinds if kind]
        tokenizers = check_digests(request.tokenizers, "tokenizers", self._limits)
        watcher = self._node.feed.watch(kinds, tokenizers)
        try:
            yield pb.WatchResponse(time=_now())
            while True:
                news = await watcher.next(HEARTBEAT_S)
                yield pb.WatchResponse(keys=[key.encode() for key in news.keys], lost=news.lost, time=_now())
        finally:
            watcher.close()


def _now() -> Timestamp:
    now = Timestamp()
    now.FromNanoseconds(time.time_ns())
    return now


def _add(results: Any, name: str, record: Record | None, room: int, zstd: bool) -> int:
    """Add one result; returns how much room is left in the message."""
    result = results.add()
    if record is None:
        result.status.CopyFrom(NOT_FOUND)
        return room
    fits = len(record.payload) + HEADER_ROOM <= room
    if not fits or not write_single(chunk := getattr(result, name), record, zstd=zstd):
        result.status.CopyFrom(DEFERRED)
        return room
    result.status.CopyFrom(OK)
    return room - len(chunk.data) - HEADER_ROOM


def _rest(units: list[bytes], after: bytes, tokenizer: bytes, version: int) -> list[bytes]:
    """The units that a resumed stream still has to send, the one of `after` first."""
    for number, unit in enumerate(units):
        if after.startswith(shard_prefix(tokenizer, unit, version)):
            return units[number:]
    raise InvalidRequest("after is no key of an entry of these units", field="after")


class _Intake:
    """What one PutShards stream brought so far. Not thread-safe; its methods take their time."""

    def __init__(self, node: Node, verifier: Verifier, limits: WireLimits, origin: str) -> None:
        self._node = node
        self._verifier = verifier
        self._limits = limits
        self._origin = origin
        self._assembler = Assembler(limits)
        self._records: list[Record] = []
        self._bytes = 0
        self._seen = 0
        self.stored = 0
        self.rejected = 0
        self.rejections: list[pb.PutShardsRejection] = []

    def feed(self, pieces: Sequence[Any]) -> None:
        """Take chunks; commits what is ready."""
        for piece in pieces:
            record = self._assembler.feed(piece)
            if record is None:
                continue
            self._seen += 1
            if self._seen > self._limits.records_per_put:
                raise InvalidRequest(
                    f"one stream brings at most {self._limits.records_per_put} records", field="chunks"
                )
            self._records.append(record)
            self._bytes += len(record.payload)
            if self._bytes >= COMMIT_BYTES or len(self._records) >= COMMIT_RECORDS:
                self._commit()

    def finish(self) -> None:
        """The stream ended well."""
        self._assembler.finish()
        self._commit()

    def _commit(self) -> None:
        records, self._records, self._bytes = self._records, [], 0
        if not records:
            return
        good, refusals = self._verifier.check(records, origin=self._origin)
        for refusal in refusals:
            self._reject(refusal.key, make_status(refusal.code, refusal.reason))
        if not good:
            return
        try:
            self._node.put(good, origin=self._origin)
        except GramaryError as error:
            if code_of(error) is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            for record in good:
                self._reject(record.key, status_of(error))
        else:
            self.stored += len(good)

    def _reject(self, key: Key, status: Any) -> None:
        self.rejected += 1
        if len(self.rejections) < MOST_REJECTIONS:
            self.rejections.append(pb.PutShardsRejection(key=key.encode(), status=status))
