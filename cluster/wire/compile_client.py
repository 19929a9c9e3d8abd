"""Having sources compiled by a peer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from gramary.cluster.peer import Outcome, SourceItem
from gramary.cluster.records import Key, Kind
from gramary.cluster.wire.calls import OK, paired
from gramary.cluster.wire.codec import BLAKE3, HEADER_ROOM, read_single
from gramary.cluster.wire.errors import CallFailed, CorruptAnswer, CorruptData, failed_outcome
from gramary.cluster.wire.limits import ROOM_BYTES
from gramary.cluster.wire.node import CompileEvent, Finished, Progress, Stage
from gramary.cluster.wire.pb import compile_pb2, compile_pb2_grpc
from gramary.cluster.wire.reading import Reading


class Compiling(Reading):
    """The calls of CompileService."""

    async def compile(self, sources: Sequence[SourceItem], *, deadline_s: float) -> list[Outcome]:
        """See `Peer.compile`: for nodes, who know that the peer owns these sources."""
        return await self.compile_sources(sources, tokenizers=(), deadline_s=deadline_s, local_only=True)

    async def compile_sources(
        self, sources: Sequence[SourceItem], *, tokenizers: Sequence[bytes], deadline_s: float, local_only: bool = False
    ) -> list[Outcome]:
        """Have sources compiled somewhere in the cluster; one outcome each, in order. The transport repeats nothing."""
        outcomes: list[Outcome] = []
        until = time.monotonic() + deadline_s
        for some in self._batches([source for source in sources if self._too_large(source) is None]):
            request = _compile_request(some, tokenizers, local_only)
            left = max(0.001, until - time.monotonic())
            response = await self._call(compile_pb2_grpc.CompileServiceStub, "Compile", request, timeout_s=left)
            with self._checked():
                batch = [self._outcome(item, result) for item, result in paired(some, response.results)]
            outcomes += await self._completed(batch, [result.status.code for result in response.results])
        answered = iter(outcomes)
        return [self._too_large(source) or next(answered) for source in sources]

    async def compile_events(
        self, sources: Sequence[SourceItem], *, tokenizers: Sequence[bytes], deadline_s: float, local_only: bool = False
    ) -> AsyncGenerator[CompileEvent, None]:
        """The same with progress: every source gets one `Finished`, in any order. One request: keep it small."""
        places: list[int] = []
        for index, source in enumerate(sources):
            if (refused := self._too_large(source)) is not None:
                yield Finished(index, refused)
            else:
                places.append(index)
        sources = [sources[index] for index in places]
        batches = list(self._batches(sources))
        if len(batches) > 1:
            raise CallFailed(self.name, f"{len(sources)} sources are too many or too large for one stream: split them")
        if not batches:
            return
        request = compile_pb2.CompileStreamRequest(request=_compile_request(sources, tokenizers, local_only))
        method = self._connection.stub(compile_pb2_grpc.CompileServiceStub).CompileStream
        waiting = set(range(len(sources)))
        stream = self._stream(method, request, silence_s=None, timeout_s=deadline_s)
        async with aclosing(stream) as responses:
            async for response in responses:
                if response.WhichOneof("event") == "progress":
                    progress = response.progress
                    try:
                        stage = Stage(progress.stage)
                    except ValueError:
                        continue  # a stage of a later version
                    yield Progress(
                        stage,
                        progress.sources_done,
                        progress.sources_total,
                        progress.sources_known,
                        progress.units_built,
                    )
                    continue
                result = response.result
                if result.index not in waiting:
                    raise CorruptAnswer(
                        self.name, f"it tells the outcome of source {result.index}, which it does not owe"
                    )
                waiting.discard(result.index)
                with self._checked():
                    outcome = self._outcome(sources[result.index], result)
                [outcome] = await self._completed([outcome], [result.status.code])
                yield Finished(places[result.index], outcome)
        if waiting:
            raise CorruptAnswer(self.name, f"it gave no outcome for {len(waiting)} of the sources")

    def _too_large(self, source: SourceItem) -> Outcome | None:
        """The outcome of a source that does not fit into a message."""
        most = self._limits.source_bytes
        if len(source.text) <= most:
            return None
        message = (
            f"the source has {len(source.text)} bytes, and at most {most} travel to another node: compile it locally"
        )
        error = {"type": "LimitExceeded", "message": message, "limit": "source_bytes", "value": str(most)}
        return Outcome(source.key, error=error)

    def _batches(self, sources: Sequence[SourceItem]) -> Iterator[Sequence[SourceItem]]:
        """As many sources at once as a message holds."""
        batch: list[SourceItem] = []
        size = 0
        for source in sources:
            more = len(source.text) + len(source.options) + HEADER_ROOM
            if batch and (size + more > ROOM_BYTES or len(batch) >= self._limits.items):
                yield batch
                batch, size = [], 0
            batch.append(source)
            size += more
        if batch:
            yield batch

    def _outcome(self, item: SourceItem, result: Any) -> Outcome:
        if result.status.code != OK:
            return failed_outcome(item.key or result.key, result.status)
        if item.key and result.key != item.key:
            raise CorruptData("an outcome belongs to another source")
        if not result.HasField("manifest"):
            return Outcome(result.key)
        record = read_single(result.manifest, self._limits)
        if record.key.kind is not Kind.MANIFEST or record.key.digest != result.key:
            raise CorruptData("an outcome's manifest belongs to another source")
        return Outcome(result.key, record.payload)

    async def _completed(self, outcomes: list[Outcome], codes: Sequence[int]) -> list[Outcome]:
        """Fetch the manifests that did not fit into the message."""
        lacking = [
            number for number, outcome in enumerate(outcomes) if codes[number] == OK and outcome.manifest is None
        ]
        if lacking:
            records = await self.read([Key(Kind.MANIFEST, outcomes[number].key) for number in lacking])
            for number, record in zip(lacking, records, strict=True):
                key = outcomes[number].key
                lost = {"type": "WireError", "message": f"node {self.name}: the manifest is gone again"}
                outcomes[number] = (
                    Outcome(key, record.payload) if record is not None else Outcome(key, error=lost, retryable=True)
                )
        return outcomes


def _compile_request(
    sources: Sequence[SourceItem], tokenizers: Sequence[bytes], local_only: bool
) -> compile_pb2.CompileRequest:
    items = [compile_pb2.Source(key=item.key, kind=item.kind, options=item.options, text=item.text) for item in sources]
    return compile_pb2.CompileRequest(
        sources=items, tokenizers=tokenizers, local_only=local_only, digest_function=BLAKE3
    )
