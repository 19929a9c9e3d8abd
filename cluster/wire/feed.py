"""News of what a node commits, for those who watch: bounded, and never in the way of who commits."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gramary.cluster.records import Key, Kind

MOST_PENDING = 65536
"""Keys kept for one watcher that does not keep up; older ones are dropped and counted."""
MOST_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class News:
    """Keys committed since the last news, and how many were lost before them."""

    keys: Sequence[Key]
    lost: int


class Feed:
    """Passes keys from whoever commits (any thread) to any number of watchers (their event loops)."""

    def __init__(self, *, most_pending: int = MOST_PENDING) -> None:
        self._watchers: set[Watcher] = set()
        self._lock = threading.Lock()
        self._most_pending = most_pending

    def publish(self, keys: Iterable[Key]) -> None:
        """Tell that these were committed."""
        with self._lock:
            watchers = list(self._watchers)
        if watchers:
            keys = list(keys)
            for watcher in watchers:
                watcher.offer(keys)

    def watch(self, kinds: Iterable[Kind] = (), tokenizers: Iterable[bytes] = ()) -> Watcher:
        """A new watcher, for the running event loop. Close it."""
        watcher = Watcher(self, frozenset(kinds), frozenset(tokenizers), self._most_pending)
        with self._lock:
            self._watchers.add(watcher)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """Stop telling a watcher."""
        with self._lock:
            self._watchers.discard(watcher)

    def __len__(self) -> int:
        return len(self._watchers)


class Watcher:
    """One who watches. `next` is for one task of the loop that it was made on."""

    def __init__(self, feed: Feed, kinds: frozenset[Kind], tokenizers: frozenset[bytes], most_pending: int) -> None:
        self._feed = feed
        self._kinds = kinds
        self._tokenizers = tokenizers
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._pending: deque[Key] = deque(maxlen=most_pending)
        self._lost = 0
        self._lock = threading.Lock()

    def offer(self, keys: Sequence[Key]) -> None:
        """Take note of keys; from any thread."""
        wanted = [key for key in keys if self._wants(key)]
        if not wanted:
            return
        with self._lock:
            self._lost += max(0, len(self._pending) + len(wanted) - (self._pending.maxlen or 0))
            self._pending.extend(wanted)
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # its loop was closed under it
            self.close()

    def _wants(self, key: Key) -> bool:
        if self._kinds and key.kind not in self._kinds:
            return False
        return not self._tokenizers or key.kind is not Kind.ENTRY or key.tokenizer in self._tokenizers

    async def next(self, timeout_s: float) -> News:
        """News; at the time-out without any."""
        waiter = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)  # wait_for could lose a cancellation
        finally:
            waiter.cancel()
        with self._lock:
            keys = [self._pending.popleft() for _ in range(min(len(self._pending), MOST_AT_ONCE))]
            lost, self._lost = self._lost, 0
            if not self._pending:
                self._news.clear()
        return News(keys, lost)

    def close(self) -> None:
        """Stop watching."""
        self._feed.forget(self)
