"""Watching for silence, without `asyncio.wait_for`.

Before Python 3.12 that loses a cancellation that comes together with a result, and a stream that is cancelled must end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Watchdog:
    """Calls `bite` when it was not fed for so many seconds. For the running event loop; stop it."""

    def __init__(self, seconds: float, bite: Callable[[], object]) -> None:
        self._seconds = seconds
        self._bite = bite
        self._loop = asyncio.get_running_loop()
        self._fed = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look)
        self.bitten = False

    def feed(self) -> None:
        """Something happened. Costs next to nothing: the timer is left alone until it is due."""
        self._fed = self._loop.time()

    def _look(self) -> None:
        left = self._fed + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
            return
        self.bitten = True
        self._bite()

    def stop(self) -> None:
        """It is over."""
        self._timer.cancel()
