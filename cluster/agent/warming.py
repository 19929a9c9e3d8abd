"""Compiling a catalogue ahead of time."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gramary.cluster.credentials import Credentials
from gramary.cluster.kernel import Source
from gramary.cluster.peer import PeerError, SourceItem
from gramary.cluster.settings import Settings
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.configured import client_security
from gramary.cluster.wire.node import Finished
from gramary.compiler import Tokenizer

BATCH = 128
ATTEMPTS = 3
MOST_FAILURES_SHOWN = 20


@dataclass
class Report:
    """What became of a catalogue."""

    sources: int = 0
    compiled: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    """Source key -> why; the first ones."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    def show(self, console: Console) -> None:
        """For people."""
        console.print(
            f"{self.compiled:,} of {self.sources:,} sources are there, after {self.seconds:.1f} s", highlight=False
        )
        for key, why in self.failures.items():
            console.print(f"  {key[:12]}: {why}", soft_wrap=True, highlight=False, markup=False)


def read_sources(paths: Sequence[Path], options: Mapping[str, Any]) -> list[Source]:
    """The distinct sources of files of tools or schemas. Raises `ValueError` with file and line."""
    found: dict[bytes, Source] = {}
    for path in paths:
        for place, one in _values(path):
            if not isinstance(one, (dict, bool)):
                raise ValueError(f"{place}: neither a tool nor a schema")
            source = Source("json_schema", json.dumps(_schema(one)), **options)
            found[source.key] = source
    return list(found.values())


def _values(path: Path) -> list[tuple[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        text = file.read()
    if ".jsonl" not in path.suffixes:
        try:
            whole = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return [(f"{path}#/{i}", one) for i, one in enumerate(whole if isinstance(whole, list) else [whole])]
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                out.append((f"{path}:{number}", json.loads(line)))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
    return out


def _schema(one: Any) -> Any:
    """The schema of a tool's arguments (OpenAI's, Anthropic's and MCP's spelling), or the schema itself."""
    if isinstance(one, dict):
        function = one.get("function")
        tool = function if isinstance(function, dict) else one
        for name in ("parameters", "inputSchema", "input_schema"):
            if isinstance(tool.get("name"), str) and name in tool:
                return tool[name]
        if isinstance(function, dict):
            return {"type": "object"}
    return one


async def warm_catalogue(
    settings: Settings,
    sources: Sequence[Source],
    tokenizers: Sequence[str],
    addresses: Sequence[str],
    advance: Callable[[int], None],
) -> Report:
    """Have every source compiled, with the mask entries of each tokenizer; by nodes, or by an agent of our own."""
    began = time.monotonic()
    vocabularies = [(await asyncio.to_thread(Tokenizer.from_file, path)).vocabulary for path in tokenizers]
    report = Report(sources=len(sources))
    failures: dict[str, str] = {}
    async with _nodes(settings, addresses) as peers:
        for vocabulary in vocabularies:
            for peer in peers:
                await peer.register_tokenizer(vocabulary.fingerprint, vocabulary.to_bytes())
        jobs = [
            (vocabulary.fingerprint, sources[start : start + BATCH])
            for vocabulary in vocabularies
            for start in range(0, len(sources), BATCH)
        ]
        queue = iter(jobs)

        async def work(peer: GrpcPeer) -> None:
            for tokenizer, part in queue:
                await _batch(peer, tokenizer, part, failures, advance)

        # Two batches for each node: one is compiled while the other one's results travel.
        await asyncio.gather(*(work(peer) for peer in peers for _ in range(2)))
    report.failed = len(failures)
    report.compiled = report.sources - report.failed
    report.failures = dict(list(failures.items())[:MOST_FAILURES_SHOWN])
    report.seconds = time.monotonic() - began
    return report


async def _batch(
    peer: GrpcPeer, tokenizer: bytes, part: Sequence[Source], failures: dict[str, str], advance: Callable[[int], None]
) -> None:
    items = [SourceItem(source.key, source.kind, source.options, source.text) for source in part]
    told = 0
    for attempt in range(ATTEMPTS):
        left: list[SourceItem] = []
        try:
            async for event in peer.compile_events(items, tokenizers=[tokenizer], deadline_s=600.0):
                if not isinstance(event, Finished):
                    continue
                outcome = event.outcome
                if outcome.manifest is None and outcome.retryable and attempt + 1 < ATTEMPTS:
                    left.append(items[event.index])
                    continue
                told += 1
                advance(1)
                if outcome.manifest is None:
                    failures[outcome.key.hex()] = outcome.error.get("message", "no reason given")
        except PeerError as error:
            if not error.retryable or attempt + 1 == ATTEMPTS:
                raise
            advance(-told)
            told, left = 0, items
            await asyncio.sleep(1.0 + attempt)
        if not left:
            return
        items = left


@asynccontextmanager
async def _nodes(settings: Settings, addresses: Sequence[str]) -> AsyncIterator[list[GrpcPeer]]:
    security = client_security(settings, Credentials(settings))
    if addresses:
        peers = [GrpcPeer(address, security=security, timeout_s=30.0) for address in addresses]
        try:
            yield peers
        finally:
            await asyncio.gather(*(peer.close() for peer in peers))
        return
    import tempfile

    from gramary.cluster.agent.running import Agent

    with tempfile.TemporaryDirectory(prefix="gramary-") as folder:
        node = settings.node.model_copy(update={"listen": [f"unix:{folder}/agent.sock"]})
        metrics = settings.metrics.model_copy(update={"listen": ""})
        async with Agent(settings.model_copy(update={"node": node, "metrics": metrics})) as agent:
            peer = GrpcPeer(agent.address, security=security, timeout_s=30.0)
            yield [peer]
            await peer.close()
