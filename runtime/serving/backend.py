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
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import perf_counter_ns
from typing import Any, TypeVar

import numpy as np

from gramary.compiler.errors import CompileError, LimitExceeded
from gramary.runtime._core import CompiledGrammar, Matcher
from gramary.runtime.bitmask import Bitmask
from gramary.runtime.serving.events import Events
from gramary.runtime.serving.exposition import serve_counts
from gramary.runtime.serving.metrics import WorkerCounts
from gramary.runtime.serving.options import WorkerOptions
from gramary.runtime.serving.source import Compiled, GrammarSource, Kind, Missing

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
        key = _key(kind, spec)
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
        if self.options.prefetch_entries and not self._closed:
            with contextlib.suppress(RuntimeError):  # shut down meanwhile
                self._quick.submit(found.grammar.prefetch, self.options.prefetch_entries)
        return found.grammar

    def _keep(self, key: bytes, compiled: Compiled, asked: int) -> None:
        self._grammars.put(key, compiled.grammar)
        self.counts.compiled(compiled.tier, perf_counter_ns() - asked)

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
            if self.options.prefetch_entries:  # nobody waits for it
                compiled.grammar.prefetch(self.options.prefetch_entries)

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


class RequestGrammar:
    """One request's grammar, in the terms of engines: fill, accept, validate, roll back. None of it raises.

    It is compiling, ready, or failed with a `reason`; a failed one leaves rows open and refuses every token.
    """

    __slots__ = (
        "_backend",
        "_count",
        "_future",
        "_grammar",
        "_matcher",
        "_owner",
        "_rows",
        "_stops",
        "_terminated",
        "reason",
    )

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
        self._matcher: Matcher | None = None
        self._terminated = False
        self._owner: Any = None
        self._rows: Any = None
        self._count = 0
        self.reason = ""
        if grammar is not None:
            self._make_matcher(grammar)

    @property
    def matcher(self) -> Matcher | None:
        """The kernel's matcher, once it is there."""
        return self._matcher

    def fresh(self) -> RequestGrammar:
        """The same grammar at its start, for another request."""
        return RequestGrammar(self._backend, self._stops, grammar=self._grammar, future=self._future)

    def is_ready(self) -> bool:
        """Can masks be filled without waiting? Also true of a grammar that failed."""
        return self._matcher is not None or bool(self.reason) or self._future is None or self._future.done()

    def fill_bitmask(self, bitmask: Any, row: int) -> None:
        """Write the next token's mask to `row` of `bitmask`, an int32 array or CPU tensor of shape (rows, words)."""
        start = perf_counter_ns()
        if bitmask is not self._owner or row >= self._count:
            self._look_at(bitmask, row)
        matcher = self._matcher or self._arrived(self._backend.options.fill_wait_ms / 1e3)
        if matcher is not None:
            try:
                if not matcher.fill_bitmask(self._rows, row):
                    self._fail("token", "no token of this vocabulary can continue the text")
            except Exception as error:
                self._fail("limit", f"the mask could not be computed: {error}")
        if self._matcher is None:
            array: Bitmask = bitmask if isinstance(bitmask, np.ndarray) else bitmask.numpy()
            array[row] = -1
        self._backend.counts.calls["fill"].add(perf_counter_ns() - start)

    def _look_at(self, bitmask: Any, row: int) -> None:
        """Remember where the rows of an engine's bitmask are: at every token, looking costs more than filling."""
        array: Bitmask = bitmask if isinstance(bitmask, np.ndarray) else bitmask.numpy()
        words = (self._backend.vocab_size + 31) // 32
        plain = array.dtype == np.int32 and array.flags.c_contiguous and array.ndim == 2 and array.shape[1] == words
        plain = plain and row < array.shape[0]  # else the kernel says what is wrong
        self._owner, self._count = bitmask, array.shape[0] if plain else 0
        self._rows = array.ctypes.data if plain else array

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by `tokens`. False: one of them is not allowed (or the grammar failed), and the request must end.

        What comes after a stop token is ignored.
        """
        start = perf_counter_ns()
        accepted = self._accept(tokens)
        if not accepted:
            _events.warning("request_failed", request=request_id, reason=self.reason)
        self._backend.counts.calls["accept"].add(perf_counter_ns() - start)
        return accepted

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix of `tokens` that would be accepted, up to and including a stop token."""
        start = perf_counter_ns()
        matcher = self._matcher or self._arrived(0.0)
        taken = 0
        if matcher is not None and not self._terminated:
            try:
                taken = self._before_end(matcher, tokens, matcher.validate_tokens(tokens))
            except Exception as error:
                self._fail("limit", f"drafts could not be judged: {error}")
        self._backend.counts.calls["validate"].add(perf_counter_ns() - start)
        return tokens[:taken]

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens."""
        start = perf_counter_ns()
        if self._matcher is not None and count > 0:
            try:
                self._matcher.rollback(count)
                self._terminated = self._matcher.is_terminated()
            except Exception as error:
                self._fail("internal", f"{count} tokens could not be taken back: {error}")
        self._backend.counts.calls["rollback"].add(perf_counter_ns() - start)

    def is_terminated(self) -> bool:
        """Was a stop token accepted?"""
        return self._terminated

    def reset(self) -> None:
        """Back to the start."""
        if self._matcher is not None:
            self._matcher.reset()
        self._terminated = False

    def _accept(self, tokens: list[int]) -> bool:
        if self._terminated:
            return True
        matcher = self._matcher or self._arrived(0.0)
        if matcher is None:
            return False
        if not tokens:
            return True
        try:
            taken = matcher.accept_tokens(tokens)
            self._terminated = matcher.is_terminated()
        except Exception as error:
            self._fail("limit", f"token {tokens[0]} could not be matched: {error}")
            return False
        if taken == len(tokens) or self._terminated:
            return True
        at_end = " (the text is complete: only a stop token may follow)" if matcher.is_complete() else ""
        self._fail("token", f"token {tokens[taken]} is not allowed here{at_end}; did min_tokens forbid the end?")
        return False

    def _before_end(self, matcher: Matcher, tokens: list[int], taken: int) -> int:
        """`taken`, cut behind the stop token that ends the text: a second one would be accepted too."""
        stops = self._stops or self._backend.source.compiler.stop_token_ids
        if not any(token in stops for token in tokens[: taken - 1]):
            return taken
        probe = matcher.fork()
        for i, token in enumerate(tokens[:taken]):  # one that is a letter of the text ends nothing
            probe.accept_token(token)
            if probe.is_terminated():
                return i + 1
        return taken

    def _arrived(self, seconds: float) -> Matcher | None:
        """The matcher, waiting for it for so long; None, and failed, if it is not there then."""
        future = self._future
        if self.reason or future is None:
            return None
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
        return self._matcher

    def _make_matcher(self, grammar: CompiledGrammar) -> None:
        self._grammar = grammar
        try:
            self._matcher = grammar.matcher(
                stop_token_ids=self._stops, max_rollback_tokens=self._backend.max_rollback_tokens
            )
        except Exception as error:
            self._fail("internal", f"no matcher could be made: {error}")

    def _fail(self, kind: str, reason: str) -> None:
        self._matcher = None
        if not self.reason:
            self.reason = reason
            self._backend.counts.count("requests_failed", kind)


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


def _key(kind: Kind, spec: str) -> bytes:
    return hashlib.blake2b(spec.encode("utf-8", "surrogatepass"), digest_size=32, person=kind.value.encode()).digest()


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
