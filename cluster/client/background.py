"""An event loop on a thread of its own, for what a synchronous program does over the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
STOP_S = 2.0


class Background:
    """A loop that is started on first use, and again in a forked child: a thread does not survive a fork."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
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
                    self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                    self._thread.start()
                loop = self._loop
        return loop

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Cancel what is under way in this process, and stop the loop."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        with contextlib.suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(STOP_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_S)
        if not thread.is_alive():
            loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
