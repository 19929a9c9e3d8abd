"""Reading what a peer has: values, shards, manifests, news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gramary.cluster.peer import PeerError
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.wire.calls import FULL, OK, Calls, paired, slices
from gramary.cluster.wire.codec import BLAKE3, Assembler, Partial, held_bytes, read_single
from gramary.cluster.wire.errors import CallFailed, CorruptAnswer, CorruptData
from gramary.cluster.wire.pb import cache_pb2, cache_pb2_grpc, values_pb2
from gramary.runtime._core import FORMAT_VERSION

MOST_RESUMES = 5
"""Times that a broken stream is resumed without having brought anything in between."""
MOST_NEWS = 8192


@dataclass(frozen=True, slots=True)
class Watched:
    """News of a peer: keys it committed, and how many more were lost before them."""

    keys: Sequence[Key]
    lost: int


class _Walk:
    """How far a stream of shards has come."""

    def __init__(self, tokenizer: bytes, units: Sequence[bytes], after: bytes) -> None:
        self._tokenizer = tokenizer
        self._units = units
        self._place = {unit: number for number, unit in enumerate(units)}
        self._at = 0
        self.after = after
        self.count = 0

    def rest(self, partial: Partial | None) -> Sequence[bytes]:
        """The units to ask for: from that of `after` on, or from that of the entry that is there in part."""
        if partial is not None and not self.after:
            return self._units[self._place[partial.key.digest] :]
        return self._units[self._at :]

    def expects(self, key: Key) -> bool:
        """Whether an entry may come now."""
        if key.kind is not Kind.ENTRY or key.tokenizer != self._tokenizer or key.version != FORMAT_VERSION:
            return False
        place = self._place.get(key.digest, -1)
        return place > self._at or (place == self._at and key.encode() > self.after)

    def reach(self, key: Key) -> None:
        """An entry came whole."""
        self._at = self._place[key.digest]
        self.after = key.encode()
        self.count += 1


class Reading(Calls):
    """The reading calls of CacheService."""

    async def find_missing(self, keys: Sequence[Key]) -> list[Key]:
        """See `Peer.find_missing`."""
        missing: set[bytes] = set()
        encoded = [key.encode() for key in keys]
        for some in slices(encoded, self._limits.items):
            response = await self._call(
                cache_pb2_grpc.CacheServiceStub, "FindMissing", cache_pb2.FindMissingRequest(keys=some)
            )
            missing.update(response.missing)
        return [key for key, name in zip(keys, encoded, strict=True) if name in missing]

    async def read(self, keys: Sequence[Key]) -> list[Record | None]:
        """See `Peer.read`. What does not fit into a message is streamed."""
        found: dict[Key, Record] = {}
        wanted = list(dict.fromkeys(keys))
        deferred: list[Key] = []
        for some in slices(wanted, self._limits.items):
            request = cache_pb2.BatchReadRequest(
                keys=[key.encode() for key in some], digest_function=BLAKE3, accept=self._accept
            )
            response = await self._call(cache_pb2_grpc.CacheServiceStub, "BatchRead", request)
            with self._checked():
                for key, result in paired(some, response.results):
                    if result.status.code == OK:
                        found[key] = read_single(result.record, self._limits, wanted=key)
                    elif result.status.code == FULL:
                        deferred.append(key)
        async for record in self._read_stream(deferred):
            found[record.key] = record
        return [found.get(key) for key in keys]

    async def _read_stream(self, keys: Sequence[Key]) -> AsyncGenerator[Record, None]:
        """Values of any size, in order; those that the peer lacks are left out. Resumes when the stream breaks."""
        for some in slices(keys, self._limits.items):
            rest = list(some)

            def request(partial: Partial | None, rest: list[Key] = rest) -> tuple[str, Any]:
                if partial is not None:
                    del rest[: rest.index(partial.key)]
                return "Read", cache_pb2.ReadRequest(
                    keys=[key.encode() for key in rest],
                    offset=held_bytes(partial),
                    digest_function=BLAKE3,
                    accept=self._accept,
                )

            async with aclosing(self._resumed(request, rest.__contains__)) as records:
                async for record in records:
                    del rest[: rest.index(record.key) + 1]
                    yield record
                    if not rest:
                        break

    async def shards(
        self, tokenizer: bytes, units: Sequence[bytes], *, after: bytes = b""
    ) -> AsyncGenerator[Record, None]:
        """See `Peer.shards`. A stream that breaks is resumed, within a payload too."""
        units = list(dict.fromkeys(units))
        if after:
            units = units[units.index(Key.decode(after).digest) :]
        for some in slices(units, self._limits.items):
            walk = _Walk(tokenizer, some, after)
            after = b""

            def request(partial: Partial | None, walk: _Walk = walk) -> tuple[str, Any]:
                return "GetShards", cache_pb2.GetShardsRequest(
                    tokenizer=tokenizer,
                    units=walk.rest(partial),
                    format_version=FORMAT_VERSION,
                    after=walk.after,
                    offset=held_bytes(partial),
                    digest_function=BLAKE3,
                    accept=self._accept,
                )

            async with aclosing(self._resumed(request, walk.expects)) as records:
                async for record in records:
                    walk.reach(record.key)
                    if walk.count > self._limits.records_per_put:
                        raise CorruptAnswer(self.name, f"a stream of more than {walk.count - 1} entries")
                    yield record

    async def _resumed(
        self, request: Callable[[Partial | None], tuple[str, Any]], expects: Callable[[Key], bool]
    ) -> AsyncGenerator[Record, None]:
        """Records of a stream of chunks, whatever breaks it.

        `request`: method and message for what is still missing, the first of it in part. `expects`: whether a key may
        come next.
        """
        held: Partial | None = None
        failures = 0
        while True:
            method, message = request(held)
            assembler = Assembler(self._limits, resume=held)
            size, brought, begun = held_bytes(held), False, False
            try:
                call = getattr(self._connection.stub(cache_pb2_grpc.CacheServiceStub), method)
                async with aclosing(self._stream(call, message)) as responses:
                    async for response in responses:
                        if not response.chunks:
                            raise CorruptAnswer(self.name, "it sent an empty message")
                        for chunk in response.chunks:
                            record = self._fed(assembler, chunk, expects)
                            begun = True
                            if record is not None:
                                brought = True
                                yield record
                with self._checked():
                    assembler.finish()
                return
            except CallFailed as error:
                if not error.retryable:
                    raise
                failure: PeerError = error
            except CorruptAnswer as error:
                cause = error.__cause__
                if not (isinstance(cause, CorruptData) and cause.reason == "resume"):
                    raise
                failure, begun = error, True  # what was begun is not there any more: begin again
            held = assembler.partial if begun else held
            failures = 0 if brought or held_bytes(held) > size else failures + 1
            if failures > MOST_RESUMES:
                raise failure
            await asyncio.sleep(min(1.0, 0.05 * 2**failures))

    def _fed(self, assembler: Assembler, chunk: Any, expects: Callable[[Key], bool]) -> Record | None:
        """Feed a chunk to the assembler; what was not asked for is refused before it is held."""
        with self._checked():
            record = assembler.feed(chunk)
        partial = assembler.partial
        key = record.key if record is not None else partial.key if partial is not None else None
        if key is None or not expects(key):
            raise CorruptAnswer(self.name, "it sent a value that was not asked for, or out of order")
        return record

    async def lookup(self, sources: Sequence[bytes], *, version: int = FORMAT_VERSION) -> list[Record | None]:
        """Manifests of source keys, in order, of which the peer has every unit."""
        found: dict[bytes, Record] = {}
        for some in slices(list(dict.fromkeys(sources)), self._limits.items):
            rest = list(some)
            while rest:
                request = cache_pb2.LookupRequest(
                    source_keys=rest, format_version=version, digest_function=BLAKE3, accept=self._accept
                )
                response = await self._call(cache_pb2_grpc.CacheServiceStub, "Lookup", request)
                full: list[bytes] = []
                with self._checked():
                    for source, result in paired(rest, response.results):
                        if result.status.code == OK:
                            key = Key(Kind.MANIFEST, source, version=version)
                            found[source] = read_single(result.manifest, self._limits, wanted=key)
                        elif result.status.code == FULL:
                            full.append(source)
                if len(full) == len(rest):  # too large for a message: stream them
                    async for record in self._read_stream(
                        [Key(Kind.MANIFEST, source, version=version) for source in full]
                    ):
                        found[record.key.digest] = record
                    full = []
                rest = full
        return [found.get(source) for source in sources]

    async def watch(
        self, kinds: Iterable[Kind] = (), tokenizers: Iterable[bytes] = ()
    ) -> AsyncGenerator[Watched, None]:
        """What the peer commits from now on; the first item comes at once. Ends in a `CallFailed`."""
        request = cache_pb2.WatchRequest(
            kinds=[values_pb2.ValueKind.ValueType(kind.value) for kind in kinds], tokenizers=list(tokenizers)
        )
        method = self._connection.stub(cache_pb2_grpc.CacheServiceStub).Watch
        async with aclosing(self._stream(method, request, silence_s=max(self._timeout_s, 90.0))) as responses:
            async for response in responses:
                if len(response.keys) > MOST_NEWS:
                    raise CorruptAnswer(self.name, "it tells too much news at once")
                try:
                    keys = [Key.decode(data) for data in response.keys]
                except ValueError as error:
                    raise CorruptAnswer(self.name, f"it tells of what is no key: {error}") from None
                yield Watched(keys, response.lost)
