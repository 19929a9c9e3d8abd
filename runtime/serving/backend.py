"""`ServingBackend` compiles requests' grammars beside an engine; a `RequestGrammar` is one request's in the engine.

The rules of the house, whatever the engine:

- The engine's threads never wait for a compile, with one exception that is bounded: the first mask of a request that
  was scheduled before its grammar was there waits up to `fill_wait_ms`.
- Nothing raises out of what the engine's threads call. What fails late leaves the row open, and every token is refused
  from then on, which ends that request and no other. No token that was sampled under an open row is accepted.
- A source that takes long goes to a thread of its own with a low priority, so that it delays no other request's
  compile; the limits end it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gramary.compiler.errors import CompileError, LimitExceeded
from gramary.runtime._core import CompiledGrammar, RequestState, specification_digest
from gramary.runtime.bitmask import Bitmask
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.exposition import serve_counts
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import Compiled, GrammarSource, Kind, Missing

if TYPE_CHECKING:
    from typing_extensions import Self

_events = Events(__name__)

_MIN_ROLLBACK_TOKENS = 256
_LOW_PRIORITY = 10
_GRAMMARS_BYTES = 1 << 30
_WEIGH_EVERY = 32

_Grammar = TypeVar("_Grammar", bound="RequestGrammar")


class ServingBackend:
    """Compiles in the background, remembers grammars, and makes `RequestGrammar`s. One for each engine process.

    `max_rollback_tokens`: how many tokens the engine may take back at once, its speculative tokens.
    """

    def __init__(
        self,
        source: GrammarSource,
        options: WorkerOptions | None = None,
        *,
        counts: WorkerCounts | None = None,
        max_rollback_tokens: int = 0,
    ) -> None:
        self.source = source
        self.options = options or WorkerOptions()
        self.counts = counts or WorkerCounts()
        self.counts.kernel = source.compiler.stats
        self.vocab_size = source.compiler.vocab_size
        self.max_rollback_tokens = max(_MIN_ROLLBACK_TOKENS, 2 * max_rollback_tokens)
        self._grammars = _GrammarCache(self.options.grammars)
        self._quick = ThreadPoolExecutor(self.options.threads, thread_name_prefix="gramary-compile")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="gramary-slow", initializer=_lower_priority)
        self._closed = False
        self._endpoint = serve_counts(self.counts, self.options.metrics_listen)

    def warm(self) -> Future[int]:
        """Start making ready what is likely to be asked for (`GrammarSource.warm`)."""
        return self._slow.submit(self._warm)

    def _warm(self) -> int:
        start = perf_counter_ns()
        try:
            ready = self.source.warm()
        except Exception as error:  # a cold start is no reason not to start
            _events.warning("warm_failed", error=str(error))
            return 0
        _events.info("warm", ready=ready, seconds=round((perf_counter_ns() - start) / 1e9, 3))
        return ready

    def begin(
        self,
        kind: Kind,
        spec: str,
        *,
        make: type[_Grammar],
        stop_token_ids: Iterable[int] | None = None,
        wait: bool = True,
    ) -> _Grammar:
        """The grammar of a new request, as a `make` (`RequestGrammar`, or an engine's subclass).

        `stop_token_ids`: everything that may end the request; None or nothing: the tokenizer's own. `wait`: return
        only when it is compiled, and raise its `CompileError`; otherwise it is compiled behind the returned object.
        """
        key = specification_digest(kind.value, spec)
        known: CompiledGrammar | Missing | None = self._grammars.get(key)
        if known is not None:
            self.counts.compiled("process", 0)
        elif wait:
            known = self._at_hand(key, kind, spec)
        if isinstance(known, CompiledGrammar):
            return make(self, stop_token_ids, grammar=known)
        missing = known
        future = self._grammars.joined(key, lambda: self._submit(key, kind, spec, missing))
        if not wait:
            return make(self, stop_token_ids, future=future)
        try:
            grammar = future.result(self.options.compile_s + 1.0)
        except FutureTimeoutError:
            self.counts.count("requests_failed", "deadline")
            raise _too_late(self.options.compile_s) from None
        except CompileError as error:
            self.counts.count("requests_failed", "limit" if isinstance(error, LimitExceeded) else "invalid")
            raise
        return make(self, stop_token_ids, grammar=grammar)

    def _at_hand(self, key: bytes, kind: Kind, spec: str) -> CompiledGrammar | Missing | None:
        """The grammar, if look-ups are all that it takes: to hand those to another thread would take as long again.
        Else what was found to be missing.
        """
        start = perf_counter_ns()
        found = self.source.at_hand(kind, spec, self.options.compile_options(seconds=self.options.quick_s))
        if not isinstance(found, Compiled):
            return found
        self._keep(key, found, start)
        return found.grammar

    def _keep(self, key: bytes, compiled: Compiled, asked: int) -> None:
        self._grammars.put(key, compiled.grammar)
        self.counts.compiled(compiled.tier, perf_counter_ns() - asked)
        if self.options.prefetch_entries:
            compiled.grammar.prefetch(self.options.prefetch_entries)

    def close(self) -> None:
        """End the threads, without waiting for what they compile, and let the source go."""
        self._closed = True
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)
        self.source.close()
        if self._endpoint is not None:
            self._endpoint.close()

    def _submit(self, key: bytes, kind: Kind, spec: str, missing: Missing | None) -> Future[CompiledGrammar]:
        promise: Future[CompiledGrammar] = Future()
        asked = perf_counter_ns()
        deadline = time.monotonic() + self.options.compile_s

        def settle(compiled: Compiled) -> None:
            self._keep(key, compiled, asked)
            promise.set_result(compiled.grammar)

        def attempt(seconds: float, then: Callable[[float], object] | None, missing: Missing | None) -> None:
            try:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    raise _too_late(self.options.compile_s)
                options = self.options.compile_options(seconds=min(seconds, left))
                settle(self.source.compile(kind, spec, options, deadline=deadline, missing=missing))
            except LimitExceeded as error:
                if then is not None and error.limit == "seconds" and not self._closed:
                    self.counts.count("slow_compiles")
                    then(self.options.compile_s)
                else:
                    self._grammars.settle(key)
                    promise.set_exception(error)
            except Exception as error:
                self._grammars.settle(key)
                promise.set_exception(error)

        def slowly(seconds: float) -> None:
            try:
                self._slow.submit(attempt, seconds, None, None)
            except RuntimeError as error:  # shut down meanwhile
                promise.set_exception(error)

        self._quick.submit(attempt, self.options.quick_s, slowly, missing)
        return promise


class RequestGrammar(RequestState):
    """One request's grammar, in the terms of engines: fill, accept, validate, roll back. None of it raises.

    It is compiling, ready, or failed with a `reason`; a failed one leaves rows open and refuses every token. The calls
    themselves are the kernel's (`RequestState`), since they are made at every token; here is what happens once.
    """

    __slots__ = ("_backend", "_future", "_grammar", "_stops", "reason")

    def __new__(cls, backend: ServingBackend, *_: Any, **__: Any) -> Self:
        calls = backend.counts.calls
        return super().__new__(cls, calls["fill"], calls["accept"], calls["validate"], calls["rollback"])

    def __init__(
        self,
        backend: ServingBackend,
        stop_token_ids: Iterable[int] | None,
        *,
        grammar: CompiledGrammar | None = None,
        future: Future[CompiledGrammar] | None = None,
    ) -> None:
        self._backend = backend
        # Ids beyond the vocabulary are never sampled; the kernel would take them for a mistake.
        given = sorted({token for token in stop_token_ids or () if 0 <= token < backend.vocab_size})
        self._stops = given or None
        self._future = future
        self._grammar: CompiledGrammar | None = None
        self.reason = ""
        if grammar is not None:
            self._make_matcher(grammar)

    def fresh(self) -> RequestGrammar:
        """The same grammar at its start, for another request."""
        return RequestGrammar(self._backend, self._stops, grammar=self._grammar, future=self._future)

    def is_ready(self) -> bool:
        """Can masks be filled without waiting? Also true of a grammar that failed."""
        return self._future is None or self._future.done()

    def _arrive(self, wait: bool) -> None:
        """Called until there is a matcher: take it from the future, waiting for that if `wait`, or fail."""
        future = self._future
        if self.reason or future is None:
            return
        seconds = self._backend.options.fill_wait_ms / 1e3 if wait else 0.0
        waited = not future.done()
        try:
            grammar = future.result(seconds)
        except FutureTimeoutError:
            self._backend.counts.count("fill_waits", "expired")
            self._fail("deadline", f"the grammar was still being compiled {seconds:g} s after the prompt was done")
        except Exception as error:
            kind = "invalid" if isinstance(error, CompileError) else "internal"
            self._fail("limit" if isinstance(error, LimitExceeded) else kind, f"the grammar did not compile: {error}")
        else:
            if waited:
                self._backend.counts.count("fill_waits", "ready")
            self._make_matcher(grammar)
        self._future = None

    def _make_matcher(self, grammar: CompiledGrammar) -> None:
        self._grammar = grammar
        try:
            self._start(
                grammar.matcher(stop_token_ids=self._stops, max_rollback_tokens=self._backend.max_rollback_tokens)
            )
        except Exception as error:
            self._fail("internal", f"no matcher could be made: {error}")

    def _fail(self, kind: str, reason: str) -> None:
        """Called when the request cannot go on."""
        self._end()
        if not self.reason:
            self.reason = reason
            self._backend.counts.count("requests_failed", kind)

    def _refused(self, request_id: str) -> None:
        """Called when tokens were refused."""
        _events.warning("request_failed", request=request_id, reason=self.reason)

    def _open(self, bitmask: Any, row: int) -> None:
        """Called where there is no mask: everything is allowed, and refused afterwards."""
        array: Bitmask = bitmask if isinstance(bitmask, np.ndarray) else bitmask.numpy()
        array[row] = -1


class _GrammarCache:
    """Compiled grammars by specification, least recently used dropped; one compile at a time for each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[bytes, CompiledGrammar] = OrderedDict()
        self._running: dict[bytes, Future[CompiledGrammar]] = {}
        self._lock = threading.Lock()
        self._puts = 0

    def get(self, key: bytes) -> CompiledGrammar | None:
        with self._lock:
            grammar = self._known.get(key)
            if grammar is not None:
                self._known.move_to_end(key)
            return grammar

    def joined(self, key: bytes, start: Callable[[], Future[CompiledGrammar]]) -> Future[CompiledGrammar]:
        """The compile of `key` that is under way, or a new one."""
        with self._lock:
            future = self._running.get(key)
            if future is None:
                future = self._running[key] = start()
            return future

    def put(self, key: bytes, grammar: CompiledGrammar) -> None:
        with self._lock:
            self._running.pop(key, None)
            if not self._most:
                return
            self._known[key] = grammar
            self._puts += 1
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            if self._puts % _WEIGH_EVERY == 0:  # parse tables grow with use
                total = sum(one.stats()["bytes"] for one in self._known.values())
                while total > _GRAMMARS_BYTES and len(self._known) > 1:
                    total -= self._known.popitem(last=False)[1].stats()["bytes"]

    def settle(self, key: bytes) -> None:
        """It failed; the next request for it tries again."""
        with self._lock:
            self._running.pop(key, None)


def _too_late(seconds: float) -> LimitExceeded:
    return LimitExceeded(
        f"the grammar was not compiled within {seconds:g} s: make it smaller, or raise deadlines.compile_s",
        limit="seconds",
        value=seconds,
    )


def _lower_priority() -> None:
    """This thread alone, on Linux; elsewhere it stays as it is."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
