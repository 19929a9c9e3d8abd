"""What was committed lately, for those who want to follow."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from gramary.cluster.records import Key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class News:
    """Keys committed after some sequence number."""

    keys: list[Key]
    sequence: int
    """Of the last of them: what to ask from next."""
    lost: bool
    """Older news than what is kept was asked for, or news of another run: look for what is missing instead."""


class Feed:
    """A bounded ring of keys with sequence numbers from 1 on. Safe for threads."""

    def __init__(self, most: int) -> None:
        self.sequence = 0
        self._ring: deque[Key] = deque(maxlen=most)
        self._changed = threading.Condition()
        self._listeners: dict[int, Callable[[int], None]] = {}
        self._listened = 0
        self._closed = False

    def add(self, keys: Sequence[Key]) -> None:
        """These were committed."""
        if not keys:
            return
        with self._changed:
            self._ring.extend(keys)
            self.sequence += len(keys)
            self._changed.notify_all()
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener(self.sequence)
            except Exception:  # a follower's fault is not the writer's: what was put is committed
                log.exception("a listener of the store failed")

    def read(self, since: int, most: int) -> News:
        """Up to `most` keys after `since`."""
        with self._changed:
            oldest = self.sequence - len(self._ring)
            lost = not oldest <= since <= self.sequence
            start = oldest if lost else since
            keys = list(islice(self._ring, start - oldest, start - oldest + most))
            return News(keys, start + len(keys), lost)

    def wait(self, since: int, timeout_s: float) -> bool:
        """Wait for news after `since`; whether there are any."""
        ends = time.monotonic() + timeout_s
        with self._changed:
            while self.sequence == since and not self._closed:
                left = ends - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return self.sequence != since

    def listen(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener` with the sequence number after each commit, in the committing thread; returns how to stop it.

        It must be quick: `lambda _: loop.call_soon_threadsafe(event.set)`.
        """
        with self._changed:
            self._listened += 1
            number = self._listened
            self._listeners[number] = listener

        def stop() -> None:
            with self._changed:
                self._listeners.pop(number, None)

        return stop

    def close(self) -> None:
        """Wake whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
