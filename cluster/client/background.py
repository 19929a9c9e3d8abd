"""An event loop on a thread of its own, for what a synchronous program does over the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """A loop that is started on first use, and again in a forked child: a thread does not survive a fork."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._lock = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        loop = self._loop
        if loop is None or self._pid != os.getpid():
            if self._pid not in (0, os.getpid()):
                self._lock = threading.Lock()  # the parent's may have been held when this process was forked
            with self._lock:
                if self._loop is None or self._pid != os.getpid():
                    self._loop = asyncio.new_event_loop()
                    self._pid = os.getpid()
                    threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True).start()
                loop = self._loop
        return loop

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Stop the loop of this process."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
