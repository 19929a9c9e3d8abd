"""`Client` and `AsyncClient`: a compiler whose sources come from the cluster where it has them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gramary.cluster.client.background import Background
from gramary.cluster.client.ladder import ClientStats, Count, Ladder, ignored
from gramary.cluster.client.node_store import NodeStore
from gramary.cluster.client.publisher import Publisher
from gramary.cluster.credentials import Credentials
from gramary.cluster.kernel import Source
from gramary.cluster.records import Key, Kind
from gramary.cluster.settings import Settings
from gramary.cluster.wire.client import GrpcPeer
from gramary.cluster.wire.configured import client_security, cluster_mac
from gramary.compiler import CompileError, Compiler, GramaryError, LimitExceeded, Tokenizer, ToolError, Vocabulary
from gramary.runtime import CompiledGrammar

WARM_SOURCES = 10_000
WARM_UNITS = 256
MOST_NEWS = 1 << 16
NEWS_WAIT_S, NEWS_TRIES = 0.05, 20
"""How long news is gathered, and how many times it waits so long for the requests under way."""


class Client:
    """Compiles like `gramary.compiler.Compiler`, and shares what is compiled with everybody. Thread-safe.

    `address`, `store`: the node's agent and the folder of its store; either may be left out, and neither has to be
    there now. `settings`: everything else (`gramary.cluster.config.load(role="client")`), and these two as well. Safe
    to make before a fork and to use after it. Use it as a context manager, or close it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | Vocabulary | Compiler,
        *,
        address: str | None = None,
        store: str | Path | None = None,
        settings: Settings | None = None,
        count: Count = ignored,
    ) -> None:
        if settings is None:
            from gramary.cluster.config import load

            settings = load(role="client")
        self.settings = settings
        address = address or settings.client.address
        if store is None and (settings.client.address is not None or "path" in settings.store.model_fields_set):
            store = settings.store.path
        self.compiler = (
            tokenizer
            if isinstance(tokenizer, Compiler)
            else Compiler(tokenizer, cache_bytes=int(settings.client.cache_bytes))
        )
        credentials = Credentials(settings)
        security = client_security(settings, credentials)
        targets = list(dict.fromkeys(([address] if address else []) + list(settings.client.others)))
        nodes = [
            GrpcPeer(target, security=security, timeout_s=settings.deadlines.connect_s + 8.0) for target in targets
        ]
        self._background = Background("gramary-client")
        self.ladder = Ladder(
            self.compiler.core,
            self.compiler.vocabulary,
            NodeStore(None if store is None else Path(store), settings.store.access),
            nodes,
            self._background,
            wait_s=settings.client.wait_s,
            hedge_s=settings.client.wait_s / 2,
            count=count,
        )
        self._publisher = Publisher(self.ladder, cluster_mac(credentials), count) if nodes else None
        if self._publisher is not None and settings.client.publish:
            self._publisher.start()
        self._watching: Any = None

    # Compiling.

    def ensure(self, sources: Sequence[Source], *, within_s: float | None = None) -> str:
        """Have these in memory, from wherever; returns the dearest tier that was needed ("process", "lmdb", "cluster"
        or "local": then they are compiled when they are used). Raises what the cluster tells of one that cannot be
        compiled.
        """
        left, tier = self.ladder.prepare(sources)
        self._raise_known(sources, left)
        if left and self.ladder.nodes:
            left, tier = self._background.start(self.ladder.ask(left, within_s=within_s)).result(), "cluster"
        return self._settle(sources, left) if left else tier

    def _raise_known(self, sources: Sequence[Source], left: Sequence[Source]) -> None:
        """Raise what the cluster told of a single source. Of several, only of one that exceeds the limits: the others
        fail here at once, and better described; a bomb is not set off again.
        """
        for source in left:
            error = self.ladder.errors.get(source.key)
            if error is not None and (len(sources) == 1 or isinstance(error, LimitExceeded)):
                raise error

    def _settle(self, sources: Sequence[Source], left: Sequence[Source]) -> str:
        """What is to be done about sources that nobody had."""
        self._raise_known(sources, left)
        self.ladder.compiled_here(left)
        if self._publisher is not None:
            self._publisher.compiled(left)
        return "local"

    def compile_json_schema(self, schema: Any, **options: Any) -> CompiledGrammar:
        """See `Compiler.compile_json_schema`."""
        self.ensure([self.source_of_schema(schema, **options)])
        return self.compiler.compile_json_schema(schema, **options)

    def compile_regex(self, pattern: str, **options: Any) -> CompiledGrammar:
        """See `Compiler.compile_regex`."""
        self.ensure([Source("regex", pattern)])
        return self.compiler.compile_regex(pattern, **options)

    def compile_tools(self, tools: Any, **options: Any) -> CompiledGrammar:
        """See `Compiler.compile_tools`. Tools that the cluster knows cost a look-up each."""
        text = self.compiler.core.tools_text(tools)
        known, missing = self.compiler.core.missing_of_tools(text, **_source_options(options))
        self.ladder.found(known - len(missing))
        wanted = self._without_errors(missing)
        with contextlib.suppress(CompileError):  # said below, with the tool's name, or by compiling it
            if wanted:
                self.ensure(wanted)
        self._raise_bomb(text, missing, options)
        return self.compiler.compile_tools(text, **options)

    def _without_errors(self, sources: Sequence[Source]) -> list[Source]:
        return [source for source in sources if self.ladder.errors.get(source.key) is None]

    def _raise_bomb(self, text: Any, sources: Sequence[Source], options: dict[str, Any]) -> None:
        """Where a bad tool is to raise, raise for one of which the cluster said that it exceeds the limits."""
        told = {source.key: self.ladder.errors.get(source.key) for source in sources}
        bombs = {key: error for key, error in told.items() if isinstance(error, LimitExceeded)}
        if not bombs or options.get("on_error", "raise") != "raise":
            return
        for index, tool in enumerate(json.loads(text)):
            for source in self.compiler.core.sources_of_tools([tool], **_source_options(options)):
                error = bombs.get(source.key)
                if error is not None:
                    function = tool.get("function")
                    name = str((function if isinstance(function, dict) else tool).get("name", ""))
                    message = f'tool {index} ("{name}"): {error.message}'
                    raise ToolError(message, pointer=f"/{index}", index=index, name=name, cause=error) from error

    def source_of_schema(self, schema: Any, **options: Any) -> Source:
        """The source that `compile_json_schema` compiles."""
        return Source("json_schema", schema, **_source_options(options))

    # What is likely to be asked for.

    def warm(self, most: int = WARM_SOURCES, *, progress: Callable[[int, int], None] | None = None) -> int:
        """Take over what the node's store has, before anybody asks: yesterday's tools are at hand after a restart.

        Returns how many sources. `progress`: told how many of how many are done.
        """
        keys = self.ladder.store.sources(most)
        done = 0
        for start in range(0, len(keys), WARM_UNITS):
            part = keys[start : start + WARM_UNITS]
            number, units = self.ladder.store.install_ahead(self.compiler.core, part)
            done += number
            self.ladder.offer_now(units)
            if progress is not None:
                progress(min(start + len(part), len(keys)), len(keys))
        return done

    def follow(self) -> None:
        """From now on take over, in the background, whatever the node's agent commits: sources, and mask entries, which
        follow behind the answers.
        """
        if self._watching is None and self.ladder.nodes:
            self._watching = self._background.start(self._follow())

    async def _follow(self) -> None:
        node = self.ladder.nodes[0]
        tokenizers = [self.ladder.vocabulary.fingerprint]
        news: dict[Key, None] = {}
        taking: asyncio.Task[None] | None = None
        while True:
            try:
                await self.ladder.introduce(node)  # before the first request, which would wait for it
                async for told in node.peer.watch(kinds=[Kind.MANIFEST, Kind.ENTRY], tokenizers=tokenizers):
                    news.update(dict.fromkeys(told.keys[: MOST_NEWS - len(news)]))
                    if news and (taking is None or taking.done()):
                        taking = asyncio.create_task(self._take_over(node.peer, news))
            except GramaryError:
                await asyncio.sleep(1.0)

    async def _take_over(self, peer: GrpcPeer, news: dict[Key, None]) -> None:
        """Take over what is told, gathered for a moment; a request of this worker goes before what others may ask of it
        one day.
        """
        ladder = self.ladder
        while news:
            for _ in range(NEWS_TRIES):
                await asyncio.sleep(NEWS_WAIT_S)
                if not ladder.asking:
                    break
            keys = list(news)
            news.clear()
            sources = [key for key in keys if key.kind is Kind.MANIFEST and key.digest not in ladder.asked]
            units = dict.fromkeys(key.digest for key in keys if key.kind is Kind.ENTRY)
            if sources:
                number, fresh = await asyncio.to_thread(ladder.store.install_ahead, self.compiler.core, sources)
                ladder.stats.watched += number
                units.update(dict.fromkeys(fresh))
            if units and ladder.store.reader is not None:
                ladder.offer_later(list(units))
            elif units:
                await ladder.stream(peer, list(units))

    # Life.

    @property
    def stats(self) -> ClientStats:
        """Counters."""
        return self.ladder.stats

    def flush(self, timeout_s: float = 10.0) -> None:
        """Wait until what was built here has been published."""
        if self._publisher is not None:
            self._publisher.flush(timeout_s)

    def close(self) -> None:
        """Publish what is left, and let go of store and connections. Grammars stay usable."""
        if self._watching is not None:
            self._watching.cancel()
        if self._publisher is not None:
            self._publisher.close()
        for node in self.ladder.nodes:
            try:
                self._background.start(node.peer.close()).result(2.0)
            except Exception:  # a connection that cannot be closed is gone with the loop
                continue
        self._background.close()
        self.ladder.store.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """The same for asyncio: waits for the cluster without a thread, and compiles on one."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ensure(self, sources: Sequence[Source], *, within_s: float | None = None) -> str:
        """See `Client.ensure`."""
        client = self.client
        left, tier = client.ladder.prepare(sources)
        client._raise_known(sources, left)
        if left and client.ladder.nodes:
            asked = client._background.start(client.ladder.ask(left, within_s=within_s))
            left, tier = await asyncio.wrap_future(asked), "cluster"
        return client._settle(sources, left) if left else tier

    async def compile_json_schema(self, schema: Any, **options: Any) -> CompiledGrammar:
        """See `Client.compile_json_schema`."""
        await self.ensure([self.client.source_of_schema(schema, **options)])
        return await asyncio.to_thread(self.client.compiler.compile_json_schema, schema, **options)

    async def compile_regex(self, pattern: str, **options: Any) -> CompiledGrammar:
        """See `Client.compile_regex`."""
        await self.ensure([Source("regex", pattern)])
        return await asyncio.to_thread(self.client.compiler.compile_regex, pattern, **options)

    async def compile_tools(self, tools: Any, **options: Any) -> CompiledGrammar:
        """See `Client.compile_tools`."""
        core = self.client.compiler.core
        text = core.tools_text(tools)
        known, missing = core.missing_of_tools(text, **_source_options(options))
        self.client.ladder.found(known - len(missing))
        wanted = self.client._without_errors(missing)
        with contextlib.suppress(CompileError):  # said below, with the tool's name, or by compiling it
            if wanted:
                await self.ensure(wanted)
        self.client._raise_bomb(text, missing, options)
        return await asyncio.to_thread(self.client.compiler.compile_tools, text, **options)

    async def close(self) -> None:
        """See `Client.close`."""
        await asyncio.to_thread(self.client.close)


NOT_OF_SOURCES = frozenset(
    ("limits", "begin", "end", "trigger", "stops", "excludes", "min_calls", "max_calls", "stop_after_last", "on_error")
)


def _source_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those options that make a source another one."""
    return {name: value for name, value in options.items() if name not in NOT_OF_SOURCES}
